"""Consoles for stdout and stderr, imported only before printing: `--help` must not load rich."""

import errno
import os
import re
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text
from typing_extensions import override

from grpo_practice.core.redact import redactor

_COMMAND = re.compile(r"grpo-practice \S|\bexport \w+=|\bpip install ")
NARROWEST = 10
"""Minimum number of columns for any layout."""


class _Console(Console):
    """Console that prints text literally, without markup or highlighting, but hides secrets."""

    def __init__(self, *, stderr: bool, **how: Any) -> None:
        super().__init__(stderr=stderr, markup=False, highlight=False, emoji=False, **how)
        if self.width < NARROWEST:
            # COLUMNS=0 means unknown; rich would print empty lines or nothing.
            self.width = NARROWEST if self.width else 80

    @override
    def render_str(self, text: str, **how: Any) -> Text:
        """Return the text as Text, with secrets replaced before a line break can split one."""
        return super().render_str(redactor.text(text), **how)

    @override
    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError; rich would end the process, even during a run."""
        raise BrokenPipeError(errno.EPIPE, "nobody reads this any more")


out = _Console(stderr=False)
"""stdout: the results of a command."""
err = _Console(stderr=True)
"""stderr: progress, notices, errors."""


def in_one(console: Console, text: str) -> bool:
    """Return whether a line must not be wrapped.

    Lines are not wrapped if the output is not a terminal, or if they contain a command that a user
    may copy.
    """
    seen = console.is_terminal and not is_coloured_file(console)
    return not seen or _COMMAND.search(text) is not None


def is_coloured_file(console: Console) -> bool:
    """Return whether FORCE_COLOR makes rich treat a file or a pipe as a terminal."""
    forced = os.environ.get("FORCE_COLOR") or os.environ.get("TTY_COMPATIBLE")
    return bool(forced) and not console.file.isatty()


def print_line(console: Console, line: str, style: str | None = None) -> None:
    """Print a line; wrapped lines are indented like its first word."""
    # Redact before splitting the line, because half a secret is not recognised.
    text = Text(redactor.text(line))
    indent, one = len(line) - len(line.lstrip(" ")), in_one(console, line)
    if indent and not one:
        console.print(Padding(text[indent:], (0, 0, 0, indent), expand=False), style=style)
    else:
        console.print(text, style=style, soft_wrap=one)


def as_text(what: RenderableType, width: int | None) -> str:
    """Render to text without styles, in this many columns (None: the terminal's width)."""
    console = _Console(stderr=False)
    if width is not None:
        console.width = width
    with console.capture() as captured:
        console.print(what)
    return captured.get()
