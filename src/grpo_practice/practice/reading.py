"""Limits the amount of text that a teacher gets in one request."""

from collections.abc import Sequence

from grpo_practice.core.calls import Message
from grpo_practice.core.text import DENSE_CHARS_PER_TOKEN
from grpo_practice.practice.transcript import Shortened, Transcript, levels

ASSUMED_CONTEXT = 32_768
"""Context size in tokens, prompt and reply together, assumed for an unknown model."""
MOST_CONTEXT = 131_072
"""Default limit of the context in tokens for models that accept more: they read long prompts less
reliably, and several providers charge more for them.
"""

_SIZES = tuple(
    (size, bytes(range(low, high)))
    for size, low, high in ((4, 0xF0, 0x100), (3, 0xE0, 0xF0), (2, 0xC0, 0xE0), (1, 0, 0x80))
)
"""Bytes per character in UTF-8, largest first, with the lead bytes of these characters."""


def room_of(context: int, reply: int | None) -> int:
    """Return the maximum size of a prompt in UTF-8 bytes.

    Prompt and reply share the tokens of the `context`. If no `reply` limit is configured, a quarter
    of the context is reserved for the reply.
    """
    kept = context // 4 if reply is None else min(reply, 3 * context // 4)
    return (context - kept) * DENSE_CHARS_PER_TOKEN


def chars_in(room: int, text: str) -> int:
    """Return how many characters of `text` fit into `room` bytes, whichever characters are kept.

    Shortening removes text in one script before text in another, so an average over the whole text
    would be wrong; the characters with the most bytes are counted first.
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
    """Return the length of a prompt in characters."""
    return sum(len(message["content"]) for message in messages)


def shortened(texts: Sequence[Transcript], chars: int) -> list[Shortened]:
    """Shorten the longest of these texts until all together have at most `chars` characters."""
    shares = levels([t.chars for t in texts], chars, [t.least for t in texts])
    return [text.within(share) for text, share in zip(texts, shares, strict=True)]
