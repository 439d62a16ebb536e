"""Assignment of recorded requests to conversations, by the chain of their hashes.

A request continues another request if it begins with the messages and the reply of that request.
Two requests may continue the same request; the conversation then forks but still counts as one
conversation.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_practice.core.calls import Message
from grpo_practice.core.hashing import digest, hashable
from grpo_practice.core.redact import redactor

LIKE = 256
"""Maximum number of identical requests that are remembered."""
MOST = 100_000
"""Maximum number of remembered requests; a continuation of an older one starts a new
conversation."""


@dataclass(slots=True)
class RecordedCall:
    """A recorded request and its reply."""

    conversation: int
    """Number of the conversation."""
    turn: int
    """Number of earlier requests in the conversation."""
    nth: int
    """Number of earlier identical requests in the conversation."""
    row: "int | asyncio.Task[int]"
    """`call_id`, or the task that writes the call."""
    reply: Message | None = None
    """Reply; None once it is stored in the database."""


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a new request within the conversations."""

    conversation: int
    turn: int
    nth: int
    """Number of earlier identical requests in this conversation."""
    prev: RecordedCall | None = None
    """Call that the request continues word for word."""
    covered: int = 0
    """Number of the request's messages that this call contains, including the reply."""


class Conversations:
    """All recorded calls by request hash.

    Stored calls are given oldest first; `reply_of` reads the reply of a database row.
    """

    def __init__(
        self, stored: Iterable[tuple[bytes, RecordedCall]], reply_of: Callable[[int], Message]
    ) -> None:
        self._reply_of = reply_of
        self._by_hash = dict[bytes, list[RecordedCall]]()
        self._next = 0
        for request_hash, known in stored:
            self.add(request_hash, known)

    def position(self, messages: Sequence[Message], states: Sequence[bytes]) -> Position:
        """Return the position of a request; `states` has the chain's hash after each message."""
        # A request's stored hash is the start of the chain's hash after its last message.
        request_hash = states[-1][:16]
        # Search from the end, to find the longest request that this one continues.
        for at in range(len(messages) - 1, 0, -1):
            if messages[at].get("role") != "assistant":
                continue
            # Latest first, because a client probably continues the last of several identical
            # requests.
            for known in reversed(self._by_hash.get(states[at - 1][:16], ())):
                same = _same(messages[at], self._reply(known))
                if same:
                    like = self._by_hash.get(request_hash, ())
                    nth = 1 + max(
                        (k.nth for k in like if k.conversation == known.conversation), default=-1
                    )
                    exact = (known, at + 1) if same == "verbatim" else (None, 0)
                    return Position(known.conversation, known.turn + 1, nth, *exact)
        return Position(self._next, 0, 0)

    def add(self, request_hash: bytes, known: RecordedCall) -> None:
        """Add an answered request."""
        self._next = max(self._next, known.conversation + 1)
        like = self._by_hash.setdefault(request_hash, [])
        like.append(known)
        if len(like) > LIKE:
            del like[0]
        if len(self._by_hash) > MOST:
            # A dict keeps insertion order, so this is the oldest request.
            del self._by_hash[next(iter(self._by_hash))]

    def _reply(self, known: RecordedCall) -> Message:
        if known.reply is not None:
            return known.reply
        assert isinstance(known.row, int)
        return self._reply_of(known.row)


def _same(sent: Message, reply: Message) -> str | None:
    """Return how a sent message matches the reply: `verbatim`, `kept`, or None if it differs.

    `kept` means that the fields that all clients keep are equal.
    """
    sent, reply = redactor.value(hashable(sent)), redactor.value(hashable(reply))
    if digest(sent) == digest(reply):
        return "verbatim"
    return "kept" if _bare(sent) == _bare(reply) else None


def _bare(message: Message) -> tuple[Any, ...]:
    """Return the fields of a reply that every client keeps: text and tool calls."""
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
    return content or "", [(call.get("id"), call.get("function")) for call in calls]
