"""stdout and stderr. Imported where something is printed: `--help` would wait for rich."""

import errno
import os
import re
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text
from typing_extensions import override

from grpo_practice.redact import redactor

_COMMAND = re.compile(r"grpo-practice \S|\bexport \w+=|\bpip install ")
NARROWEST = 10
"""Fewest columns that anything is laid out in."""


class _Console(Console):
    """Console that prints text as it is, but for secrets: no markup, no highlighting."""

    def __init__(self, *, stderr: bool, **how: Any) -> None:
        super().__init__(stderr=stderr, markup=False, highlight=False, emoji=False, **how)
        if self.width < NARROWEST:
            # COLUMNS=0 means that nobody knows; rich would print empty lines, or nothing at all.
            self.width = NARROWEST if self.width else 80

    @override
    def render_str(self, text: str, **how: Any) -> Text:
        """Return it as Text, secrets replaced before a line break can divide one."""
        return super().render_str(redactor.text(text), **how)

    @override
    def on_broken_pipe(self) -> None:
        """Raise, as any other file does; rich would end the process, also amid a run."""
        raise BrokenPipeError(errno.EPIPE, "nobody reads this any more")


out = _Console(stderr=False)
"""stdout: what the command was asked for."""
err = _Console(stderr=True)
"""stderr: progress, notices, errors."""


def in_one(console: Console, text: str) -> bool:
    """Return True for a line that is not wrapped: one that no terminal shows, or with a command.

    A command has to stay in one piece for whoever copies it.
    """
    seen = console.is_terminal and not is_coloured_file(console)
    return not seen or _COMMAND.search(text) is not None


def is_coloured_file(console: Console) -> bool:
    """Return True where FORCE_COLOR makes rich take a file or a pipe for a terminal."""
    forced = os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE")
    return bool(forced) and not console.file.isatty()


def print_line(console: Console, line: str, style: str | None = None) -> None:
    """Print a line; if it is wrapped, the rest stands below its first word, not at the margin."""
    # Redacted before it is divided: half a secret is not recognised any more.
    text = Text(redactor.text(line))
    indent, one = len(line) - len(line.lstrip(" ")), in_one(console, line)
    if indent and not one:
        console.print(Padding(text[indent:], (0, 0, 0, indent), expand=False), style=style)
    else:
        console.print(text, style=style, soft_wrap=one)


def as_text(what: RenderableType, width: int | None) -> str:
    """Return it as printed in so many columns (None: those of the terminal), without styles."""
    console = _Console(stderr=False)
    if width is not None:
        console.width = width
    with console.capture() as captured:
        console.print(what)
    return captured.get()
