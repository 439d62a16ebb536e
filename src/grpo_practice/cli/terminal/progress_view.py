"""The progress of a command: lines, and on a terminal a live block below them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from rich.console import Console

from grpo_practice.cli.terminal.consoles import err, print_line
from grpo_practice.cli.terminal.formatting import count, reward, tokens
from grpo_practice.cli.terminal.live_block import SHOWN, LiveBlock, coarse, is_live
from grpo_practice.cli.terminal.tally import Tally
from grpo_practice.events import (
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
    tally, live = Tally(), not json and is_live(console)
    lines, over = Lines(tally, console, tenths=not live), threading.Event()

    def tick() -> None:
        # While nothing arrives, no event comes.
        while not over.wait(1.0):
            lines.tick()

    ticking = threading.Thread(target=tick, daemon=True)
    with LiveBlock(tally, console) if live else nullcontext():
        ticking.start()
        try:
            yield lines.show
        finally:
            over.set()
            ticking.join()


class Lines:
    """Sink that keeps a tally, and prints one line for each thing worth keeping on the screen.

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
        self._works = True

    def show(self, event: Event) -> None:
        """Take the event into account, and print a line if it is worth one."""
        tally = self._tally
        tenth, kinds = tally.whole.tenth, len(tally.failures)
        tally.see(event)
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
        """Print a line if no reply has come for long, and the next after twice as long."""
        quiet_s, calls = self._tally.silence()
        if quiet_s < SILENT_S:
            self._silent_s = SILENT_S
        elif quiet_s >= self._silent_s:
            self._silent_s *= 2
            asked, longest = count(len(calls), "request"), coarse(max(calls))
            late = self._tally.timed_out.total()
            self._print(
                f"  no reply for {coarse(quiet_s)}: {asked} under way, the longest {longest}"
                + (f", {late} timed out and asked again" if late else "")
            )

    def _timed_out(self) -> None:
        """Print how many tries were given up at their deadline since this was last printed."""
        late = self._tally.timed_out
        for seconds, n in sorted(late.items()):
            were = "was" if n == 1 else "were"
            self._print(
                f"{count(n, 'request')} timed out after {seconds:g} s and {were} asked again,"
                " perhaps billed",
                "yellow",
            )
        late.clear()

    def _how_far(self) -> None:
        """Print how far the command is, unless it was printed just now."""
        tally, now = self._tally, self._tally.clock()
        if now - self._last_s < QUIET_S:
            return
        self._last_s = now
        whole, part, left_s, used = tally.whole, tally.part, tally.left_s, tally.usage
        facts = [f"{whole.done}/{whole.planned} rollouts"]
        facts += [f"{whole.failed} failed"] if whole.failed else []
        where = "" if part is whole else f" in {part.name}"
        facts.append(f"mean reward {reward(part.mean)}{where}")
        # Weights that are trained here are asked without a call.
        if tally.new or not tally.trains:
            facts.append(f"{tokens(used.tokens_in)} tokens in, {tokens(used.tokens_out)} out")
        facts += [f"about {coarse(left_s)} left"] if left_s and left_s >= 1 else []
        self._print(f"  {', '.join(facts)}")

    def _print(self, line: str, style: str | None = None) -> None:
        try:
            if self._works:
                print_line(self._console, line, style)
        except Exception:  # noqa: BLE001 - whatever is wrong with a display, the run goes on
            self._works = False


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
    steps = tally.run.steps if tally.run else 0
    left_out = f" ({event.spared} left out)" if event.spared else ""
    known = event.experiences
    learnt = "" if known is None else f", {count(known, 'experience')} so far"
    return (
        f"step {event.step} (of {steps}, epoch {event.epoch}):"
        f" {count(event.groups, 'group')}, {count(event.rollouts, 'rollout')}{left_out}"
        f"{learnt}"
    )


def _closed_line(event: StepFinished | WeightsUpdated) -> tuple[str, str]:
    """Return the line of a closed step, and its style."""
    closed = (
        f"step {event.step} closed: mean reward {reward(event.mean_reward)},"
        f" {count(event.informative, 'informative group')}"
    )
    if isinstance(event, WeightsUpdated):
        kl = "" if event.kl is None else f", KL {event.kl:.3g}"
        return f"{closed}, loss {event.loss:.3g}{kl}, {event.seconds:.1f} s", "green"
    if event.failed is not None:
        reason = brief(event.failed, SHOWN)
        line = f"step {event.step}: the merge failed, the library is unchanged: {reason}"
        return line, "red"
    return f"{closed}, {count(event.experiences, 'experience')}", "green"
