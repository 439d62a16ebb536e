"""The protocol of a backend, and the error when one cannot be had."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from grpo_practice.errors import ConfigError

Run = Callable[[str, float], Awaitable[str]]
"""Runs code for at most so many seconds, and gives what it printed, the value of its last
expression, or its traceback. All that it started is killed when this returns, raises or is
cancelled.

Raises:
    ToolError: It could not be run.
"""


@dataclass(frozen=True, slots=True)
class Backend:
    """Place where code runs, tried."""

    run: Run
    runs_in: str
    """Name and version, for the record."""
    about: str
    """Libraries that code can use there, for the model."""


_OTHERS = {
    "monty": "comes with this program and needs nothing (it has no numpy)",
    "bwrap": "needs Linux and bubblewrap 0.7 or newer",
    "docker": "needs an engine and an image",
    "subprocess": "runs anywhere, and is no security boundary",
}


def refused(name: str, why: str, hint: str | None = None) -> ConfigError:
    """Return the error that a backend does not work here: never is another one taken for it."""
    others = "; ".join(f"{other} {what}" for other, what in _OTHERS.items() if other != name)
    choice = f"another config.backend: {others}"
    return ConfigError(
        f"python_executor: the backend {name} does not work here: {why}",
        hint=f"{hint}, or choose {choice}" if hint else f"choose {choice}",
    )
