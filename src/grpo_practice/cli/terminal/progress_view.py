"""The progress of a run: a live block on a terminal, plain lines elsewhere."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from grpo_practice.cli.terminal.consoles import err, in_one
from grpo_practice.cli.terminal.formatting import count, duration, reward, tokens
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
    RolloutFinished,
    RolloutStarted,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
    ToolFinished,
    ToolStarted,
)
from grpo_practice.progress import Part, Tally
from grpo_practice.text import brief, visible

BAR = 40
SHOWN = 160
"""Characters of a foreign sentence in one line."""
QUIET_S = 2.0
"""Least seconds between two lines that say how far it is."""


@contextmanager
def progress(*, json: bool, console: Console = err) -> Iterator[Emit]:
    """Yield a sink that shows progress on stderr: live on a terminal, else line by line.

    With `json` a program is reading, so it is lines. A display that fails is switched off; it
    never breaks the run.
    """
    tally = Tally()
    if json or not console.is_terminal:
        yield _fenced(Lines(tally, console).show)
        return
    with Live(
        get_renderable=lambda: block(tally),
        console=console,
        refresh_per_second=4,
        transient=True,
        redirect_stdout=False,
    ) as live:
        lines = Lines(tally, console, tenths=False)

        def show(event: Event) -> None:
            lines.show(event)
            # Until it is drawn again the block is of before: it would contradict the line above.
            if isinstance(event, (RunStarted, RunFinished, StepStarted, StepFinished)):
                live.refresh()

        yield _fenced(show)


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
        tenths: Also print how far it is, up to ten times a step or evaluation.
    """

    def __init__(self, tally: Tally, console: Console, *, tenths: bool = True) -> None:
        self._tally, self._console, self._tenths = tally, console, tenths
        self._last_s = -QUIET_S
        """Time of the last line on how far it is."""

    def show(self, event: Event) -> None:
        """Take the event into account, and print a line where it is worth one."""
        if isinstance(event, RolloutFinished):
            self._rollout(event)
            return
        tally = self._tally
        tally.see(event)
        if (line := _line(event, tally)) is not None:
            self._print(*line)
        early = tally.part if isinstance(event, StepStarted) else None
        if early and early.failed:  # of the groups that began before the step
            self._print_failure(early)

    def _rollout(self, event: RolloutFinished) -> None:
        part = self._tally.part
        tenth, failed = (part.tenth, part.failed) if part else (0, 0)
        self._tally.see(event)
        if part is None:
            return
        if part.failed and not failed:
            self._print_failure(part)
        now = self._tally.clock()
        due = part.tenth > tenth and not event.stored and now - self._last_s >= QUIET_S
        if self._tenths and due:
            self._last_s = now
            self._print(f"  {_part_line(part, self._tally)}")

    def _print_failure(self, part: Part) -> None:
        self._print(f"  a rollout failed: {brief(part.error or '', SHOWN)}", "red")

    def _print(self, line: str, style: str | None = None) -> None:
        whole = in_one(self._console, line)
        self._console.print(
            line, style=style, soft_wrap=whole, markup=False, highlight=False, emoji=False
        )


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
    return (
        f"step {event.step} (of {tally.steps}, epoch {event.epoch}):"
        f" {count(event.groups, 'group')}, {count(event.rollouts, 'rollout')}{left_out},"
        f" {count(event.experiences, 'experience')} so far"
    )


def _part_line(part: Part, tally: Tally) -> str:
    failed = f", {part.failed} failed" if part.failed else ""
    left = tally.left_s
    return (
        f"{part.done}/{part.planned} rollouts{failed}, mean reward {reward(part.mean)},"
        f" {tokens(tally.usage.tokens_in)} tokens in, {tokens(tally.usage.tokens_out)} out"
        + (f", about {duration(left)} left" if left and left >= 1 else "")
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


def block(tally: Tally) -> RenderableType:
    """Render the live block: the step, a bar, rewards, groups, tokens, time left."""
    run, part = tally.run, tally.part
    if run is None or part is None:
        return Text("")
    title = Text(run.name, style="bold")
    title.append(f" and {count(tally.beside, 'other run')}" if tally.beside else "")
    title.append(" simulated" if tally.simulated else "", style="magenta")
    if tally.step is not None:
        title.append(f"  step {tally.step.step} (of {tally.steps}, epoch {tally.step.epoch})")
    if tally.inside:
        title.append(f"  evaluating {part.name}")
    rows = [title, _bar(part), Text(f"  mean reward {reward(part.mean)}")]
    if tally.step is not None and not tally.inside:
        rows[-1].append(
            f"   {tally.informative} informative of {count(tally.groups, 'group')},"
            f" {tally.distilled} distilled"
        )
        if tally.undistilled:
            rows[-1].append(f", {tally.undistilled} failed", style="yellow")
    usage, left = tally.usage, tally.left_s
    rows.append(
        Text(
            f"  tokens {tokens(usage.tokens_in)} in, {tokens(usage.tokens_out)} out"
            f"   requests {tally.new} new, {tally.replayed} replayed"
            f"{f'   tool calls {tally.tools}' if tally.tools else ''}"
            + (f"   about {duration(left)} left" if left and left >= 1 else "")
        )
    )
    return Group(*rows)


def _bar(part: Part) -> Text:
    """Render a bar of rollouts that ended well, that failed, and that are to come."""
    share = BAR / max(part.planned, 1)
    done, failed = int(part.done * share), -int(-part.failed * share // 1)
    failed = min(failed, done)
    bar = Text("  ")
    bar.append("█" * (done - failed), style="green")
    bar.append("▒" * failed, style="red")
    bar.append("░" * (BAR - done), style="dim")
    bar.append(f"  {part.done}/{part.planned} rollouts")
    if part.failed:
        bar.append(f"  {part.failed} failed", style="red")
    return bar
