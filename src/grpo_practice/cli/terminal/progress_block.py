"""The live block: how far a command is, what is under way, and what has failed."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from grpo_practice.cli.terminal.formatting import count, reward, tokens
from grpo_practice.progress import Part, Tally
from grpo_practice.redact import redactor
from grpo_practice.text import brief, visible

BARS = (10, 60)
"""Fewest cells of a bar that numbers stand beside, and most cells of one."""
BESIDE = 48
"""Columns of the numbers beside the bar."""
KINDS = 3
"""Kinds of failures that are shown."""
SHOWN = 160
"""Characters of a foreign sentence in one line."""
GAP = "   "
INDENT = "  "


class Block:
    """Renders a tally in as many columns as there are; no line reaches the last one."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._widths: list[int] = []
        """Columns of the lines that were drawn last."""

    def reflowed(self, columns: int) -> int:
        """Return how many rows more the lines drawn last take on a terminal of so many columns."""
        return sum((width - 1) // columns for width in self._widths if width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        # One column less: at the edge some terminals begin another row, which nobody would erase.
        width = max(options.max_width - 1, 1)
        page = _Page(console, width)
        lines = list(_lines(self._tally, page, ascii_only=options.ascii_only))
        # One row less, too: Live would replace the last one, and what is erased has to be known.
        lines = lines[: max(options.size.height - 1, 1)]
        for line in lines:
            line.truncate(width, overflow="ellipsis")
        self._widths = [line.cell_len for line in lines]
        yield Text("\n", no_wrap=True).join(lines)


def _lines(tally: Tally, page: "_Page", *, ascii_only: bool) -> Iterator[Text]:
    whole, part = tally.whole, tally.part
    under_way = [Text(text) for text in activity(tally)]
    if whole is None or part is None:
        yield from page.flowed(under_way)
        return
    yield from page.flowed(_title(tally), gap="  ", indent="")
    yield from _bar_lines(tally, whole, page, ascii_only=ascii_only)
    yield from page.flowed(under_way)
    yield from page.flowed(_part(tally, part))
    yield from page.flowed(_usage(tally))
    yield from _failures(tally, page)


@dataclass(frozen=True, slots=True)
class _Page:
    """Lays pieces of text out in lines."""

    console: Console
    width: int

    def flowed(self, pieces: list[Text], *, gap: str = GAP, indent: str = INDENT) -> Iterator[Text]:
        """Yield lines of as many pieces each as fit; a piece is divided only where it fits none."""
        line = Text(indent)
        for piece in chain.from_iterable(self.wrapped(piece, len(indent)) for piece in pieces):
            if line.plain != indent:
                if line.cell_len + len(gap) + piece.cell_len <= self.width:
                    line.append(gap)
                else:
                    yield line
                    line = Text(INDENT)
            line.append_text(piece)
        if line.plain != indent:
            yield line

    def wrapped(self, piece: Text, indent: int) -> list[Text]:
        """Divide a piece at its spaces, where it is longer than a line."""
        room = max(self.width - indent, 1)
        return [piece] if piece.cell_len <= room else list(piece.wrap(self.console, room))


def _title(tally: Tally) -> list[Text]:
    assert tally.run is not None
    assert tally.part is not None
    title = Text(visible(tally.run.name), style="bold")
    title.append(f" and {count(tally.beside, 'other run')}" if tally.beside else "")
    title.append(" simulated" if tally.simulated else "", style="magenta")
    pieces = [title]
    if tally.step is not None:
        pieces.append(Text(f"step {tally.step.step} (of {tally.steps}, epoch {tally.step.epoch})"))
    if tally.inside:
        pieces.append(Text(f"evaluating {visible(tally.part.name)}"))
    if tally.part is not tally.run:
        pieces.append(Text(f"{tally.part.done}/{tally.part.planned} rollouts"))
    return pieces


def _bar_lines(tally: Tally, whole: Part, page: _Page, *, ascii_only: bool) -> Iterator[Text]:
    """Yield the bar of all rollouts of the command, beside what it says or above it."""
    pieces = [Text(f"{whole.done}/{whole.planned} rollouts, {int(100 * tally.share)} %")]
    before = whole.done - whole.played
    if before or whole.replayed:
        pieces.append(Text(_known(before, whole.replayed), style="cyan"))
    if whole.failed:
        pieces.append(Text(f"{whole.failed} failed", style="red"))
    pieces += [Text(text) for text in _time_left(tally, whole)]
    least, most = BARS
    # By the width alone: a bar that also makes room for its numbers would shrink as they grow.
    cells = min(page.width - BESIDE, most)
    drawn = cells if cells >= least else max(page.width - len(INDENT), 1)
    bar = Text(INDENT).append_text(_bar(tally, whole, drawn, ascii_only))
    if cells >= least:
        bar.append("  ").append_text(pieces.pop(0))
        while pieces and bar.cell_len + len(GAP) + pieces[0].cell_len <= page.width:
            bar.append(GAP).append_text(pieces.pop(0))
    yield bar
    yield from page.flowed(pieces)


def _known(before: int, replayed: int) -> str:
    """Say how many rollouts were there, and how many came out of stored answers."""
    parts = [f"{before} there already"] if before else []
    return ", ".join([*parts, f"{replayed} replayed"] if replayed else parts)


def _bar(tally: Tally, whole: Part, cells: int, ascii_only: bool) -> Text:
    """Render a bar of rollouts: known before, played now, failed, and to come."""
    new, known, failed, left = "#+x-" if ascii_only else "█▓▒░"
    done = int(tally.share * cells)
    scale = done / max(whole.done, 1)
    bad = min(-int(-whole.failed * scale // 1), done)
    old = min(int((whole.done - whole.played + whole.replayed) * scale), done - bad)
    return Text.assemble(
        (known * old, "cyan"),
        (new * (done - bad - old), "green"),
        (failed * bad, "red"),
        (left * (cells - done), "dim"),
    )


def _time_left(tally: Tally, whole: Part) -> list[str]:
    left = tally.left_s
    if whole.done >= whole.planned or (left is not None and left < 1):
        return []
    return ["estimating the time left" if left is None else f"about {coarse(left)} left"]


def coarse(seconds: float) -> str:
    """Format a time that is only estimated: `8 s`, `3 min`, `2 h 5 min`."""
    if seconds < 60:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def activity(tally: Tally) -> list[str]:
    """Return what is under way, and what waits for what."""
    now, parts = tally.now, list[str]()
    if playing := now.rollouts - now.scoring:
        parts.append(f"playing {playing}")
    if now.scoring:
        parts.append(f"scoring {now.scoring}")
    # Copies: the display has a thread of its own, and these change while it looks.
    if asked := [f"{n} {stage}" for stage, n in dict(now.teacher).items() if n > 0]:
        parts.append(f"teacher at work on step {now.teacher_step}: {', '.join(asked)}")
    parts += _waits(tally)
    if parts or tally.whole is None:
        return parts
    if tally.trains and tally.step_open and tally.part:
        played = tally.part.done >= tally.part.planned
        return ["changing weights" if played else "sampling answers"]
    if tally.step_open and tally.part and tally.part.done >= tally.part.planned:
        return [f"closing step {tally.step.step}"] if tally.step else []
    if tally.whole.done >= tally.whole.planned:
        return ["finishing"]
    return ["at work" if tally.part and tally.part.played else "starting"]


def _waits(tally: Tally) -> Iterator[str]:
    retries, now = tally.now.retries(), tally.now.clock()
    for host in dict.fromkeys(wait.host for _, wait in retries if wait.asked):
        until = max(at for at, wait in retries if wait.asked and wait.host == host)
        yield f"waiting {coarse(until - now)} as {host} asked"
    others = [wait for _, wait in retries if not wait.asked]
    if others:
        kinds = dict.fromkeys(
            "connection failed" if wait.status is None else f"HTTP {wait.status}" for wait in others
        )
        yield f"{len(others)} waiting to retry ({', '.join(kinds)})"


def _part(tally: Tally, part: Part) -> list[Text]:
    pieces = [Text(f"mean reward {reward(part.mean)}")]
    if tally.step is not None and not tally.inside and not tally.trains:
        groups = Text(
            f"{tally.informative} informative of {count(tally.groups, 'group')},"
            f" {tally.distilled} distilled"
        )
        if tally.undistilled:
            groups.append(f", {tally.undistilled} failed", style="yellow")
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


def _failures(tally: Tally, page: _Page) -> Iterator[Text]:
    """Yield a line for each of the most common kinds, and one for all others."""
    kinds = sorted(dict(tally.failures).items(), key=lambda kind: -kind[1])
    for kind, n in kinds[:KINDS]:
        line = f"{INDENT}{n} failed ({kind.reason}): "
        error = brief(redactor.text(kind.error), SHOWN)
        yield Text(line + _ends(error, page.width - len(line)), style="red")
    if more := sum(n for _, n in kinds[KINDS:]):
        others = count(len(kinds) - KINDS, "other kind")
        yield Text(f"{INDENT}and {more} more of {others}", style="red")


def _ends(text: str, room: int) -> str:
    """Return a text with its middle left out: an error begins with who and ends with why."""
    if cell_len(text) <= room or room < 3:
        return text
    start = (room - 1) // 3
    # By cells: some characters take two columns.
    end = len(text)
    while cell_len(text[end - 1 :]) <= room - 1 - start:
        end -= 1
    return f"{set_cell_size(text, start)}…{text[end:]}"
