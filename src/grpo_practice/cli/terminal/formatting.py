"""Lines, numbers, durations and documents for the terminal, and prompts to the user."""

import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from grpo_practice.cli.options import continuing, on_database
from grpo_practice.core.errors import ConfigError, DeclinedError
from grpo_practice.core.text import count as count
from grpo_practice.core.text import visible

if TYPE_CHECKING:
    from grpo_practice.core.events import Event


def say(text: str, *, style: str | None = None) -> None:
    """Print a line on stdout, with control characters visible and words wrapped on a terminal."""
    from grpo_practice.cli.terminal.consoles import out, print_line

    print_line(out, visible(text), style)


def note(text: str, *, style: str | None = None) -> None:
    """Print a line on stderr, formatted as by `say`."""
    from grpo_practice.cli.terminal.consoles import err, print_line

    print_line(err, visible(text), style)


def say_next(command: str) -> None:
    """Print the next command to run, with the `--db` that was typed."""
    say(f"next: {on_database(command)}")


def say_restarted(step: int | None) -> None:
    """Print the command that resumes a run, if this command restarted it at a step."""
    if step is not None:
        say(f"restarted at step {step}; to continue without a restart: {on_database(continuing())}")


def note_next(command: str) -> None:
    """Print the next command on stderr, because stdout carries other output."""
    note(f"next: {on_database(command)}")


def tell(event: "Event") -> None:
    """Print a command's notice on stderr."""
    from grpo_practice.core.events import Notice

    if isinstance(event, Notice):
        note(event.text)


def warn(event: "Event") -> None:
    """Print a notice on stderr in yellow, as a run's progress does."""
    from grpo_practice.core.events import Notice

    if isinstance(event, Notice):
        note(f"note: {event.text}", style="yellow")


def print_json(document: Mapping[str, Any]) -> None:
    """Print a document on stdout as ASCII, so that its text cannot control the terminal."""
    # Flush, because `serve` and `view` keep running after their document.
    print(json.dumps(_on_database(document), indent=2, allow_nan=False), flush=True)


def _on_database(part: Any) -> Any:
    """Return a part of a document with the typed `--db` added to its commands."""
    if isinstance(part, Mapping):
        return {
            key: on_database(value)
            if key in ("next", "hint", "command") and isinstance(value, str)
            else _on_database(value)
            for key, value in part.items()
        }
    return [_on_database(one) for one in part] if isinstance(part, (list, tuple)) else part


def confirm(question: str, *, yes: bool) -> None:
    """Ask the user to confirm, unless `--yes` was given.

    Raises:
        ConfigError: stdin is not a terminal.
        DeclinedError: The user declined.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"{question} Cannot ask: stdin is not a terminal", hint="add --yes")
    # On stderr, because stdout may be a file or a JSON document.
    if not typer.confirm(visible(question), err=True):
        raise DeclinedError("nothing was changed")


def choose(question: str, *choices: str) -> str | None:
    """Ask for one of the choices until the answer is valid; return None without a terminal."""
    if not sys.stdin.isatty():
        return None
    asked = f"{visible(question)} ({'/'.join(choices)})"
    while (said := str(typer.prompt(asked, err=True)).strip().lower()) not in choices:
        note(f"{said!r} is not one of {', '.join(choices)}")
    return said


def ask(question: str, default: str) -> str | None:
    """Ask for a text, with a default; return None without a terminal."""
    if not sys.stdin.isatty():
        return None
    return str(typer.prompt(visible(question), default=default, err=True)).strip()


def tokens(n: int | None) -> str:
    """Format a number of tokens: `950`, `12.3k`, `1.23M`; `unknown` for None."""
    if n is None:
        return "unknown"
    if n < 10_000:
        return str(n)
    return f"{n / 1e3:.1f}k" if n < 999_950 else f"{n / 1e6:.2f}M"


def cached_share(tokens_in: int | None, cached: int | None) -> str:
    """Format the share of the input that was cached: `24 %`; '' if unknown."""
    return "" if cached is None or not tokens_in else f"{100 * cached / tokens_in:.0f} %"


def duration(seconds: float) -> str:
    """Format seconds: `4.2 s`, `42 s`, `3 min 10 s`, `2 h 5 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3_600} h {whole % 3_600 // 60} min"


def file_size(size: int) -> str:
    """Format a number of bytes: `950 bytes`, `412 KB`, `1.2 MB`."""
    if size < 1_000:
        return f"{size} bytes"
    return f"{size / 1e3:.0f} KB" if size < 1_000_000 else f"{size / 1e6:.1f} MB"


def reward(value: float | None) -> str:
    """Format a reward: `0.612`; `-` for None."""
    return "-" if value is None else f"{value:.3f}"
