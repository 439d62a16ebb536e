"""Escaping of foreign text in files that people open: none of it takes effect or is hidden."""

import re
from collections.abc import Callable

from grpo_practice.core.text import visible
from grpo_practice.core.types import Library

_MARKUP = re.compile(r"([\\`*_{}\[\]<>&~|$#])")


def respell(text: str, spell: Callable[[str], str]) -> str:
    """Replace every character that `visible` would escape by the result of `spell`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(spell(char) if unseen(char) else char for char in text)


def unseen(char: str) -> bool:
    """Return whether a character is invisible or acts as a control; line breaks and tabs do not."""
    return visible(char) != char


def one_line(text: str) -> str:
    """Return the text on one line, with each run of white space as one space."""
    return visible(" ".join(text.split()))


def no_markup(text: str) -> str:
    """Return the text as one line of Markdown, escaped so that it is shown literally."""
    return _MARKUP.sub(r"\\\1", one_line(text))


def fenced(text: str) -> str:
    """Return the text in a Markdown code fence, with control characters escaped."""
    shown = visible(text)
    # Longer than any run of backticks in the text, so that the text cannot end the fence.
    fence = "`" * (1 + max([2, *map(len, re.findall("`+", shown))]))
    return f"{fence}text\n{shown}\n{fence}"


def fenced_experiences(library: Library) -> str:
    """Return the experiences in a code fence, one per line."""
    # Each line starts with a label, so that no line can be a mark, a heading or a fence.
    return fenced("\n".join(f"[{e.id}] {one_line(e.text)}" for e in library.experiences))
