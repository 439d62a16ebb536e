"""The interface of a backend, and the error for an unavailable backend."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from grpo_practice.core.errors import ConfigError

Run = Callable[[str, float], Awaitable[str]]
"""Runs code for at most the given number of seconds, and returns its output and the value of its
last expression, or its traceback. All processes that the code started are killed when this call
returns, raises or is cancelled.

Raises:
    ToolError: The code could not be run.
"""


@dataclass(frozen=True, slots=True)
class Backend:
    """An environment in which code runs; it has passed a trial run."""

    run: Run
    runs_in: str
    """Name and version, stored with results."""
    about: str
    """Available libraries, as described to the model."""


_OTHERS = {
    "monty": "comes with this program and needs nothing (it has no numpy)",
    "bwrap": "needs Linux and bubblewrap 0.7 or newer",
    "docker": "needs an engine and an image",
    "subprocess": "runs anywhere, but is not a security boundary",
}


def refused(name: str, why: str, hint: str | None = None) -> ConfigError:
    """Return the error for a backend that does not work here; no other backend replaces it."""
    others = "; ".join(f"{other} {what}" for other, what in _OTHERS.items() if other != name)
    choice = f"another config.backend: {others}"
    return ConfigError(
        f"python_executor: the backend {name} does not work here: {why}",
        hint=f"{hint}, or choose {choice}" if hint else f"choose {choice}",
    )
