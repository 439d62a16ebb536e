"""Foreign text in a file that people open: nothing in it acts or is hidden."""

from collections.abc import Callable

from grpo_practice.text import visible


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
