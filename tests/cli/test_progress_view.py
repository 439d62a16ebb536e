"""What a person sees of the same events, on a terminal and elsewhere."""

import io
import threading
from collections.abc import Iterable

import pytest
from rich.console import Console
from typing_extensions import override

from grpo_practice.cli.terminal import progress_view
from grpo_practice.cli.terminal.live_block import LiveBlock
from grpo_practice.cli.terminal.progress_view import Lines, progress
from grpo_practice.cli.terminal.tally import LONGEST, MOST_KINDS, Tally
from grpo_practice.core.calls import Address, Usage
from grpo_practice.core.events import (
    CallFinished,
    CallStarted,
    Event,
    GroupDistilled,
    GroupFinished,
    Notice,
    RetryWaits,
    RolloutFinished,
    RolloutStarted,
    RunFinished,
    RunStarted,
    StepFinished,
    StepStarted,
)
from grpo_practice.core.redact import redactor
from tests.processes import HANG_S

HOSTILE = "\x1b]0;owned\x07 [red]x[/red] [/INST]\u202e"


ASKED = Address(1, 0, 0, 0, "play")


def rollout(
    slot: int, reward: float | None = 1.0, *, stored: bool = False, step: int = 0
) -> RolloutFinished:
    if reward is None:
        error = f"HTTP 503 {HOSTILE}"
        return RolloutFinished("math", step, slot, 0, "error", None, error, stored)
    return RolloutFinished("math", step, slot, 0, "ok", reward, None, stored)


def practised() -> list[Event]:
    """A step of two groups, with an evaluation after it."""
    return [
        RunStarted("math", 1, steps=2, rollouts=8, done=0, simulated=True),
        StepStarted(0, 0, groups=2, rollouts=4, experiences=0),
        rollout(0),
        CallFinished(ASKED, "m", Usage(100, 0, 20), 1.0, replayed=False),
        rollout(0, 0.0),
        CallFinished(ASKED, "m", Usage(900, 0, 90), 1.0, replayed=True),
        GroupFinished(0, 0, informative=True),
        GroupDistilled(0, 0, lessons=1, operations=0, failed=f"no JSON {HOSTILE}"),
        rollout(1, None),
        rollout(1),
        GroupFinished(0, 1, informative=False),
        StepFinished(0, 2 / 3, informative=1, experiences=3),
        RunStarted("math/eval/L1", 2, steps=1, rollouts=2, done=0, simulated=True),
        RolloutFinished("math/eval/L1", 0, 0, 0, "ok", 1.0),
        Notice(f"the endpoint said {HOSTILE}"),
    ]


class Clock:
    """Ten seconds pass between two looks."""

    now = 0.0

    def __call__(self) -> float:
        self.now += 10.0
        return self.now


def shown_as_lines(events: Iterable[Event], *, tenths: bool = True) -> list[str]:
    console = Console(file=io.StringIO(), width=60)
    lines = Lines(Tally(clock=Clock()), console, tenths=tenths)
    for event in events:
        lines.show(event)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_plain_lines_say_what_happens_and_hide_nothing() -> None:
    said = r"\x1b]0;owned\x07 [red]x[/red] [/INST]\u202e"
    assert shown_as_lines(practised(), tenths=False) == [
        "math (simulated): 2 steps, 8 rollouts",
        "step 0 (of 2, epoch 0): 2 groups, 4 rollouts, 0 experiences so far",
        f"  group 0 taught nothing: no JSON {said}",
        f"  a rollout failed: HTTP 503 {said}",
        "step 0 closed: mean reward 0.667, 1 informative group, 3 experiences",
        "  math/eval/L1 (simulated): 2 rollouts",
        f"note: the endpoint said {said}",
    ]


def test_plain_lines_say_how_far_it_is_ten_times_at_most() -> None:
    events: list[Event] = [RunStarted("e", 1, steps=1, rollouts=100, done=0)]
    events += [rollout(i, float(i % 2)) for i in range(100)]
    lines = shown_as_lines(events)[1:]
    assert len(lines) == 10
    assert lines[0].startswith("  10/100 rollouts, mean reward 0.500,")
    assert lines[0].endswith("left")
    assert lines[-1].startswith("  100/100 rollouts")


def test_a_fast_run_is_not_reported_every_tenth() -> None:
    console = Console(file=io.StringIO(), width=60)
    lines = Lines(Tally(clock=lambda: 1.0), console)
    lines.show(RunStarted("e", 1, 1, 100, 0))
    for i in range(100):
        lines.show(rollout(i))
    assert isinstance(console.file, io.StringIO)
    assert len(console.file.getvalue().splitlines()) == 2


def test_stored_rollouts_are_counted_but_not_reported_one_by_one() -> None:
    events: list[Event] = [RunStarted("e", 1, steps=1, rollouts=10, done=5)]
    events += [rollout(i, stored=True) for i in range(4)]
    assert shown_as_lines(events) == ["e: 1 step, 10 rollouts, 5 of them already done"]
    assert shown_as_lines([*events, rollout(9)])[1].startswith("  6/10 rollouts, mean reward 1.000")


def test_a_failed_merge_is_not_shown_as_a_closed_step() -> None:
    (line,) = shown_as_lines([StepFinished(3, 0.5, 1, 2, failed=f"no JSON {HOSTILE}")])
    assert line.startswith("step 3: the merge failed, and the library is unchanged: no JSON \\x1b")


def drawn(tally: Tally) -> str:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    console.print(LiveBlock(tally, console))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_block_shows_step_rewards_groups_failures_and_tokens() -> None:
    tally = Tally(clock=Clock())
    for event in practised()[:11]:
        tally.record(event)
    text = drawn(tally)
    assert "math simulated  step 0 (of 2, epoch 0)" in text
    assert "step 0 (of 2, epoch 0)  4/4 rollouts" in text
    assert "█" * 18 + "▒" * 7 + "░" * 26 + "  4/8 rollouts, 50 %   1 failed" in text
    assert "mean reward 0.667   1 informative of 2 groups, 0 distilled, 1 failed" in text
    assert "tokens 100 in, 20 out   requests 1 new, 1 replayed" in text
    assert "left" in text


def test_tokens_are_none_before_the_first_answer_and_unknown_after_one_without_a_count() -> None:
    tally = Tally(clock=Clock())
    tally.record(RunStarted("e", 1, steps=1, rollouts=2, done=0, simulated=False))
    tally.record(CallFinished(ASKED, "m", Usage(900, 0, 90), 1.0, replayed=True))
    assert "tokens 0 in, 0 out   requests 0 new, 1 replayed" in drawn(tally)
    tally.record(CallFinished(ASKED, "m", Usage(), 1.0, replayed=False))
    assert "tokens unknown in, unknown out   requests 1 new" in drawn(tally)
    tally.record(CallFinished(ASKED, "m", Usage(7, 0, 2), 1.0, replayed=False))
    assert "tokens 7 in, 2 out   requests 2 new" in drawn(tally)


def test_an_evaluation_on_the_way_is_counted_apart() -> None:
    tally = Tally(clock=Clock())
    for event in practised():
        tally.record(event)
    assert tally.run == practised()[0]
    assert (tally.whole.done, tally.whole.planned) == (5, 10)
    text = drawn(tally)
    assert "evaluating math/eval/L1" in text
    assert "1/2 rollouts" in text
    tally.record(StepStarted(1, 0, groups=2, rollouts=4, experiences=3))
    assert "0/4 rollouts" in drawn(tally)
    assert "evaluating" not in drawn(tally)


def test_the_time_left_follows_from_what_was_played_not_from_what_was_stored() -> None:
    tally = Tally(clock=lambda: 0.0)
    tally.record(RunStarted("e", 1, 1, 100, 50))
    for i in range(30):
        tally.record(rollout(i, stored=True))
    assert tally.left_s is None
    tally.clock = lambda: 8.0
    for i in range(4):
        tally.record(rollout(i))
    assert tally.left_s == pytest.approx(8.0 / 4 * 46)


def test_the_first_wave_says_nothing_of_the_time_left() -> None:
    tally = Tally(clock=Clock())
    tally.record(RunStarted("e", 1, 1, rollouts=16, done=0))
    for slot in range(4):
        tally.record(RolloutStarted("e", 0, slot, 0))
    for slot in range(4):
        assert tally.left_s is None
        tally.record(rollout(slot))
    assert tally.left_s is not None


def test_in_the_first_wave_the_time_left_is_that_of_a_server_that_plays_one_at_a_time() -> None:
    tally = Tally(clock=lambda: 0.0)
    tally.record(RunStarted("e", 1, 1, rollouts=16, done=0))
    for slot in range(4):
        tally.record(RolloutStarted("e", 0, slot, 0))
    assert "estimating the time left" in drawn(tally)
    tally.clock = lambda: 60.0
    tally.record(rollout(0))
    assert "at most about 15 min left" in drawn(tally)
    for slot in range(1, 4):
        tally.record(rollout(slot))
    assert "about 3 min left" in drawn(tally)
    assert "at most" not in drawn(tally)


def test_evaluations_on_the_way_are_planned_until_more_begin_than_were_announced() -> None:
    tally, planned = Tally(), list[int]()
    tally.record(RunStarted("e", 1, 1, rollouts=8, done=0, evaluations=6))
    for n in range(3):
        tally.record(RunStarted(f"e/eval/L{n}", 2 + n, 1, rollouts=3, done=0))
        planned.append(tally.whole.planned)
    assert planned == [14, 14, 17]


def test_what_is_stored_of_a_step_is_counted_once_in_the_run_and_in_the_step() -> None:
    tally = Tally(clock=Clock())
    tally.record(RunStarted("math", 1, steps=2, rollouts=8, done=3))
    tally.record(StepStarted(0, 0, groups=2, rollouts=4, experiences=0, done=3))
    for event in (rollout(0, stored=True), rollout(0, None, stored=True), rollout(1, stored=True)):
        tally.record(event)
    assert (tally.whole.done, tally.part.done, tally.part.failed) == (3, 3, 1)
    tally.record(rollout(1))
    assert (tally.whole.done, tally.part.done, tally.part.mean) == (4, 4, 1.0)


@pytest.mark.parametrize(("terminal", "json"), [(True, False), (True, True), (False, False)])
def test_the_display_fits_who_is_looking(terminal: bool, json: bool) -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=terminal)
    with progress(json=json, console=console) as emit:
        for event in practised():
            emit(event)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "step 0 closed" in text
    assert "\x1b]0;owned" not in text
    assert ("█" in text) == (terminal and not json)


def test_a_display_that_fails_does_not_stop_the_run() -> None:
    class Full(io.StringIO):
        writes = 0

        @override
        def write(self, text: str) -> int:
            Full.writes += 1
            raise OSError("no space left on the device")

    with progress(json=False, console=Console(file=Full())) as emit:
        for event in practised():
            emit(event)
    assert Full.writes == 1


def test_the_block_says_what_the_line_above_it_says() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    assert isinstance(console.file, io.StringIO)
    with progress(json=False, console=console) as emit:
        for event in practised():
            before = len(console.file.getvalue())
            emit(event)
            if isinstance(event, StepStarted):
                line, _, block = console.file.getvalue()[before:].partition("(of 2, epoch")
                assert f"step {event.step} " in line
                assert f"  step {event.step} (of 2, epoch {event.epoch})" in block
                assert "rollouts" in block.rpartition("epoch")[2]


def test_a_million_different_errors_take_no_more_room_than_a_hundred() -> None:
    tally = Tally()
    tally.record(RunStarted("math", 1, steps=1, rollouts=1000, done=0))
    for i in range(1000):
        text = "".join(chr(ord("a") + int(digit)) for digit in str(i)) + "!" * 2000
        tally.record(RolloutFinished("math", 0, i, 0, "error", None, text, reason="agent"))
    kinds = tally.failures.values()
    assert len(kinds) == MOST_KINDS + 1
    assert sum(kind.count for kind in kinds) == 1000
    assert max(len(kind.error) for kind in kinds) <= LONGEST
    assert "900 failed (others): too many different errors" in drawn(tally)


@pytest.mark.parametrize("width", [30, 120])
def test_secrets_are_replaced_before_a_line_is_divided(width: int) -> None:
    secret = "sk-live-0123456789abcdef"
    redactor.know([secret])
    events: list[Event] = [
        RunStarted("math", 1, steps=1, rollouts=2, done=0),
        RolloutFinished("math", 0, 0, 0, "error", None, f"no {secret} here", reason="agent"),
        Notice(f"{secret} is not taken"),
    ]
    tally = Tally()
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=True, color_system=None)
    lines = Lines(tally, console)
    for event in events:
        lines.show(event)
        console.print(LiveBlock(tally, console))
    assert secret[:12] not in file.getvalue()
    assert "1 failed (agent)" in file.getvalue()


class Standing:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_long_silence_is_told_with_the_requests_under_way_again_after_twice_as_long() -> None:
    clock, console = Standing(), Console(file=io.StringIO(), width=100)
    lines = Lines(Tally(clock=clock), console)
    other = Address(1, 0, 1, 0, "compare")

    def told() -> list[str]:
        assert isinstance(console.file, io.StringIO)
        return console.file.getvalue().splitlines()

    def until(second: int) -> list[str]:
        before = len(told())
        while clock.now < second:
            clock.now += 1
            lines.tick()
        return told()[before:]

    assert until(100) == [], "nothing is under way"
    lines.show(CallStarted(ASKED, "m"))
    lines.show(CallStarted(other, "m"))
    lines.show(CallStarted(other, "m"))
    assert until(129) == []
    assert until(159) == ["  no reply for 30 s: 3 requests in flight, the longest for 30 s"]
    assert until(219) == ["  no reply for 1 min: 3 requests in flight, the longest for 1 min"]
    lines.show(CallFinished(other, "m", Usage(), 1.0, replayed=False))
    lines.show(RetryWaits("h", None, 1.0, asked=False, timed_out_s=600.0))
    assert until(248) == []
    said = (
        "  no reply for 30 s: 2 requests in flight, the longest for 2 min, 1 timed out and retried"
    )
    assert until(250) == [said]
    lines.show(CallFinished(other, "m", Usage(), 1.0, replayed=False))
    lines.show(CallFinished(ASKED, "m", Usage(), 1.0, replayed=False))
    assert until(900) == []


def test_tries_that_timed_out_are_counted_at_the_end_of_the_run_once() -> None:
    late = [RetryWaits("h", None, 1.0, asked=False, timed_out_s=s) for s in (600.0, 30.0, 600.0)]
    wait = RetryWaits("h", 503, 1.0, asked=False)
    lines = shown_as_lines([practised()[0], *late, wait, RunFinished("math"), RunFinished("math")])
    assert lines[1:] == [
        "1 request timed out after 30 s and was retried, possibly billed twice",
        "2 requests timed out after 600 s and were retried, possibly billed twice",
    ]


def test_silence_is_told_while_no_event_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    told = threading.Event()
    monkeypatch.setattr(progress_view, "SILENT_S", 0.0)
    monkeypatch.setattr(Lines, "_print", lambda *_: told.set())
    with progress(json=True) as emit:
        emit(CallStarted(ASKED, "m"))
        assert told.wait(HANG_S)
