"""The progress of a run: a live block on a terminal, plain lines elsewhere."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from grpo_practice.cli.terminal.consoles import err, in_one
from grpo_practice.cli.terminal.formatting import count, reward, tokens
from grpo_practice.cli.terminal.live_block import LiveBlock, is_live
from grpo_practice.cli.terminal.progress_block import SHOWN, Block, coarse
from grpo_practice.events import (
    Aborted,
    CallFinished,
    CallStarted,
    Emit,
    Event,
    GroupDistilled,
    GroupFinished,
    GroupStored,
    Notice,
    RetryWaits,
    RolloutFinished,
    RolloutStarted,
    RunFinished,
    RunStarted,
    ScoringFinished,
    ScoringStarted,
    StepFinished,
    StepStarted,
    ToolFinished,
    ToolStarted,
    WeightsUpdated,
)
from grpo_practice.progress import Part, Tally
from grpo_practice.redact import redactor
from grpo_practice.text import brief, visible

NAMED = 3
"""Kinds of failures that get a line when the first of the kind comes."""
SILENT_S = 30.0
"""Seconds without a reply after which a line says how many requests are under way."""
QUIET_S = 2.0
"""Least seconds between two lines that say how far it is."""


@contextmanager
def progress(*, json: bool, console: Console = err) -> Iterator[Emit]:
    """Yield a sink that shows progress on stderr: live on a terminal, else line by line.

    With `json` a program is reading, so it is lines. A display that fails is switched off; it
    never breaks the run.
    """
    tally = Tally()
    if json or not is_live(console):
        lines = Lines(tally, console)
        with _ticking(lines):
            yield _fenced(lines.show)
        return
    with LiveBlock(Block(tally), console) as live:
        lines = Lines(tally, console, tenths=False)

        def show(event: Event) -> None:
            lines.show(event)
            # Until it is drawn again the block is of before: it would contradict the line above.
            if isinstance(
                event, RunStarted | RunFinished | StepStarted | StepFinished | WeightsUpdated
            ):
                live.refresh()

        with _ticking(lines):
            yield _fenced(show)


@contextmanager
def _ticking(lines: "Lines") -> Iterator[None]:
    """Let the lines look at the clock once a second: while nothing arrives, no event comes."""
    over = threading.Event()

    def look() -> None:
        with suppress(Exception):  # whatever is wrong with a display, the run goes on
            while not over.wait(1.0):
                lines.tick()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _fenced(sink: Emit) -> Emit:
    """Return a sink that passes events on until the given one fails for the first time."""
    works = True

    def emit(event: Event) -> None:
        nonlocal works
        try:
            if works:
                sink(event)
        except Exception:  # noqa: BLE001 - whatever is wrong with a display, the run goes on
            works = False

    return emit


class Lines:
    """Sink that prints one line for each thing worth keeping on the screen.

    Args:
        tally: Brought up to date by every event.
        console: Where to print.
        tenths: Also print how far the command is, up to ten times.
    """

    def __init__(self, tally: Tally, console: Console, *, tenths: bool = True) -> None:
        self._tally, self._console, self._tenths = tally, console, tenths
        self._last_s = -QUIET_S
        """Time of the last line on how far it is."""
        self._silent_s = SILENT_S
        """Seconds without a reply after which the next line says so."""

    def show(self, event: Event) -> None:
        """Take the event into account, and print a line where it is worth one."""
        if isinstance(event, RolloutFinished):
            self._rollout(event)
            return
        self._tally.see(event)
        if isinstance(event, RunFinished):
            self._timed_out()
        if (line := _line(event, self._tally)) is not None:
            self._print(*line)

    def tick(self) -> None:
        """Print a line if no reply has come for long, and the next after twice as long."""
        quiet_s, calls = self._tally.now.silence()
        if quiet_s < SILENT_S:
            self._silent_s = SILENT_S
        elif quiet_s >= self._silent_s:
            self._silent_s *= 2
            asked, longest = count(len(calls), "request"), coarse(max(calls))
            late = self._tally.now.timed_out.total()
            self._print(
                f"  no reply for {coarse(quiet_s)}: {asked} under way, the longest {longest}"
                + (f", {late} timed out and asked again" if late else "")
            )

    def _timed_out(self) -> None:
        """Print how many tries were given up at their deadline since this was last printed."""
        late = self._tally.now.timed_out
        for seconds, n in sorted(late.items()):
            were = "was" if n == 1 else "were"
            self._print(
                f"{count(n, 'request')} timed out after {seconds:g} s and {were} asked again,"
                " perhaps billed",
                "yellow",
            )
        late.clear()

    def _rollout(self, event: RolloutFinished) -> None:
        tally = self._tally
        tenth = tally.whole.tenth if tally.whole else 0
        kinds = len(tally.failures)
        tally.see(event)
        if kinds < len(tally.failures) <= NAMED:
            error = event.error or event.outcome
            self._print(f"  a rollout failed: {brief(error, SHOWN)}", "red")
        if tally.whole is None or tally.part is None:
            return
        now = tally.clock()
        due = tally.whole.tenth > tenth and not event.stored and now - self._last_s >= QUIET_S
        if self._tenths and due:
            self._last_s = now
            self._print(f"  {_whole_line(tally.whole, tally.part, tally)}")

    def _print(self, line: str, style: str | None = None) -> None:
        # Redacted before it is divided: half a secret is not recognised any more.
        text = Text(redactor.text(line).lstrip(" "))
        indent = len(line) - len(line.lstrip(" "))
        if in_one(self._console, line):
            whole = Text(" " * indent).append_text(text)
            self._console.print(whole, style=style, soft_wrap=True)
        else:
            padded = Padding(text, (0, 0, 0, indent), expand=False)
            self._console.print(padded, style=style)


def _line(event: Event, tally: Tally) -> tuple[str, str | None] | None:
    """Return the line that an event is worth, and its style; None where it is worth none."""
    match event:
        case RunStarted():
            return _run_line(event, inside=tally.inside), None
        case StepStarted():
            return _step_line(event, tally), None
        case GroupDistilled(failed=str(reason)):
            return f"  group {event.slot} taught nothing: {brief(reason, SHOWN)}", "yellow"
        case StepFinished():
            return _closed_line(event)
        case WeightsUpdated():
            return _trained_line(event), "green"
        case Notice():
            return f"note: {visible(event.text)}", "yellow"
        case (
            GroupStored()
            | GroupDistilled()
            | GroupFinished()
            | CallStarted()
            | CallFinished()
            | ToolStarted()
            | ToolFinished()
            | RolloutStarted()
            | RolloutFinished()
            | ScoringStarted()
            | ScoringFinished()
            | RetryWaits()
            | Aborted()
            | RunFinished()
        ):
            return None


def _run_line(event: RunStarted, *, inside: bool) -> str:
    left = event.rollouts - event.done
    parts = [count(event.rollouts, "rollout")]
    if event.done:
        parts.append(f"{event.done} of them there already" if left else "all there already")
    if not inside:
        parts.insert(0, count(event.steps, "step"))
    simulated = " (simulated)" if event.simulated else ""
    return f"{'  ' if inside else ''}{event.run}{simulated}: {', '.join(parts)}"


def _step_line(event: StepStarted, tally: Tally) -> str:
    left_out = f" ({event.spared} left out)" if event.spared else ""
    known = event.experiences
    learnt = "" if known is None else f", {count(known, 'experience')} so far"
    return (
        f"step {event.step} (of {tally.steps}, epoch {event.epoch}):"
        f" {count(event.groups, 'group')}, {count(event.rollouts, 'rollout')}{left_out}"
        f"{learnt}"
    )


def _whole_line(whole: Part, part: Part, tally: Tally) -> str:
    failed = f", {whole.failed} failed" if whole.failed else ""
    where = "" if part is tally.run else f" in {part.name}"
    left, used = tally.left_s, tally.usage
    # Weights that are trained here are asked without a call.
    paid = (
        ""
        if tally.trains and not tally.new
        else (f", {tokens(used.tokens_in)} tokens in, {tokens(used.tokens_out)} out")
    )
    return (
        f"{whole.done}/{whole.planned} rollouts{failed}, mean reward {reward(part.mean)}{where}"
        + paid
        + (f", about {coarse(left)} left" if left and left >= 1 else "")
    )


def _closed_line(event: StepFinished) -> tuple[str, str | None]:
    if event.failed is not None:
        reason = brief(event.failed, SHOWN)
        return f"step {event.step}: the merge failed, the library is unchanged: {reason}", "red"
    return (
        f"step {event.step} closed: mean reward {reward(event.mean_reward)},"
        f" {count(event.informative, 'informative group')},"
        f" {count(event.experiences, 'experience')}",
        "green",
    )


def _trained_line(event: WeightsUpdated) -> str:
    kl = "" if event.kl is None else f", KL {event.kl:.3g}"
    return (
        f"step {event.step} closed: mean reward {reward(event.mean_reward)},"
        f" {count(event.informative, 'informative group')}, loss {event.loss:.3g}{kl},"
        f" {event.seconds:.1f} s"
    )
