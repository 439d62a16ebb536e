"""The live view in a real terminal: resized, gone, dumb, or not a terminal at all."""

import fcntl
import io
import os
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

import pyte
import pytest
from rich.console import Console

from grpo_practice.cli.terminal.live_block import LiveBlock, reflows
from grpo_practice.cli.terminal.progress_view import Lines, progress
from grpo_practice.cli.terminal.tally import Tally
from grpo_practice.core.events import StepFinished
from tests.cli.screens import SCENES, Screen, begun, failed, played
from tests.cli.test_run_commands import Shell, shell
from tests.cli.test_signals import Slow, slow
from tests.processes import HANG_S, program, until

__all__ = ["shell", "slow"]

BARS = "█▓▒░"


class Terminal:
    """A pseudo-terminal, and what it shows."""

    def __init__(self, columns: int, lines: int) -> None:
        self.ours, self.theirs = os.openpty()
        self.screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self.screen)
        self.resize(columns, lines)

    def resize(self, columns: int, lines: int) -> None:
        self.screen.resize(lines, columns)
        fcntl.ioctl(self.ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self) -> None:
        """Take in what was written until now."""
        while select.select([self.ours], [], [], 0)[0]:
            self._stream.feed(os.read(self.ours, 65536))

    @property
    def shown(self) -> list[str]:
        self.read()
        return [line.rstrip() for line in self.screen.display if line.strip()]


@contextmanager
def practising(
    shell: Shell, terminal: Terminal, words: list[str]
) -> Iterator[subprocess.Popen[str]]:
    env = {k: v for k, v in shell.env.items() if k not in ("COLUMNS", "NO_COLOR")}
    env |= {"TERM": "xterm", "XTERM_VERSION": "XTerm(388)"}  # as the emulator: nothing is reflowed
    with (
        (shell.folder / "out.txt").open("w") as out,
        subprocess.Popen(
            program(*words, first="signal.signal(signal.SIGHUP, signal.SIG_IGN)"),
            stdin=terminal.theirs, stdout=out, stderr=terminal.theirs, cwd=shell.folder, env=env,
            text=True,
        ) as process,
    ):  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def bar(terminal: Terminal) -> list[str]:
    return [line for line in terminal.shown if any(cell in line for cell in BARS)]


@pytest.mark.long
@pytest.mark.slow
def test_a_terminal_that_is_resized_shows_one_block_in_its_new_width(
    shell: Shell, slow: Slow
) -> None:
    terminal = Terminal(120, 30)
    with practising(shell, terminal, slow.words()) as process:
        until(lambda: any("playing 8" in line for line in terminal.shown), process)
        (wide,) = bar(terminal)
        for columns in (60, 100, 45):
            terminal.resize(columns, 30)
            cells = min(columns - 1 - 48, 60) if columns > 58 else columns - 3

            def redrawn(cells: int = cells) -> bool:
                return [sum(map(line.count, BARS)) for line in bar(terminal)] == [cells]

            until(redrawn, process)
            titles = [line for line in terminal.shown if line.startswith("toy simulated")]
            assert len(titles) == 1
            assert max(map(len, terminal.shown)) <= columns
        slow.release()
        until(lambda: terminal.shown and process.poll() is not None)
    assert process.returncode == 0
    assert not bar(terminal)
    assert sum(map(wide.count, BARS)) == 60
    assert "step 3 closed" in "\n".join(terminal.shown)


@pytest.mark.long
@pytest.mark.slow
def test_a_terminal_that_is_gone_does_not_end_the_run(shell: Shell, slow: Slow) -> None:
    terminal = Terminal(100, 30)
    with practising(shell, terminal, slow.words()) as process:
        # A terminal that nobody reads is full after 4 kB, and the program waits to write.
        until(lambda: terminal.shown and slow.asked() >= 8, process)
        os.close(terminal.ours)  # from here on every write is EIO
        os.close(terminal.theirs)
        slow.release()
        process.wait(HANG_S)
    assert shell.query("SELECT status FROM runs WHERE run_id = 'toy'") == [("done",)]
    assert "next: grpo-practice eval --arms none,full" in (shell.folder / "out.txt").read_text()
    assert process.returncode == 0


@pytest.mark.parametrize("reflowing", [True, False])
def test_no_torn_line_is_left_and_no_other_is_lost(
    reflowing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMUX" if reflowing else "XTERM_VERSION", "1")
    monkeypatch.delenv("XTERM_VERSION" if reflowing else "TMUX", raising=False)
    screen, tally = Screen(100, 40), Tally()
    console = screen.console()
    lines, live = Lines(tally, console, tenths=False), LiveBlock(tally, console)
    live.auto_refresh = False
    kept = [f"line {i} above" for i in range(5)]
    with live:
        for line in kept:
            console.print(line)
        for event in [*begun(), *played(range(5)), *failed(5, 0, 1, 2)]:
            lines.show(event)
        live.refresh()
        for columns in (60, 45, 90):
            screen.resize(columns, reflowing=reflowing)
            console.width = columns
            live.refresh()
            assert [line for line in screen.shown if "above" in line] == kept
            assert sum(line.startswith("math simulated") for line in screen.shown) == 1
            assert sum(" 13/80 rollouts" in line for line in screen.shown) == 1
            assert sum("3 failed" in line for line in screen.shown) == 1
    assert not any("%" in line for line in screen.shown)


def test_a_block_higher_than_the_terminal_erases_no_line_above_it() -> None:
    screen, tally = Screen(40, 8), Tally()
    console = screen.console()
    live = LiveBlock(tally, console)
    live.auto_refresh = False
    for event in [*begun(), *played(range(5)), *failed(5, 0, 1, 2)]:
        tally.record(event)
    kept = [f"line {i} above" for i in range(5)]
    with live:
        for line in kept:
            console.print(line)
            live.refresh()
        assert sum(line.startswith("math simulated") for line in screen.shown) == 1
    assert [line for line in screen.shown if line] == kept


def test_what_an_agent_prints_on_the_terminal_stands_above_the_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen = Screen(80, 24)
    monkeypatch.setattr(sys, "stdout", screen)
    with progress(json=False, console=screen.console()) as emit:
        for event in begun():
            emit(event)
        sys.stdout.write("thinking aloud\nand once more\n")
        emit(StepFinished(0, 0.5, informative=1, experiences=2))
        shown = screen.shown
    assert [line for line in shown if "aloud" in line or "more" in line] == [
        "thinking aloud",
        "and once more",
    ]
    assert sum(line.startswith("math simulated") for line in shown) == 1
    assert sys.stdout is screen


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm", "XTERM_VERSION": "XTerm(388)"}, False),
        ({"TERM": "screen", "STY": "1.pts"}, False),
        ({"TERM": "linux"}, False),
        ({"TERM": "screen", "TMUX": "/tmp/tmux", "XTERM_VERSION": "XTerm(388)"}, True),
    ],
)
def test_which_terminals_break_lines_anew(environ: dict[str, str], expected: bool) -> None:
    assert reflows(environ) is expected


@pytest.mark.parametrize("name", ["FORCE_COLOR", "TTY_COMPATIBLE"])
def test_a_file_gets_lines_and_no_cursor_movements_also_where_colours_are_forced(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv(name, "1")
    monkeypatch.setenv("TERM", "xterm")
    console = Console(file=io.StringIO(), width=60)
    with progress(json=False, console=console) as emit:
        for event in SCENES["many failures of many kinds"]:
            emit(event)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "\x1b[31m" in text
    assert not any(f"\x1b[{code}" in text for code in ("1A", "2K", "?25", "1G"))
    assert "HTTP 503, the model is overloaded" in text  # in one line, though it is longer


@pytest.mark.parametrize("terminal", [True, False])
def test_no_color_is_kept_and_dumb_terminals_get_lines(terminal: bool) -> None:
    environ = {"TERM": "xterm", "NO_COLOR": "1"} if terminal else {"TERM": "dumb"}
    file = io.StringIO()
    console = Console(file=file, width=100, force_terminal=True, _environ=environ)
    with progress(json=False, console=console) as emit:
        for event in SCENES["many failures of many kinds"]:
            emit(event)
    text = file.getvalue()
    assert "\x1b[3" not in text
    assert ("█" in text) is terminal
    assert ("\x1b" in text) is terminal


def test_a_terminal_without_such_characters_gets_others() -> None:
    raw = io.BytesIO()
    file = io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace")
    console = Console(file=file, width=100, force_terminal=True, color_system=None)
    with progress(json=False, console=console) as emit:
        for event in SCENES["one failure"]:
            emit(event)
    file.flush()
    assert b"###" in raw.getvalue()
    assert b"\\u25" not in raw.getvalue()
