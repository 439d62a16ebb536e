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

_SIZES = tuple(
    (size, bytes(range(low, high)))
    for size, low, high in ((4, 0xF0, 0x100), (3, 0xE0, 0xF0), (2, 0xC0, 0xE0), (1, 0, 0x80))
)
"""Bytes of a character in UTF-8, most first, with the bytes that such characters begin with."""


def room_of(context: int, reply: int | None) -> int:
    """Return the UTF-8 bytes that a prompt may have.

    Prompt and reply share the tokens of the `context`; without a configured `reply`, a quarter is
    its.
    """
    kept = context // 4 if reply is None else min(reply, 3 * context // 4)
    return (context - kept) * DENSE_CHARS_PER_TOKEN


def chars_in(room: int, text: str) -> int:
    """Return how many characters of `text` fit into `room` bytes, whichever of them stay.

    Shortening removes one kind of writing before another, so a mean over the whole text would not
    do: those that take most bytes are counted first.
    """
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= room:
        return room * len(text) // len(data) if data else room
    chars = 0
    for size, first in _SIZES:
        n = len(data) - len(data.translate(None, first))
        fits = min(n, room // size)
        chars += fits
        if fits < n:
            break
        room -= n * size
    return chars


def chars_of(messages: Sequence[Message]) -> int:
    """Return the length of a prompt."""
    return sum(len(message["content"]) for message in messages)


def shortened(texts: Sequence[Transcript], chars: int) -> list[Shortened]:
    """Shorten the longest of these texts until all together have at most `chars` characters."""
    shares = levels([t.chars for t in texts], chars, [t.least for t in texts])
    return [text.within(share) for text, share in zip(texts, shares, strict=True)]
