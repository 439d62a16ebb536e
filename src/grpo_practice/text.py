"""Text from outside: what of it is an answer, and how it is shown so that nothing in it acts."""

import re
import unicodedata
from urllib.parse import urlsplit

_THINK = re.compile("</?think>")


def is_web_address(url: str) -> bool:
    """True for an http:// or https:// URL with a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def strip_think(text: str) -> str | None:
    """The text without its `<think>` blocks; None when one is never closed.

    A closing tag alone ends a block that began in the prompt: what stands before it goes too.
    """
    if "think>" not in text:
        return text
    kept: list[str] = []
    at: int | None = 0  # where the visible text goes on; None inside a block
    for tag in _THINK.finditer(text):
        if tag[0] == "</think>":
            if at is not None:
                kept.clear()
            at = tag.end()
        elif at is not None:
            kept.append(text[at : tag.start()])
            at = None
    return None if at is None else "".join([*kept, text[at:]])


def visible(text: str) -> str:
    r"""The text with control, format and unassigned characters shown as escapes.

    Line breaks and tabs stay; a carriage return, an escape sequence or a change of writing
    direction becomes `\r`, `\x1b`, `\u202e`.
    """
    return text if text.isascii() and text.isprintable() else "".join(map(_shown, text))


def brief(text: str, chars: int) -> str:
    """The text in one line of at most `chars` characters, `…` where it was cut; see `visible`."""
    line = visible(" ".join(text[: 4 * chars].split()))
    return line if len(line) <= chars and len(text) <= 4 * chars else f"{line[: chars - 1]}…"


def unlike(a: str, b: str, chars: int) -> tuple[str, str]:
    """Both as `brief` has them; where these would be equal, from where the texts differ."""
    if a == b or brief(a, chars) != brief(b, chars):
        return brief(a, chars), brief(b, chars)
    same = next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )
    at = max(same - chars // 4, 0)
    return f"…{brief(a[at:], chars - 1)}", f"…{brief(b[at:], chars - 1)}"


def count(n: int, noun: str) -> str:
    """`1 rollout`, `2 rollouts`."""
    return f"{n} {noun}{'' if n == 1 else 's'}"


def cut(text: str, chars: int) -> str:
    """The text, or its first `chars` characters and how many were left out."""
    left = len(text) - chars
    return text if left <= 0 else f"{text[:chars]} … [{left:,} more characters]"


def _shown(char: str) -> str:
    if char.isprintable() or char in "\n\t" or unicodedata.category(char) == "Zs":
        return char
    return char.encode("unicode_escape").decode()
