"""Call of a program of the user's: what it is given of our environment, and what came of it."""

import signal
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_practice import user_code
from grpo_practice.canonical import clean
from grpo_practice.errors import AgentError
from grpo_practice.text import cut

MAX_OUTPUT = 2**20
"""Limit in bytes of an answer, and of all that a program prints."""
SAID_CHARS = 2_000
"""Characters that are kept of a program's own words about its failure."""
PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Variables of our environment that a program in a process of its own gets; no keys."""
_OURS = frozenset(
    str(Path(user_code.__file__).parent / name)
    for name in ("user_code.py", "agents/programs.py", "agents/worker.py", "agents/on_node.py")
)
"""Files of ours that an error of the user's passes through."""


@dataclass(frozen=True, slots=True)
class ProgramContext:
    """The model, attempt and time limit, given to a program besides question and system prompt."""

    base_url: str
    """OpenAI-compatible address of its model, for this rollout only."""
    api_key: str
    """Key of this rollout, which the address has in it."""
    model: str
    """Configured model."""
    attempt: int
    """Number of the attempt at this question: 0, 1, …"""
    seed: int
    """Seed of random choices: the same when the rollout is resumed."""
    limit_s: float
    """Seconds that the rollout may take, waits for the endpoint not counted."""


def command_environment(context: ProgramContext, ours: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program, so that OpenAI clients find the rollout's model."""
    kept = {name: ours[name] for name in PASSED if name in ours}
    return kept | {
        "OPENAI_BASE_URL": context.base_url,
        "OPENAI_API_BASE": context.base_url,
        "OPENAI_API_KEY": context.api_key,
        "OPENAI_MODEL": context.model,
    }


def answer_text(value: Any, what: str) -> str:
    """Return the answer as text, '' for None; raise AgentError for anything else."""
    if value is None:
        return ""
    if not issubclass(type(value), str):
        raise AgentError(f"{what} {type(value).__name__}, not text")
    text = exactly(value)
    if len(text) > MAX_OUTPUT:
        raise AgentError(f"{what} more than {MAX_OUTPUT // 1024:,} KiB")
    return text


def exactly(text: str) -> str:
    """Return a text of the class itself: one of another's brings its code to whoever reads it."""
    return str.__str__(text)


def raised(name: str, error: BaseException) -> AgentError:
    """Return what a function raised, with the outermost place in the user's code."""
    theirs = (
        f" at {Path(frame.f_code.co_filename).name}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename not in _OURS
    )
    return agent_error(f"{name} raised {type(error).__name__}{next(theirs, '')}: {error}")


def ended(code: int) -> str:
    """Say how a process ended, by its exit code; a negative one is a signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"was ended by {names.get(-code, f'signal {-code}')}"


def agent_error(text: str) -> AgentError:
    """Return the error of a program, in words of a length that a person reads."""
    return AgentError(cut(clean(text), SAID_CHARS + 500))
