"""The live view on terminals of several widths, as pictures of text that are reviewed."""

from pathlib import Path

import pytest

from grpo_practice.cli.terminal.live_block import LiveBlock
from grpo_practice.cli.terminal.progress_view import Lines
from grpo_practice.cli.terminal.tally import Tally
from tests.cli.screens import SCENES, Clock, Screen

GOLDEN = Path(__file__).parents[1] / "golden" / "terminal"
SIZES = {40: 24, 80: 24, 200: 50}


def drawn(scene: str, columns: int) -> str:
    """The terminal after the scene, of which every event was drawn."""
    screen, clock = Screen(columns, SIZES[columns]), Clock()
    console, tally = screen.console(), Tally(clock=clock)
    lines, live = Lines(tally, console, tenths=False), LiveBlock(tally, console)
    live.auto_refresh = False
    with live:
        for event in SCENES[scene]:
            lines.show(event)
            clock.now += 0.5
            live.refresh()
        shown = screen.shown
    assert all(line in screen.shown for line in shown if line.startswith(("step", "math (sim")))
    assert not any("rollouts," in line and "%" in line for line in screen.shown)
    return "\n".join(shown).rstrip()


@pytest.mark.parametrize("columns", SIZES)
def test_the_live_view_is_what_was_reviewed(columns: int) -> None:
    path = GOLDEN / f"{columns}.txt"
    made = "".join(f"==== {scene}\n{drawn(scene, columns)}\n\n" for scene in SCENES)
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(made, "utf-8")
        pytest.fail(f"{path.name} was missing and has been written: review it")
    assert made == path.read_text("utf-8")


@pytest.mark.parametrize("columns", SIZES)
@pytest.mark.parametrize("scene", SCENES)
def test_no_line_is_wider_than_the_terminal_or_torn(scene: str, columns: int) -> None:
    lines = drawn(scene, columns).split("\n")
    assert max(map(len, lines)) <= columns
    titles = [line for line in lines if line.startswith(("math simulated", "math/train  step"))]
    assert len(titles) == 1
