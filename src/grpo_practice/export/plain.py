"""Foreign text in a file that people open: nothing in it acts, and nothing in it is hidden."""

from collections.abc import Callable

from grpo_practice.text import visible


def respell(text: str, spell: Callable[[str], str]) -> str:
    """The text with every character that `visible` would escape spelt another way."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(spell(char) if unseen(char) else char for char in text)


def unseen(char: str) -> bool:
    """True for what does something instead of being seen; line breaks and tabs are seen."""
    return visible(char) != char


def one_line(text: str) -> str:
    """The text on one line: runs of white space are one space."""
    return visible(" ".join(text.split()))
