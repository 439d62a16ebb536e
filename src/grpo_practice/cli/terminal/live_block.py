"""The live block at the bottom of the terminal: progress, current activity and failures."""

import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text
from typing_extensions import override

from grpo_practice.cli.terminal.consoles import is_coloured_file
from grpo_practice.cli.terminal.formatting import count, reward, tokens
from grpo_practice.cli.terminal.tally import Tally
from grpo_practice.core.events import RunStarted
from grpo_practice.core.redact import redactor
from grpo_practice.core.stages import STAGES
from grpo_practice.core.text import brief, visible

BARS = (10, 60)
"""Minimum width of a bar with numbers next to it, and maximum width of a bar."""
BESIDE = 48
"""Width of the numbers next to the bar."""
KINDS = 3
"""Maximum number of failure kinds that are shown."""
SHOWN = 160
"""Maximum length of a foreign text on one line."""
GAP = "   "
INDENT = "  "


class LiveBlock(Live):
    """Renderer that draws a tally four times a second and stops drawing after an error.

    The block adapts to the terminal's width; no line reaches the last column.
    """

    def __init__(self, tally: Tally, console: Console) -> None:
        super().__init__(
            get_renderable=lambda: self,
            console=console,
            refresh_per_second=4,
            transient=True,
            # Output of user code on the same terminal would tear the block. Output to a pipe or a
            # file must stay there.
            redirect_stdout=sys.stdout.isatty(),
        )
        self._tally = tally
        self._works = True
        self._widths: list[int] = []
        """Widths of the lines drawn last."""

    @override
    def start(self, refresh: bool = False) -> None:
        """Start drawing."""
        try:
            super().start(refresh)
            # Keep the cursor visible, because nothing could restore it after SIGKILL.
            self.console.show_cursor(True)
        except OSError:
            self._works = False

    @override
    def refresh(self) -> None:
        """Draw the block in its current state."""
        try:
            if self._works:
                super().refresh()
        except Exception:  # noqa: BLE001 - runs in rich's thread, where nothing catches it
            self._works = False

    @override
    def stop(self) -> None:
        """Remove the block."""
        try:
            super().stop()
        except OSError:  # the terminal is gone
            self._works = False

    @override
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        """Replace the block with the renderables, and draw the block again below them."""
        drawn = super().process_renderables(renderables)
        # If the terminal became narrower, the lines drawn last now take more rows.
        extra = sum((width - 1) // self.console.width for width in self._widths if width)
        if not extra or not reflows(os.environ):
            return drawn
        up = [(ControlType.CURSOR_UP, 1), (ControlType.ERASE_IN_LINE, 2)] * extra
        return [Control(ControlType.CARRIAGE_RETURN, (ControlType.ERASE_IN_LINE, 2), *up), *drawn]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # Leave the last column free: some terminals start a new row there, which is never erased.
        width = max(options.max_width - 1, 1)
        lines = list(_lines(self._tally, console, width, ascii_only=options.ascii_only))
        # Leave a row free: Live would replace the last row, so `_widths` would be wrong.
        lines = lines[: max(options.size.height - 1, 1)]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        self._widths = [line.cell_len for line in lines]
        yield Text("\n", no_wrap=True).join(lines)


def is_live(console: Console) -> bool:
    """Return whether the console is a terminal on which a block can be redrawn."""
    return console.is_interactive and not is_coloured_file(console)


def reflows(environ: Mapping[str, str]) -> bool:
    """Return whether the terminal rewraps long lines when it becomes narrower."""
    if environ.get("TMUX"):
        return True
    # xterm, GNU screen and the console truncate lines, so moving up would erase earlier rows.
    is_cutting = environ.get("XTERM_VERSION") or environ.get("STY")
    return not is_cutting and environ.get("TERM", "") not in ("linux", "vt100", "vt220")


def _lines(tally: Tally, console: Console, width: int, *, ascii_only: bool) -> Iterator[Text]:
    activity = [Text(text) for text in _activity(tally)]
    if tally.run is None:
        yield from _flowed(activity, console, width)
        return
    yield from _flowed(_title(tally, tally.run), console, width, gap="  ", indent="")
    bar = _bar(tally, width, ascii_only=ascii_only)
    for row in (bar, activity, _rewards(tally), _usage(tally), *_failures(tally, width)):
        yield from _flowed(row, console, width)


def _flowed(
    pieces: list[Text], console: Console, width: int, *, gap: str = GAP, indent: str = INDENT
) -> Iterator[Text]:
    """Yield lines with as many pieces as fit; split a piece only if it fits on no line."""
    line, room = Text(indent), max(width - len(indent), 1)
    for piece in chain.from_iterable(
        [piece] if piece.cell_len <= room else piece.wrap(console, room) for piece in pieces
    ):
        if line.plain != indent:
            if line.cell_len + len(gap) + piece.cell_len <= width:
                line.append(gap)
            else:
                yield line
                line = Text(INDENT)
        line.append_text(piece)
    if line.plain != indent:
        yield line


def _title(tally: Tally, run: RunStarted) -> list[Text]:
    title, part = Text(visible(run.run), style="bold"), tally.part
    title.append(f" and {count(tally.beside, 'other run')}" if tally.beside else "")
    title.append(" simulated" if run.simulated else "", style="magenta")
    pieces = [title]
    if tally.step is not None:
        pieces.append(Text(f"step {tally.step.step} (of {run.steps}, epoch {tally.step.epoch})"))
    if tally.inside:
        pieces.append(Text(f"evaluating {visible(part.name)}"))
    if part is not tally.whole:
        pieces.append(Text(f"{part.done}/{part.planned} rollouts"))
    return pieces


def _bar(tally: Tally, width: int, *, ascii_only: bool) -> list[Text]:
    """Return the bar for all of the command's rollouts, and the numbers next to or below it."""
    whole, (least, most) = tally.whole, BARS
    # Depends only on the width: otherwise the bar would shrink as its numbers grow.
    beside = min(width - BESIDE, most)
    cells = beside if beside >= least else max(width - len(INDENT), 1)
    new, known, failed, to_come = "#+x-" if ascii_only else "█▓▒░"
    done = int(tally.share * cells)
    scale = done / max(whole.done, 1)
    # Round up, so that a single failure is visible.
    bad = min(-int(-whole.failed * scale // 1), done)
    before = whole.done - whole.played
    old = min(int((before + whole.replayed) * scale), done - bad)
    bar = Text.assemble(
        (known * old, "cyan"),
        (new * (done - bad - old), "green"),
        (failed * bad, "red"),
        (to_come * (cells - done), "dim"),
    )
    share = f"{whole.done}/{whole.planned} rollouts, {int(100 * tally.share)} %"
    pieces = [bar.append(f"  {share}")] if beside >= least else [bar, Text(share)]
    there = [f"{before} already done"] if before else []
    there += [f"{whole.replayed} replayed"] if whole.replayed else []
    pieces += [Text(", ".join(there), style="cyan")] if there else []
    pieces += [Text(f"{whole.failed} failed", style="red")] if whole.failed else []
    left_s = tally.most_left_s
    if whole.done < whole.planned and (left_s is None or left_s >= 1):
        left = "estimating the time left" if left_s is None else time_left(tally)
        pieces += [] if tally.awaited else [Text(left)]
    return pieces


def time_left(tally: Tally) -> str:
    """Return the estimated time left, or '' if it is unknown or below a second."""
    left_s, most = tally.most_left_s, "" if tally.left_s is not None else "at most "
    return f"{most}about {coarse(left_s)} left" if left_s and left_s >= 1 else ""


def coarse(seconds: float) -> str:
    """Format an estimated time: `8 s`, `3 min`, `2 h 5 min`."""
    if seconds < 60:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _activity(tally: Tally) -> list[str]:
    """Return the current activities and waits."""
    parts = list[str]()
    if batches := tally.awaited:
        return [f"waiting for {what}" for what in batches]
    if playing := tally.rollouts - tally.scoring:
        parts.append(f"playing {playing}")
    if tally.scoring:
        parts.append(f"scoring {tally.scoring}")
    if teacher := tally.teacher:
        asked = Counter(address.stage for address in teacher)
        stages = ", ".join(f"{asked[stage]} {stage}" for stage in STAGES if asked[stage])
        parts.append(f"teacher at work on step {teacher[-1].step}: {stages}")
    parts += _waits(tally)
    return parts if parts or tally.run is None else [_state(tally)]


def _state(tally: Tally) -> str:
    """Return the state of a command that has no current activity."""
    part, whole = tally.part, tally.whole
    all_played = part.done >= part.planned
    if tally.step is not None and tally.step_open:
        if tally.trains:
            return "updating weights" if all_played else "sampling answers"
        if all_played:
            return f"closing step {tally.step.step}"
    if whole.done >= whole.planned:
        return "finishing"
    return "working" if part.played else "starting"


def _waits(tally: Tally) -> Iterator[str]:
    retries, now = tally.retries, tally.clock()
    for host in dict.fromkeys(wait.host for _, wait in retries if wait.asked):
        until = max(at for at, wait in retries if wait.asked and wait.host == host)
        yield f"waiting {coarse(until - now)} as {host} asked"
    others = [wait for _, wait in retries if not wait.asked]
    if others:
        kinds = dict.fromkeys(
            "connection failed" if wait.status is None else f"HTTP {wait.status}" for wait in others
        )
        yield f"{len(others)} waiting to retry ({', '.join(kinds)})"


def _rewards(tally: Tally) -> list[Text]:
    part = tally.part
    pieces = [Text(f"mean reward {reward(part.mean)}")]
    if tally.step is not None and not tally.inside and not tally.trains:
        groups = Text(
            f"{part.informative} informative of {count(part.groups, 'group')},"
            f" {part.distilled} distilled"
        )
        if part.undistilled:
            groups.append(f", {part.undistilled} failed", style="yellow")
        pieces.append(groups)
    return pieces


def _usage(tally: Tally) -> list[Text]:
    usage = tally.usage
    if tally.trains and not tally.new and not tally.replayed:
        return []
    pieces = [
        f"tokens {tokens(usage.tokens_in)} in, {tokens(usage.tokens_out)} out",
        f"requests {tally.new} new, {tally.replayed} replayed",
        f"tool calls {tally.tools}" if tally.tools else "",
    ]
    return [Text(piece) for piece in pieces if piece]


def _failures(tally: Tally, width: int) -> Iterator[list[Text]]:
    """Yield a row for each of the most common failure kinds, and one row for all others."""
    kinds = sorted(tally.failures.values(), key=lambda kind: -kind.count)
    for kind in kinds[:KINDS]:
        line = f"{kind.count} failed ({kind.reason}): "
        error = brief(redactor.text(kind.error), SHOWN)
        yield [Text(line + _ends(error, width - len(INDENT) - len(line)), style="red")]
    if more := sum(kind.count for kind in kinds[KINDS:]):
        others = count(len(kinds) - KINDS, "other kind")
        yield [Text(f"and {more} more of {others}", style="red")]


def _ends(text: str, room: int) -> str:
    """Shorten a text in the middle, because an error's source and cause are at its ends."""
    if cell_len(text) <= room or room < 3:
        return text
    start = (room - 1) // 3
    # Count cells, because some characters take two columns.
    end = len(text)
    while cell_len(text[end - 1 :]) <= room - 1 - start:
        end -= 1
    return f"{set_cell_size(text, start)}…{text[end:]}"
