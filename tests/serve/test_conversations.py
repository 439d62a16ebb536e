"""B continues A if and only if B begins with all that was sent in A, and with A's reply."""

from typing import Any

import pytest

from grpo_practice.calls import Message
from grpo_practice.canonical import Chain
from grpo_practice.serve.conversations import LIKE, Conversations, Position, RecordedCall
from tests.serve.place import assistant, system, user

HEAD = {"model": "m", "params": {}}
S, Q = system("Be brief."), user("1 + 1?")
A = assistant("2")


class Talks:
    """Places requests and takes their replies, as if each was written at once."""

    def __init__(self) -> None:
        self.replies: list[Message] = []
        self.known = Conversations((), lambda row: self.replies[row])
        self.stored: list[tuple[bytes, RecordedCall]] = []

    def ask(self, *messages: Message, reply: Message = A, head: Any = HEAD) -> Position:
        states = Chain(head).extend(messages)
        place = self.known.position(messages, states)
        row = RecordedCall(place.slot, place.turn, place.nth, len(self.replies))
        self.replies.append(reply)
        self.stored.append((states[-1][:16], row))
        self.known.add(*self.stored[-1])
        return place


def at(place: Position) -> tuple[int, int, int, int | None, int]:
    row = place.prev.row if place.prev else None
    assert row is None or isinstance(row, int)
    return place.slot, place.turn, place.nth, row, place.covered


def test_a_conversation_goes_on_turn_by_turn() -> None:
    talks = Talks()
    assert at(talks.ask(S, Q)) == (0, 0, 0, None, 0)
    assert at(talks.ask(S, Q, A, user("And 2 + 2?"), reply=assistant("4"))) == (0, 1, 0, 0, 3)
    last = (S, Q, A, user("And 2 + 2?"), assistant("4"), user("Sure?"))
    assert at(talks.ask(*last)) == (0, 2, 0, 1, 5)


@pytest.mark.parametrize(
    "messages",
    [
        (S, Q),  # asked once more
        (S, Q, assistant("3"), user("And?")),  # another reply than the one that came
        (S, user("1 + 2?"), A, user("And?")),  # another question
        (system("Be long."), Q, A, user("And?")),
        (Q, A, user("And?")),
        (S, Q, user("2"), user("And?")),
    ],
)
def test_what_does_not_continue_it_begins_another_one(messages: Any) -> None:
    talks = Talks()
    talks.ask(S, Q)
    assert at(talks.ask(*messages)) == (1, 0, 0, None, 0)


@pytest.mark.parametrize(
    "head", [{"model": "m", "params": {"temperature": 1.0}}, {"model": "n", "params": {}}]
)
def test_other_settings_begin_another_one(head: Any) -> None:
    talks = Talks()
    talks.ask(S, Q)
    assert talks.ask(S, Q, A, user("And?"), head=head).slot == 1


def test_a_conversation_may_fork_and_stays_one() -> None:
    talks = Talks()
    talks.ask(S, Q)
    assert at(talks.ask(S, Q, A, user("Sure?"))) == (0, 1, 0, 0, 3)
    assert at(talks.ask(S, Q, A, user("Why?"))) == (0, 1, 0, 0, 3)
    assert at(talks.ask(S, Q, A, user("Why?"))) == (0, 1, 1, 0, 3)  # the very same again
    assert talks.ask(user("Something else")).slot == 1


def test_of_equal_beginnings_the_one_with_that_reply_goes_on() -> None:
    talks = Talks()
    talks.ask(S, Q, reply=assistant("2"))
    talks.ask(S, Q, reply=assistant("two"))
    assert at(talks.ask(S, Q, assistant("2"), user("Sure?"))) == (0, 1, 0, 0, 3)
    assert at(talks.ask(S, Q, assistant("two"), user("Sure?"))) == (1, 1, 0, 1, 3)


def test_what_a_client_drops_of_a_reply_does_not_end_the_conversation() -> None:
    """It goes on, but not word for word: so all that was sent is stored again."""
    talks = Talks()
    came = assistant("2", reasoning_content="1 + 1", annotations=[], refusal=None)
    talks.ask(S, Q, reply=came)
    assert at(talks.ask(S, Q, A, user("Sure?"))) == (0, 1, 0, None, 0)
    parts = assistant("")
    parts["content"] = [{"type": "text", "text": "2"}]
    assert talks.ask(S, Q, parts, user("Really?")).slot == 0
    without_null = {k: v for k, v in came.items() if v is not None}
    assert at(talks.ask(S, Q, without_null, user("Why?"))) == (0, 1, 0, 0, 3)


def test_tool_calls_are_part_of_a_reply() -> None:
    talks, call = Talks(), {"id": "c", "function": {"name": "f", "arguments": "{}"}}
    talks.ask(S, Q, reply={"role": "assistant", "content": None, "tool_calls": [call]})
    result = {"role": "tool", "tool_call_id": "c", "content": "2"}
    for content, calls, slot in ((None, [call], 0), ("", [call], 0), (None, [], 1)):
        said = {"role": "assistant", "content": content, "tool_calls": calls}
        assert talks.ask(S, Q, said, result).slot == slot


def test_what_is_in_the_database_goes_on_too() -> None:
    talks = Talks()
    talks.ask(S, Q)
    again = Conversations(talks.stored, lambda row: talks.replies[row])
    messages = (S, Q, A, user("Sure?"))
    assert at(again.position(messages, Chain(HEAD).extend(messages))) == (0, 1, 0, 0, 3)
    assert again.position((Q,), Chain(HEAD).extend((Q,))).slot == 1


def test_the_same_question_for_ever_is_not_kept_for_ever() -> None:
    talks = Talks()
    for _ in range(LIKE + 10):
        talks.ask(S, Q)
    messages = (S, Q, A, user("Sure?"))
    assert at(talks.ask(*messages)) == (LIKE + 9, 1, 0, LIKE + 9, 3)
    assert sum(map(len, talks.known._by_hash.values())) == LIKE + 1
