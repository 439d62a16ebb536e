"""Interface to a user's program: the environment it receives, and the outcome of calling it."""

import json
import signal
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from grpo_practice.core import user_code
from grpo_practice.core.errors import AgentError
from grpo_practice.core.hashing import clean, clean_json
from grpo_practice.core.played import ToolUse
from grpo_practice.core.text import cut

MAX_OUTPUT = 2**20
"""Maximum size in bytes of an answer, and of everything that a program prints."""
SAID_CHARS = 2_000
"""Maximum number of characters kept from a program's own failure report."""
PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables of our environment that a program in its own process receives; these contain no
keys.
"""
MAX_LOGGED = 10_000
"""Maximum number of tool calls that a program may log."""
_OURS = frozenset(
    str(Path(user_code.__file__).parents[1] / name)
    for name in (
        "core/user_code.py",
        "rollout/agents/program_context.py",
        "rollout/agents/programs.py",
        "rollout/agents/worker.py",
        "rollout/agents/on_node.py",
    )
)
"""Our own files, which are skipped in the traceback of a user's error."""


@dataclass(frozen=True, slots=True)
class ProgramContext:
    """The model, attempt and time limit; the third argument of a program."""

    base_url: str
    """OpenAI-compatible URL of the program's model, valid only for this rollout."""
    api_key: str
    """Key of this rollout, which is also part of the URL."""
    model: str
    """Configured model."""
    attempt: int
    """Number of the attempt at this question: 0, 1, …"""
    seed: int
    """Seed for random choices; unchanged when the rollout is resumed."""
    limit_s: float
    """Seconds that the rollout may take, not counting waits for the endpoint."""
    logged: list[ToolUse] = field(default_factory=list, compare=False, repr=False)
    """Tool calls that the program has logged."""

    def log_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        result: str = "",
        *,
        failed: bool = False,
        seconds: float = 0.0,
    ) -> None:
        """Record a tool call of the program for verify functions, which otherwise cannot see it.

        Calls that the program's model requests are known from its requests; one that is also logged
        counts once. Nothing is kept if the program gives no answer.

        Raises:
            TypeError, ValueError: A value is not JSON or is too large, or there are too many calls.
        """
        if len(self.logged) >= MAX_LOGGED:
            raise ValueError(f"log_tool: more than {MAX_LOGGED:,} calls")
        self.logged.append(logged_tool(name, arguments, result, failed, seconds))

    @property
    def given(self) -> dict[str, Any]:
        """The fields that a command receives as JSON."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "logged"}


def logged_tool(
    name: object, arguments: object, result: object, failed: object, seconds: object
) -> ToolUse:
    """Return a tool call of a program as plain values; raise TypeError or ValueError."""
    for key, text in (("name", name), ("result", result)):
        if not isinstance(text, str):
            raise TypeError(f"log_tool: {key} must be text, not {type(text).__name__}")
    if not isinstance(arguments, Mapping | None):
        raise TypeError(f"log_tool: arguments must be a dict, not {type(arguments).__name__}")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
        raise TypeError(f"log_tool: seconds must be a number of at least 0, not {seconds!r}")
    spelt = json.dumps(dict(arguments or {}), allow_nan=False)
    if len(spelt) > MAX_OUTPUT:
        raise ValueError(f"log_tool: arguments of more than {MAX_OUTPUT // 1024:,} KiB")
    said = exactly(str(result))[:MAX_OUTPUT]
    # Through JSON: what reaches another process must be plain values.
    return ToolUse(
        clean(exactly(str(name))), clean_json(json.loads(spelt)), said, bool(failed), float(seconds)
    )


Ended = tuple[bool, str, list[ToolUse]]
"""Whether a program answered, its answer or else the reason, and the tool calls that it logged."""


def command_environment(context: ProgramContext, ours: Mapping[str, str]) -> dict[str, str]:
    """Return a program's environment, through which OpenAI clients find the rollout's model."""
    kept = {name: ours[name] for name in PASSED if name in ours}
    return kept | {
        "OPENAI_BASE_URL": context.base_url,
        "OPENAI_API_BASE": context.base_url,
        "OPENAI_API_KEY": context.api_key,
        "OPENAI_MODEL": context.model,
    }


def answer_text(value: Any, what: str) -> str:
    """Return the answer as text, '' for None; raise AgentError for any other type."""
    if value is None:
        return ""
    # Not isinstance(), which also trusts `__class__`, an attribute that the object may define.
    if not issubclass(type(value), str):
        raise AgentError(f"{what} {type(value).__name__}, not text")
    text = exactly(value)
    if len(text) > MAX_OUTPUT:
        raise AgentError(f"{what} more than {MAX_OUTPUT // 1024:,} KiB")
    return text


def exactly(text: str) -> str:
    """Return the text as a plain `str`; a subclass could run its own code when the text is read."""
    return str.__str__(text)


def raised(name: str, error: BaseException) -> AgentError:
    """Return an AgentError for an exception, with the outermost location in the user's code."""
    theirs = (
        f" at {Path(frame.f_code.co_filename).name}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename not in _OURS
    )
    return agent_error(f"{name} raised {type(error).__name__}{next(theirs, '')}: {error}")


def ended(code: int) -> str:
    """Describe how a process ended, from its exit code; a negative code is a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was terminated by {names.get(-code, f'signal {-code}')}"


def agent_error(text: str) -> AgentError:
    """Return an AgentError for a program, with its text shortened to a readable length."""
    return AgentError(cut(clean(text), SAID_CHARS + 500))
