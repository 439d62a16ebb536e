"""Which attempts the teacher reads, how much of them, and when it needs summaries."""

from dataclasses import replace

import pytest

from grpo_practice.core.calls import Chat, Message, Reply, Scope
from grpo_practice.core.errors import ContextOverflowError, EndpointError
from grpo_practice.core.types import Group, Outcome, Rollout, Summaries, Trajectory
from grpo_practice.practice.distil import distil
from grpo_practice.practice.teacher import Teacher
from grpo_practice.rollout.groups.informative import status_of
from grpo_practice.rollout.play import own_failure
from tests.fakes import FENCES, FakeChat
from tests.practice.test_distil import (
    ADD,
    AT,
    GOLDEN,
    GROUP,
    LESSON,
    LIBRARY,
    Q,
    Said,
    rollout,
    shown,
    some,
    teacher,
)


def failing(*attempts: int) -> Said:
    """A teacher that cannot summarise these attempts."""
    said = Said(summarise="It was done.", compare=LESSON, propose=ADD)
    answer = said.chat

    def chat(scope: Scope) -> Chat:
        if scope.address.stage == "summarise" and scope.address.attempt in attempts:
            return FakeChat(lambda _: EndpointError("HTTP 400"))
        return answer(scope)

    said.chat = chat  # type: ignore[method-assign]
    return said


@pytest.mark.parametrize("truth", [True, False])
async def test_a_summary_that_fails_costs_its_attempt_and_not_the_group(truth: bool) -> None:
    group = some(0.0, 1.0, 0.0, 1.0, 1.0, answers=["a", "b", "a", "b", "c"])
    said = failing(1, 2, 3)
    done = await distil(teacher(said, truth=truth), group, LIBRARY, AT)
    assert (done.failed, len(done.lessons), len(done.operations)) == (None, 1, 1)
    assert done.unread == ("EndpointError: HTTP 400",) * 3
    (shown,) = said.prompts("compare")
    heads = [line for line in shown.splitlines() if line.startswith("### ")]
    assert [head.split(":")[0] for head in heads] == (
        ["### Attempt 5", "### Attempt 1"] if truth else ["### Attempt 1", "### Attempt 5"]
    )
    if truth:
        assert heads[0].endswith("rank 1 of 2")


@pytest.mark.parametrize("truth", [True, False])
async def test_two_equal_attempts_that_are_left_teach_nothing(truth: bool) -> None:
    group = some(0.0, 1.0, 0.0, 1.0, 1.0, answers=["a", "b", "a", "b", "c"])
    said = failing(0, 2, 4)
    done = await distil(teacher(said, truth=truth), group, LIBRARY, AT)
    assert done.failed == "EndpointError: HTTP 400"
    assert len(done.unread) == 3
    assert said.prompts("compare") == []


def as_they_are(said: Said, room: int = 50_000, *, truth: bool = True) -> Teacher:
    return replace(teacher(said, truth=truth), summaries="auto", room=room)


async def test_attempts_that_fit_are_compared_as_they_are() -> None:
    said = Said(compare=LESSON, propose=ADD)
    done = await distil(as_they_are(said), GROUP, LIBRARY, AT)
    assert (done.failed, done.shortened, len(done.operations)) == (None, 0, 1)
    assert [s.address.stage for s, _ in said.asked] == ["compare", "propose"]
    path = GOLDEN / "compare_attempts.txt"
    if not path.exists():
        path.write_text(shown(said.asked[0][1]), "utf-8")
        pytest.fail(f"{path.name} was missing and has been written: review it")
    assert shown(said.asked[0][1]) == path.read_text("utf-8")


async def test_without_ground_truth_attempts_are_shown_without_their_judgements() -> None:
    said = Said(compare=LESSON, propose=ADD)
    await distil(as_they_are(said, truth=False), GROUP, LIBRARY, AT)
    (told,) = said.prompts("compare")
    assert "It is 48." in told
    for hidden in ("50 or 50", "critique", "judged", "reward 1", "rank", "correct answer"):
        assert hidden not in told, hidden


async def test_what_does_not_fit_is_summarised_from_one_character_on() -> None:
    """Decided by the exact length of the prompt, and by nothing that changes on the way."""
    said = Said(summarise="It was done.", compare=LESSON, propose=ADD)
    await distil(as_they_are(said), GROUP, LIBRARY, AT)
    ((_, whole), *_) = said.asked
    length = sum(len(str(m["content"])) for m in whole)
    for room, summaries in ((length, 0), (length - 1, 3)):
        said.asked.clear()
        done = await distil(as_they_are(said, room), GROUP, LIBRARY, AT)
        assert done.failed is None
        assert len(said.prompts("summarise")) == summaries, room


def tall(chars: int) -> Group:
    """A better and a worse attempt; the thinking of one has so many characters."""
    worse, better = rollout(0, 0.0, "49"), rollout(1, 1.0)
    *told, last = worse.played.transcript
    long = [*told, {**last, "reasoning_content": "h" * chars}]
    return Group(0, Q, [replace(worse, played=replace(worse.played, transcript=long)), better])


async def test_summaries_that_are_never_wanted_are_never_made() -> None:
    said = Said(compare=LESSON, propose=ADD)
    never = replace(as_they_are(said, 9_000), summaries="never")
    done = await distil(never, tall(400_000), LIBRARY, AT)
    (told,) = said.prompts("compare")
    assert 8_900 < len(told) <= 9_001  # the newline between the messages is of this test
    assert (done.shortened, done.cut_chars > 390_000) == (1, True)
    assert f"[{done.cut_chars:,} more characters were cut here]" in told
    assert "It is 49." in told
    assert "<think>\nhm\n</think>" in told


async def test_a_transcript_is_shortened_to_what_its_summary_may_read() -> None:
    said = Said(summarise="It was done.", compare=LESSON, propose=ADD)
    done = await distil(as_they_are(said, 9_000), tall(400_000), LIBRARY, AT)
    long, short = sorted(map(len, said.prompts("summarise")), reverse=True)
    assert 8_900 < long <= 9_001
    assert short < 4_000
    assert (done.failed, done.shortened, done.cut_chars > 390_000) == (None, 1, True)


async def test_writing_that_takes_more_bytes_has_room_for_fewer_characters() -> None:
    said = Said(compare=LESSON, propose=ADD)
    never = replace(as_they_are(said, 12_000), summaries="never")
    group = tall(400_000)
    long = group.rollouts[0].played.transcript[-1]
    long["reasoning_content"] = "数" * 400_000
    await distil(never, group, LIBRARY, AT)
    (told,) = said.prompts("compare")
    assert len(told) <= 12_000 * 400_000 // 1_200_000 + 100


async def test_a_prompt_fits_also_where_its_fences_make_the_marks_in_it_longer() -> None:
    said = Said(compare=LESSON, propose=ADD)
    reader = replace(as_they_are(said, 90_000), summaries="never", fences=FENCES)
    group = tall(400_000)
    group.rollouts[0].played.transcript[-1]["reasoning_content"] = "<" * 400_000
    await distil(reader, group, LIBRARY, AT)
    (prompt,) = said.prompts("compare")
    assert "\u2039" * 10_000 in prompt
    assert len(prompt.encode()) <= 90_001


async def test_a_prompt_fits_also_where_its_dense_part_is_what_stays() -> None:
    """Thinking goes first: what is left of a text takes more bytes than it did on average."""
    said = Said(compare=LESSON, propose=ADD)
    never = replace(as_they_are(said, 90_000), summaries="never")
    group = tall(500_000)
    told = {"role": "assistant", "content": "数" * 40_000}
    first = group.rollouts[0]
    *begun, last = first.played.transcript
    long = replace(first.played, transcript=[*begun, told, last])
    group = replace(group, rollouts=[replace(first, played=long), *group.rollouts[1:]])
    await distil(never, group, LIBRARY, AT)
    (prompt,) = said.prompts("compare")
    assert 80_000 < len(prompt.encode()) <= 90_001


class Small:
    """A teacher's endpoint that takes so many characters."""

    def __init__(self, said: Said, most: int, limit: int | None = None) -> None:
        self.said, self.most, self.limit = said, most, limit
        self.refused, self.taken = list[int](), list[int]()

    def chat(self, scope: Scope) -> Chat:
        inner = self.said.chat(scope)

        async def ask(messages: list[Message], **more: object) -> Reply:
            length = sum(len(str(m["content"])) for m in messages)
            if length > self.most:
                self.refused.append(length)
                raise ContextOverflowError("HTTP 400, too long", limit=self.limit)
            self.taken.append(length)
            return await inner(messages, **more)  # type: ignore[arg-type]

        return ask  # type: ignore[return-value]


@pytest.mark.parametrize("summaries", ["never", "always"])
async def test_a_prompt_that_is_too_long_is_asked_once_more_with_half(summaries: Summaries) -> None:
    said = Said(summarise="It was done.", compare=LESSON, propose=ADD)
    for most, failed in ((7_000, False), (5_000, True)):
        small = Small(said, most)
        wide = replace(as_they_are(said, 12_000), chat=small.chat, summaries=summaries)
        done = await distil(wide, tall(400_000), LIBRARY, AT)
        assert len(small.refused) == 1 + failed
        assert small.refused[0] > 11_900
        assert (done.failed is not None) == failed
        if failed:
            assert small.refused[1] <= small.refused[0] // 2
            assert "ContextOverflowError" in str(done.failed)
        else:
            assert done.shortened == 1


@pytest.mark.parametrize(("reply", "kept"), [(None, 1_024), (2_000, 2_000)])
async def test_a_prompt_that_is_too_long_is_fitted_to_the_context_that_the_error_names(
    reply: int | None, kept: int
) -> None:
    said = Said(compare=LESSON, propose=ADD)
    small = Small(said, room := 3 * (4_096 - kept), limit=4_096)
    wide = replace(as_they_are(said, 98_304), chat=small.chat, reply=reply, summaries="never")
    done = await distil(wide, tall(400_000), LIBRARY, AT)
    assert done.failed is None
    assert room - 100 < small.taken[0] <= room
    assert len(small.refused) == 1


async def test_a_context_named_too_large_is_halved_as_before() -> None:
    small = Small(Said(compare=LESSON, propose=ADD), 7_000, limit=9_000)
    wide = replace(as_they_are(small.said, 12_000), chat=small.chat, summaries="never")
    done = await distil(wide, tall(400_000), LIBRARY, AT)
    assert (done.failed, len(small.refused)) == (None, 1)


async def test_what_cannot_be_made_shorter_is_not_asked_again() -> None:
    small = Small(Said(), 10)
    done = await distil(replace(as_they_are(Said()), chat=small.chat), GROUP, LIBRARY, AT)
    assert len(small.refused) == 1
    assert done.failed == "ContextOverflowError: HTTP 400, too long"


def cut_off(attempt: int, outcome: Outcome, reason: str | None = None) -> Rollout:
    transcript: list[Message] = [{"role": "assistant", "content": "<think>so so so"}]
    played = Trajectory(outcome, "", transcript, reason, "raise max_tokens")
    return Rollout(0, attempt, Q, played, own_failure(played))


@pytest.mark.parametrize(
    ("outcome", "reason", "status"),
    [
        ("truncated", None, "scored"),
        ("limit", "turns", "scored"),
        ("limit", "time", "uniform"),
        ("refused", None, "uniform"),
        ("content_filter", None, "uniform"),
        ("context_overflow", None, "uniform"),
        ("empty", None, "uniform"),
        ("error", "provider", "uniform"),
    ],
)
@pytest.mark.parametrize("truth", [True, False])
def test_four_right_and_one_cut_off_teach_something(
    outcome: Outcome, reason: str | None, status: str, truth: bool
) -> None:
    group = some(*[1.0] * 4)
    group = replace(group, rollouts=[*group.rollouts, cut_off(4, outcome, reason)])
    assert status_of(group, truth=truth) == status
    only = Group(0, Q, [cut_off(n, outcome, reason) for n in range(2)])
    assert status_of(only, truth=truth) == ("uniform" if status == "scored" else "too_few")


async def test_an_attempt_that_was_cut_off_is_compared_and_says_how_it_ended() -> None:
    said = Said(summarise="It was done.", compare=LESSON, propose=ADD)
    group = Group(0, Q, [rollout(0, 1.0), cut_off(1, "truncated")])
    await distil(as_they_are(said), group, LIBRARY, AT)
    await distil(teacher(said), group, LIBRARY, AT)
    compared, _ = said.prompts("compare")
    for prompt in (compared, said.prompts("summarise")[1]):
        assert "[the attempt ended here: it ran out of output tokens]" in prompt
        assert "There is no answer: it ran out of output tokens." in prompt
        assert "raise max_tokens" not in prompt


async def test_a_question_that_leaves_no_room_does_not_hide_the_attempts() -> None:
    """Summaries of them would be cut as well, and paid for."""
    said = Said(compare=LESSON, propose=ADD)
    long = replace(Q, question="How much? " * 20_000)
    group = replace(GROUP, sample=long, rollouts=[replace(r, sample=long) for r in GROUP.rollouts])
    done = await distil(as_they_are(said, 12_000), group, LIBRARY, AT)
    assert done.failed is None
    (told,) = said.prompts("compare")
    assert "It is 49." in told
    assert "more characters were cut" not in told
