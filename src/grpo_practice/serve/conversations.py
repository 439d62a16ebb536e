"""Which recorded request goes on with which conversation, found by the chain of their hashes.

A request continues another one when it begins with all that was sent then, and with the reply that
came. Two requests may continue the same one: then the conversation forks, and stays one.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_practice.calls import Message
from grpo_practice.canonical import digest, hashable
from grpo_practice.redact import redactor

LIKE = 256
"""Equal requests that are remembered."""
MOST = 100_000
"""Requests that are remembered; what continues an older one begins a conversation of its own."""


@dataclass(slots=True)
class Known:
    """A recorded request and its reply."""

    slot: int
    """Its conversation's number."""
    turn: int
    """How many came before it, from the first on."""
    nth: int
    """How often this same request had been made in its conversation."""
    row: "int | asyncio.Task[int]"
    """Its `call_id`, or what writes it."""
    reply: Message | None = None
    """None once it is in the database."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request belongs."""

    slot: int
    turn: int
    nth: int
    """How often this same request was made before in this conversation."""
    prev: Known | None = None
    """The one it continues word for word."""
    covered: int = 0
    """How many of its messages that one has, its reply included."""


class Conversations:
    """All that was recorded so far, by the hash of each request.

    Args:
        stored: Hash and row of what is in the database, oldest first.
        reply_of: The reply in a row of the database.
    """

    def __init__(
        self, stored: Iterable[tuple[bytes, Known]], reply_of: Callable[[int], Message]
    ) -> None:
        self._reply_of = reply_of
        self._by_hash = dict[bytes, list[Known]]()
        self._next_slot = 0
        for request_hash, known in stored:
            self.add(request_hash, known)

    def place(self, messages: Sequence[Message], states: Sequence[bytes]) -> Place:
        """Where a request with these messages belongs. `states`: of its chain, after each."""
        request_hash = states[-1][:16]
        for at in range(len(messages) - 1, 0, -1):
            if messages[at].get("role") != "assistant":
                continue
            for known in reversed(self._by_hash.get(states[at - 1][:16], ())):
                same = _same(messages[at], self._reply(known))
                if same:
                    nth = self._next(request_hash, known.slot)
                    exact = (known, at + 1) if same == "verbatim" else (None, 0)
                    return Place(known.slot, known.turn + 1, nth, *exact)
        return Place(self._next_slot, 0, 0)

    def add(self, request_hash: bytes, known: Known) -> None:
        """It was asked and answered."""
        self._next_slot = max(self._next_slot, known.slot + 1)
        like = self._by_hash.setdefault(request_hash, [])
        like.append(known)
        if len(like) > LIKE:
            del like[0]
        if len(self._by_hash) > MOST:
            del self._by_hash[next(iter(self._by_hash))]

    def _next(self, request_hash: bytes, slot: int) -> int:
        asked = [k.nth for k in self._by_hash.get(request_hash, ()) if k.slot == slot]
        return max(asked, default=-1) + 1

    def _reply(self, known: Known) -> Message:
        if known.reply is not None:
            return known.reply
        assert isinstance(known.row, int)
        return self._reply_of(known.row)


def _same(sent: Message, reply: Message) -> str | None:
    """Whether a client's assistant message is the reply: `verbatim`, or all but what it drops."""
    sent, reply = redactor.value(hashable(sent)), redactor.value(hashable(reply))
    if digest(sent) == digest(reply):
        return "verbatim"
    return "kept" if _bare(sent) == _bare(reply) else None


def _bare(message: Message) -> tuple[Any, ...]:
    """What every client keeps of a reply: its text and its calls."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
    return content or "", [(call.get("id"), call.get("function")) for call in calls]
