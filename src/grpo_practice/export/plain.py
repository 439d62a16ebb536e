"""Foreign text in a file that people open: nothing in it acts or is hidden."""

import re
from collections.abc import Callable

from grpo_practice.text import visible
from grpo_practice.types import Library

_MARKUP = re.compile(r"([\\`*_{}\[\]<>&~|$#])")


def respell(text: str, spell: Callable[[str], str]) -> str:
    """Return the text with every character that `visible` would escape spelt by `spell`."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(spell(char) if unseen(char) else char for char in text)


def unseen(char: str) -> bool:
    """Return True for a character that acts instead of being seen; breaks and tabs are seen."""
    return visible(char) != char


def one_line(text: str) -> str:
    """Return the text on one line, runs of white space as one space."""
    return visible(" ".join(text.split()))


def no_markup(text: str) -> str:
    """Return the text as one line of Markdown that shows it as it is."""
    return _MARKUP.sub(r"\\\1", one_line(text))


def fenced(text: str) -> str:
    """Return a fence of Markdown around the text, control characters spelt out."""
    shown = visible(text)
    # Longer than any run of backticks in the text: nothing in it can end the fence.
    fence = "`" * (1 + max([2, *map(len, re.findall("`+", shown))]))
    return f"{fence}text\n{shown}\n{fence}"


def fenced_experiences(library: Library) -> str:
    """Return the experiences in a fence, one line each."""
    # Each line begins with its label: none can be a mark, a heading or a fence.
    return fenced("\n".join(f"[{e.id}] {one_line(e.text)}" for e in library.experiences))
