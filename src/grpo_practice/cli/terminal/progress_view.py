"""Progress of a command: lines, and on a terminal a live block below them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console

from grpo_practice.cli.terminal.consoles import err, print_line
from grpo_practice.cli.terminal.formatting import count, reward, tokens
from grpo_practice.cli.terminal.live_block import SHOWN, LiveBlock, coarse, is_live, time_left
from grpo_practice.cli.terminal.tally import Tally
from grpo_practice.core.events import (
    Emit,
    Event,
    GroupDistilled,
    Notice,
    RolloutFinished,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    WeightsUpdated,
)
from grpo_practice.core.text import brief, visible

NAMED = 3
"""Number of failure kinds whose first occurrence is printed."""
SILENT_S = 30.0
"""Seconds without a reply after which the number of pending requests is printed."""
QUIET_S = 2.0
"""Minimum number of seconds between two progress lines."""


@contextmanager
def progress(*, json: bool, console: Console = err) -> Iterator[Emit]:
    """Yield a sink that shows progress on stderr: live on a terminal, otherwise as lines.

    With `json`, a program reads the output, so progress is printed as lines. If the display fails,
    it is switched off; it never stops the run.
    """
    tally, live = Tally(), not json and is_live(console)
    lines, over = Lines(tally, console, tenths=not live), threading.Event()

    def tick() -> None:
        # A thread, because no event arrives during a silence.
        while not over.wait(1.0):
            lines.tick()

    ticking = threading.Thread(target=tick, daemon=True)
    with LiveBlock(tally, console) if live else nullcontext():
        ticking.start()
        try:
            yield lines.show
        finally:
            over.set()
            # So that no line is printed after the command's result.
            ticking.join()


class Lines:
    """Event sink that keeps a tally and prints lines that should stay on the screen.

    Args:
        tally: Updated by every event.
        console: Console to print to.
        tenths: Whether to also print the progress of the command, up to ten times.
    """

    def __init__(self, tally: Tally, console: Console, *, tenths: bool = True) -> None:
        self._tally, self._console, self._tenths = tally, console, tenths
        self._last_s = -QUIET_S
        """Time of the last progress line."""
        self._silent_s = SILENT_S
        """Seconds without a reply after which the next line is printed."""
        self._works = True

    def show(self, event: Event) -> None:
        """Process the event, and print a line if the event deserves one."""
        tally = self._tally
        tenth, kinds = tally.whole.tenth, len(tally.failures)
        tally.record(event)
        match event:
            case RolloutFinished():
                if kinds < len(tally.failures) <= NAMED:
                    error = event.error or event.outcome
                    self._print(f"  a rollout failed: {brief(error, SHOWN)}", "red")
                if self._tenths and tally.whole.tenth > tenth and not event.stored:
                    self._how_far()
            case RunStarted():
                self._print(_run_line(event, inside=tally.inside))
            case RunFinished():
                self._timed_out()
            case StepStarted():
                self._print(_step_line(event, tally))
            case StepFinished() | WeightsUpdated():
                self._print(*_closed_line(event))
            case GroupDistilled(failed=str(reason)):
                line = f"  group {event.slot} taught nothing: {brief(reason, SHOWN)}"
                self._print(line, "yellow")
            case Notice():
                self._print(f"note: {visible(event.text)}", "yellow")
            case _:
                pass

    def tick(self) -> None:
        """Print a line after a long time without replies; wait twice as long for the next."""
        quiet_s, calls = self._tally.silence()
        if quiet_s < SILENT_S:
            self._silent_s = SILENT_S
        elif quiet_s >= self._silent_s:
            self._silent_s *= 2
            asked, longest = count(len(calls), "request"), coarse(max(calls))
            late = self._tally.timed_out.total()
            self._print(
                f"  no reply for {coarse(quiet_s)}: {asked} in flight, the longest for {longest}"
                + (f", {late} timed out and retried" if late else "")
            )

    def _timed_out(self) -> None:
        """Print the number of requests that have timed out since the last such line."""
        late = self._tally.timed_out
        for seconds, n in sorted(late.items()):
            were = "was" if n == 1 else "were"
            self._print(
                f"{count(n, 'request')} timed out after {seconds:g} s and {were} retried,"
                " possibly billed twice",
                "yellow",
            )
        late.clear()

    def _how_far(self) -> None:
        """Print the progress of the command, unless it was printed moments ago."""
        tally, now = self._tally, self._tally.clock()
        if now - self._last_s < QUIET_S:
            return
        self._last_s = now
        whole, part, used = tally.whole, tally.part, tally.usage
        facts = [f"{whole.done}/{whole.planned} rollouts"]
        facts += [f"{whole.failed} failed"] if whole.failed else []
        where = "" if part is whole else f" in {part.name}"
        facts.append(f"mean reward {reward(part.mean)}{where}")
        # Local training makes no model calls, so it has no usage.
        if tally.new or not tally.trains:
            facts.append(f"{tokens(used.tokens_in)} tokens in, {tokens(used.tokens_out)} out")
        facts += [left] if (left := time_left(tally)) else []
        self._print(f"  {', '.join(facts)}")

    def _print(self, line: str, style: str | None = None) -> None:
        try:
            if self._works:
                print_line(self._console, line, style)
        except Exception:  # noqa: BLE001 - a broken display must not stop the run
            self._works = False


def _run_line(event: RunStarted, *, inside: bool) -> str:
    left = event.rollouts - event.done
    parts = [count(event.rollouts, "rollout")]
    if event.done:
        parts.append(f"{event.done} of them already done" if left else "all already done")
    if not inside:
        parts.insert(0, count(event.steps, "step"))
    simulated = " (simulated)" if event.simulated else ""
    return f"{'  ' if inside else ''}{event.run}{simulated}: {', '.join(parts)}"


def _step_line(event: StepStarted, tally: Tally) -> str:
    steps = tally.run.steps if tally.run else 0
    known = event.experiences
    learnt = "" if known is None else f", {count(known, 'experience')} so far"
    return (
        f"step {event.step} (of {steps}, epoch {event.epoch}):"
        f" {count(event.groups, 'group')}, {count(event.rollouts, 'rollout')}{learnt}"
    )


def _closed_line(event: StepFinished | WeightsUpdated) -> tuple[str, str]:
    """Return the line for a closed step, and its style."""
    closed = (
        f"step {event.step} closed: mean reward {reward(event.mean_reward)},"
        f" {count(event.informative, 'informative group')}"
    )
    if isinstance(event, WeightsUpdated):
        kl = "" if event.kl is None else f", KL {event.kl:.3g}"
        return f"{closed}, loss {event.loss:.3g}{kl}, {event.seconds:.1f} s", "green"
    if event.failed is not None:
        reason = brief(event.failed, SHOWN)
        line = f"step {event.step}: the merge failed, and the library is unchanged: {reason}"
        return line, "red"
    return f"{closed}, {count(event.experiences, 'experience')}", "green"
