"""A transcript fits wherever it can, and nothing that matters is lost."""

import json

from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.core.calls import Message
from grpo_practice.core.types import Outcome, Rollout, Sample, Trajectory
from grpo_practice.practice.reading import chars_in, shortened
from grpo_practice.practice.transcript import ANSWER, Transcript, how_it_ended, transcript_of
from tests.properties.texts import PLAIN, TEXTS

LONG = st.builds(lambda text, n: text * n, TEXTS, st.sampled_from([1, 1, 30, 3_000]))
NAMES = st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=20)
CALLS = st.builds(
    lambda name, text, spelt: {
        "id": "c",
        "function": {"name": name, "arguments": json.dumps({"a": text}) if spelt else text},
    },
    NAMES,
    LONG,
    st.booleans(),
)
THOUGHTS = st.sampled_from(["reasoning_content", "reasoning"])
CONTENT = st.one_of(
    st.none(),
    LONG,
    st.builds("<think>{}</think>{}".format, LONG, LONG),
    st.builds("<think>{}".format, LONG),
    st.builds("{}</think>{}".format, LONG, LONG),
    LONG.map(lambda text: [{"type": "text", "text": text}]),
)
REPLIES = st.builds(
    lambda content, key, thought, calls: {
        "role": "assistant",
        "content": content,
        key: thought,
        "tool_calls": calls,
    },
    CONTENT,
    THOUGHTS,
    LONG | st.none(),
    st.lists(CALLS, max_size=2),
)
MESSAGES = st.lists(
    REPLIES
    | LONG.map(lambda text: {"role": "tool", "content": text})
    | LONG.map(lambda text: {"role": "user", "content": text}),
    max_size=8,
)
ENDED: list[tuple[Outcome, str | None]] = [
    ("ok", None),
    ("truncated", None),
    ("limit", "turns"),
    ("limit", "time"),
]
ENDS = st.sampled_from(ENDED)


@st.composite
def rollouts(draw: st.DrawFn) -> Rollout:
    """Attempts of every kind; the answer is the last reply, the last result, or none of these."""
    messages: list[Message] = draw(MESSAGES)
    outcome = draw(ENDS)
    response = draw(TEXTS | LONG | st.just("42"))
    messages += draw(
        st.sampled_from(
            [
                [],
                [{"role": "assistant", "content": response}],
                [{"role": "assistant", "content": f"<think>hm</think>\n{response}"}],
                [{"role": "tool", "content": response}],
            ]
        )
    )
    answer = response.strip() if outcome[0] == "ok" or draw(st.booleans()) else ""
    return Rollout(0, 0, Sample("Q"), Trajectory(outcome[0], answer, messages, outcome[1]))


ROOM = st.integers(0, 30_000)


@given(rollouts(), ROOM)
def test_it_fits_wherever_that_is_possible(rollout: Rollout, room: int) -> None:
    one = transcript_of(rollout)
    fit = one.within(room)
    assert len(fit.text) <= max(room, one.least)
    assert one.least <= one.chars
    assert (fit.text == one.text) == (fit.cut == 0) == (one.chars <= max(room, one.least))


@given(rollouts(), ROOM)
def test_nothing_is_lost_that_is_never_cut(rollout: Rollout, room: int) -> None:
    played, text = rollout.played, transcript_of(rollout).within(room).text
    if played.response and played.outcome != "truncated":
        assert text.endswith((played.response, f"{how_it_ended(played)}]"))
        assert played.response in text
        assert text.count(ANSWER) >= (not played.transcript)
    results = [m["content"] for m in played.transcript if m["role"] == "tool"]
    if results:
        assert results[-1] in text
    at = 0
    for message in played.transcript:
        for call in message.get("tool_calls") or []:
            at = text.index(f"calls {call['function']['name']}(", at) + 1
    ended = how_it_ended(played)
    assert ended is None or f"[the attempt ended here: {ended}]" in text


@given(rollouts(), st.integers(0, 30_000), st.integers(0, 30_000))
def test_with_more_room_no_more_is_cut(rollout: Rollout, a: int, b: int) -> None:
    one = transcript_of(rollout)
    few, many = sorted([a, b])
    assert len(one.within(few).text) <= max(len(one.within(many).text), one.least)


@given(st.lists(rollouts(), min_size=1, max_size=4), ROOM)
def test_those_of_a_group_fit_together(group: list[Rollout], room: int) -> None:
    texts = [transcript_of(rollout) for rollout in group]
    fit = shortened(texts, room)
    assert sum(len(one.text) for one in fit) <= max(room, sum(t.least for t in texts))
    if sum(t.chars for t in texts) <= room:
        assert [one.text for one in fit] == [t.text for t in texts]


@given(rollouts(), ROOM)
def test_the_same_is_cut_alike_each_time(rollout: Rollout, room: int) -> None:
    """A run that goes on has to ask the very same question, or it pays twice."""
    again = Transcript(tuple(transcript_of(rollout).pieces))
    assert again.within(room) == transcript_of(rollout).within(room)


@given(st.text(PLAIN), st.integers(0, 10_000))
def test_room_in_bytes_is_never_exceeded(text: str, room: int) -> None:
    chars = chars_in(room, text)
    assert chars * len(text.encode()) <= room * max(len(text), 1)
    sizes = sorted((len(c.encode()) for c in text), reverse=True)
    assert sum(sizes[:chars]) <= room, "whichever characters stay"
    assert chars >= len(text) or sum(sizes[: chars + 1]) > room, "and no fewer than that"
