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


@pytest.mark.long
@pytest.mark.parametrize("columns", SIZES)
def test_the_live_view_is_what_was_reviewed_and_no_line_is_too_wide_or_torn(columns: int) -> None:
    path = GOLDEN / f"{columns}.txt"
    views = {scene: drawn(scene, columns) for scene in SCENES}
    for scene, view in views.items():
        lines = view.split("\n")
        assert max(map(len, lines)) <= columns, scene
        titles = [line for line in lines if line.startswith(("math simulated", "math/train  step"))]
        assert len(titles) == 1, f"{scene} is torn"
    made = "".join(f"==== {scene}\n{view}\n\n" for scene, view in views.items())
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(made, "utf-8")
        pytest.fail(f"{path.name} was missing and has been written: review it")
    assert made == path.read_text("utf-8")
