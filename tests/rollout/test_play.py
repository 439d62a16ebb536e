"""Playing groups: bounded, in order, failures kept apart from wrong answers."""

import asyncio
from collections.abc import Iterator

import pytest

from grpo_practice.core.calls import Chat, Reply, Scope
from grpo_practice.core.errors import (
    ConfigError,
    ContentFilterError,
    ContextOverflowError,
    EndpointError,
    EndpointRefusedError,
    GrpoPracticeError,
    JudgeError,
    RunFailedError,
    VerifyError,
)
from grpo_practice.core.types import Rollout, Sample, Trajectory, Verdict
from grpo_practice.llm.concurrency import ADMITTED_PER_TICK
from grpo_practice.rollout.agents.simple import play_simple
from grpo_practice.rollout.failure_limit import FailureLimit
from grpo_practice.rollout.play import AttemptKey, GroupJob, Player, begin, play_groups, task_group
from tests.fakes import FakeChat

Q = Sample("1+1?", "2", id=1)


def place(attempt: int = 0, slot: int = 0, strikes: int = 0) -> AttemptKey:
    return AttemptKey(1, 0, 0, slot, attempt, Q, strikes)


async def exact(sample: Sample, response: str, judge: Chat, rollout: None) -> Verdict:
    return Verdict(float(response == sample.answer), f"said {response}")


def player(chat: FakeChat, verify: object = exact) -> Player:
    opened = list[Scope]()

    def student(scope: Scope) -> Chat:
        opened.append(scope)
        return chat

    return Player(play_simple, student, student, verify, 0, 60.0)  # type: ignore[arg-type]


def said(message: dict[str, object], finish: str = "stop") -> Reply:
    return Reply({"role": "assistant", **message}, finish)


@pytest.mark.parametrize(
    ("answer", "outcome", "reward", "teachable"),
    [
        pytest.param("2", "ok", 1.0, True, id="right"),
        pytest.param("3", "ok", 0.0, True, id="wrong"),
        pytest.param("<think>3</think>2", "ok", 1.0, True, id="37-thinking is not the answer"),
        pytest.param("<think>2", "truncated", 0.0, True, id="37-thinking that never ends"),
        pytest.param(said({"content": "2"}, "length"), "truncated", 1.0, True, id="cut but right"),
        pytest.param(
            said({"content": "", "reasoning_content": "hm"}, "length"),
            "truncated",
            0.0,
            True,
            id="35-all tokens went into reasoning",
        ),
        pytest.param(
            said({"content": None, "refusal": "no"}), "refused", 0.0, False, id="38-refusal"
        ),
        pytest.param(
            said({"content": "2"}, "content_filter"), "content_filter", 0.0, False, id="39-filter"
        ),
        pytest.param(said({"content": None}), "empty", 0.0, False, id="34-nothing, twice"),
        pytest.param(
            ContextOverflowError("too long"), "context_overflow", 0.0, False, id="40-overflow"
        ),
        pytest.param(ContentFilterError("no"), "content_filter", 0.0, False, id="14-moderation"),
        pytest.param(EndpointError("down"), "error", None, False, id="11-down is not wrong"),
        pytest.param(TimeoutError(), "limit", None, False, id="out of time is not wrong"),
        pytest.param(KeyError("bug"), "error", None, False, id="an agent's bug is not wrong"),
    ],
)
async def test_outcome(
    answer: str | Reply | Exception, outcome: str, reward: float | None, teachable: bool
) -> None:
    rollout = await player(FakeChat(lambda _: answer)).play_and_score(place(), "sys")
    assert (rollout.played.outcome, rollout.reward, rollout.teachable) == (
        outcome,
        reward,
        teachable,
    )


async def test_an_empty_answer_is_asked_for_once_more_as_a_resample() -> None:
    chat = FakeChat(lambda _: "" if len(chat.seen) == 1 else "2")
    rollout = await player(chat).play_and_score(place(), "")
    assert rollout.reward == 1.0
    assert [o["r"] for o in chat.options] == [0, 1]
    assert chat.seen[0] == [{"role": "user", "content": "1+1?"}]


async def test_a_refused_key_stops_the_run() -> None:
    with pytest.raises(EndpointRefusedError):
        await player(FakeChat(lambda _: EndpointRefusedError("401"))).play_and_score(place(), "")


@pytest.mark.parametrize(
    ("error", "reason"), [(VerifyError("bug"), "verify"), (JudgeError("down"), "judge")]
)
async def test_a_failing_verifier_is_never_a_reward(error: Exception, reason: str) -> None:
    async def verify(sample: Sample, response: str, judge: Chat, rollout: None) -> Verdict:
        raise error

    rollout = await player(FakeChat(lambda _: "2"), verify).play_and_score(place(), "")
    assert (rollout.reward, rollout.played.outcome, rollout.played.reason) == (
        None,
        "error",
        reason,
    )
    assert rollout.played.response == "2"


async def test_a_verifiers_bug_is_that_rollouts_error() -> None:
    async def verify(sample: Sample, response: str, judge: Chat, rollout: None) -> Verdict:
        raise TypeError("bug")

    rollout = await player(FakeChat(lambda _: "2"), verify).play_and_score(place(), "")
    assert (rollout.reward, rollout.played.reason) == (None, "verify")
    assert "TypeError: bug" in str(rollout.played.error)


async def test_a_verifier_that_cannot_be_used_at_all_stops_the_run() -> None:
    async def verify(sample: Sample, response: str, judge: Chat, rollout: None) -> Verdict:
        raise ConfigError("no judge")

    with pytest.raises(ConfigError):
        await player(FakeChat(lambda _: "2"), verify).play_and_score(place(), "")


@pytest.mark.parametrize("reason", ["verify", "judge"])
async def test_an_answer_whose_score_failed_is_scored_from_what_is_kept(reason: str) -> None:
    chat = FakeChat(lambda _: "never asked")
    failed = Rollout(0, 0, Q, Trajectory("error", "2", reason=reason, error="bug"))
    scored = await player(chat).score(failed, player(chat).scope(place()))
    assert (scored.reward, scored.played) == (1.0, Trajectory("ok", "2"))
    lost = Rollout(0, 0, Q, Trajectory("error", reason="provider", error="down"))
    assert await player(chat).score(lost, player(chat).scope(place())) == lost
    assert chat.seen == []


async def test_our_own_deadline_is_counted_and_three_are_final() -> None:
    late = FakeChat(lambda _: TimeoutError())
    rollout = await player(late).play_and_score(place(strikes=1), "")
    assert rollout.strikes == 2
    job = GroupJob(1, 0, 0, 0, Q, 2, {0: rollout})
    assert [p.attempt for p in job.open_attempts()] == [0, 1]
    out = await player(late).play_and_score(place(strikes=2), "")
    assert [p.attempt for p in GroupJob(1, 0, 0, 0, Q, 2, {0: out}).open_attempts()] == [1]


def jobs(n: int, attempts: int) -> Iterator[GroupJob]:
    return (GroupJob(1, 0, 0, slot, Q, attempts) for slot in range(n))


def ok(place: AttemptKey) -> Rollout:
    return Rollout(place.slot, place.attempt, Q, Trajectory("ok", "2"), Verdict(1.0))


async def test_no_more_than_allowed_run_at_once_and_groups_come_whole() -> None:
    running = peak = 0
    groups = list[GroupJob]()

    async def play(place: AttemptKey) -> Rollout:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.001 * ((place.slot * 7 + place.attempt * 3) % 5))
        running -= 1
        return ok(place)

    async def on_group(job: GroupJob) -> None:
        groups.append(job)

    await play_groups(jobs(9, 3), play, concurrency=4, on_group=on_group)
    assert peak == 4
    assert sorted(g.slot for g in groups) == list(range(9))
    assert all([r.attempt for r in g.group.rollouts] == [0, 1, 2] for g in groups)


async def test_jobs_are_read_as_they_are_needed() -> None:
    read = 0

    def endless() -> Iterator[GroupJob]:
        nonlocal read
        while True:
            read += 1
            yield GroupJob(1, 0, 0, read, Q, 1)

    async def play(place: AttemptKey) -> Rollout:
        await asyncio.sleep(0)
        if place.slot == 50:
            raise RunFailedError("enough")
        return ok(place)

    async def on_group(job: GroupJob) -> None:
        pass

    with pytest.raises(RunFailedError, match="enough"):
        await play_groups(endless(), play, concurrency=3, on_group=on_group)
    assert read < 60


async def test_what_is_stored_is_not_played_and_a_whole_group_is_still_handed_on() -> None:
    stored = {a: ok(place(a)) for a in range(2)}
    played, groups = list[int](), list[GroupJob]()

    async def play(place: AttemptKey) -> Rollout:
        played.append(place.attempt)
        return ok(place)

    async def on_group(job: GroupJob) -> None:
        groups.append(job)

    work = [GroupJob(1, 0, 0, 0, Q, 2, stored), GroupJob(1, 0, 0, 1, Q, 3, stored)]
    await play_groups(work, play, concurrency=2, on_group=on_group)
    assert played == [2]
    assert sorted(len(g.group.rollouts) for g in groups) == [2, 3]


async def test_an_error_cancels_the_others_and_waits_for_them() -> None:
    cleaned = list[int]()

    async def play(place: AttemptKey) -> Rollout:
        try:
            await asyncio.sleep(0 if place.slot == 0 else 60)
        finally:
            if place.slot:
                await asyncio.sleep(0.01)
                cleaned.append(place.slot)
        raise RunFailedError("stop")

    async def on_group(job: GroupJob) -> None:
        pass

    with pytest.raises(RunFailedError, match="stop"):
        await play_groups(jobs(3, 1), play, concurrency=3, on_group=on_group)
    assert sorted(cleaned) == [1, 2]


async def test_a_run_stops_when_more_than_the_allowed_share_failed() -> None:
    landed = list[GrpoPracticeError]()

    async def drain(error: GrpoPracticeError) -> None:
        landed.append(error)

    watch = FailureLimit("step 3", 10, 0.2, drain)
    bad = Rollout(0, 0, Q, Trajectory("error", reason="provider", error="HTTP 503"))
    await watch.record(ok(place()))
    await watch.record(bad)
    await watch.record(bad)
    assert landed == []
    with pytest.raises(RunFailedError, match=r"3 of the 10 rollouts of step 3.*HTTP 503") as e:
        await watch.record(bad)
    assert e.value.exit_code == 1
    assert landed == [e.value]


async def test_a_cancellation_that_nobody_asked_for_is_the_verify_functions_error() -> None:
    async def verify(sample: Sample, response: str, judge: Chat, rollout: None) -> Verdict:
        raise asyncio.CancelledError

    rollout = await player(FakeChat(lambda _: "2"), verify).play_and_score(place(), "")
    assert (rollout.played.reason, rollout.reward) == ("verify", None)


async def test_a_cancellation_that_was_asked_for_goes_through() -> None:
    async def verify(sample: Sample, response: str, judge: Chat, rollout: None) -> Verdict:
        await asyncio.sleep(60)
        return Verdict(1.0)

    task = asyncio.create_task(player(FakeChat(lambda _: "2"), verify).play_and_score(place(), ""))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_thousands_do_not_begin_in_one_turn_of_the_loop() -> None:
    began, most, over, all_began = 0, 0, False, asyncio.Event()

    async def watch() -> None:
        nonlocal most
        before = 0
        while not over:
            most, before = max(most, began - before), began
            await asyncio.sleep(0)

    async def play(place: AttemptKey) -> Rollout:
        nonlocal began
        began += 1
        if began == 1_000:
            all_began.set()
        await all_began.wait()
        return ok(place)

    async def on_group(job: GroupJob) -> None:
        pass

    watching = asyncio.create_task(watch())
    await play_groups(jobs(500, 2), play, concurrency=1_000, on_group=on_group)
    over = True
    await watching
    assert began == 1_000
    assert most <= ADMITTED_PER_TICK


async def test_nothing_begins_in_a_group_that_ends_and_no_coroutine_is_left_behind() -> None:
    begun, late = list[str](), list[BaseException]()

    async def fails() -> None:
        raise RunFailedError("too many")

    async def work() -> None:
        begun.append("work")

    with pytest.raises(RunFailedError):
        async with task_group() as tasks:
            tasks.create_task(fails())
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                with pytest.raises(asyncio.CancelledError) as e:
                    begin(tasks, work())
                late.append(e.value)
                raise
    assert (begun, len(late)) == ([], 1)


async def test_a_cancelled_group_ends_as_cancelled_although_a_task_wants_to_begin_another() -> None:
    async def work() -> None:
        raise AssertionError

    async def playing() -> None:
        async with task_group() as tasks:

            async def late() -> None:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    begin(tasks, work())

            tasks.create_task(late())

    task = asyncio.create_task(playing())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
