"""How much a teacher reads in one request."""

from collections.abc import Sequence

from grpo_practice.calls import Message
from grpo_practice.practice.transcript import Shortened, Transcript, levels
from grpo_practice.text import DENSE_CHARS_PER_TOKEN

ASSUMED_CONTEXT = 32_768
"""Tokens of a request and its reply, for a model of which nothing is known."""
MOST_CONTEXT = 131_072
"""The same by default for models that take more: they read less well what is longer, and several
providers charge more for it."""


def room_of(context: int, reply: int | None) -> int:
    """Return the UTF-8 bytes that a prompt may have.

    Args:
        context: Tokens that request and reply have together.
        reply: Most tokens of a reply, where that is configured; a quarter of the context else.
    """
    kept = context // 4 if reply is None else min(reply, 3 * context // 4)
    return (context - kept) * DENSE_CHARS_PER_TOKEN


def chars_in(room: int, text: str) -> int:
    """Return how many characters such as those of `text` have `room` bytes."""
    size = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return room * len(text) // size if size else room


def chars_of(messages: Sequence[Message]) -> int:
    """Return the length of a prompt."""
    return sum(len(message["content"]) for message in messages)


def shortened(texts: Sequence[Transcript], chars: int) -> list[Shortened]:
    """Shorten the longest of these texts until all together have at most `chars` characters."""
    shares = levels([t.chars for t in texts], chars, [t.least for t in texts])
    return [text.within(share) for text, share in zip(texts, shares, strict=True)]
