"""The formats that an agent is exported in. Light to import: the command line lists them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

Format = Literal["yaml", "md", "json"]
"""Formats, each named as its files end; the first is what `eval --agent` reads."""


@dataclass(frozen=True, slots=True)
class Exported:
    """An agent with what it learnt, as a text."""

    text: str
    format: Format


def format_of(path: Path | None) -> Format:
    """Return the format that a file's name asks for, or the first one."""
    suffix = path.suffix.lower().removeprefix(".") if path else ""
    formats: tuple[Format, ...] = get_args(Format)
    return next((name for name in formats if name == suffix), formats[0])
