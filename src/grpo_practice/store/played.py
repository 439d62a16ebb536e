"""The agent that a run plays, derived from the run's identity."""

from grpo_practice.core.hashing import digest, text_sha
from grpo_practice.core.prompts.system import block_sha, library_sha, system_prompt
from grpo_practice.core.types import Library
from grpo_practice.store.identity import (
    INSTRUCTIONS,
    MODEL,
    WEIGHTS_SHA,
    agent_of,
    instructions_of,
)
from grpo_practice.store.records import EFFECT, Played, RunSpec


def played_by(spec: RunSpec) -> Played:
    """Return the agent that a run with this spec plays."""
    agent = agent_of(spec.identity)
    agent.pop(INSTRUCTIONS, None)
    weights = spec.identity.get(WEIGHTS_SHA)
    library = spec.library if spec.kind == "eval" else None
    return Played(
        model=spec.base_model or agent.get(MODEL) or None,
        k=spec.k,
        seed=spec.seed,
        agent_sha=digest(agent),
        weights_sha=bytes.fromhex(weights) if weights else None,
        library_sha=None if library is None else _library_sha(spec, library),
        prompt_sha=None
        if library is None or spec.purpose == EFFECT
        else prompt_sha(instructions_of(spec.identity), library),
    )


def prompt_sha(instructions: str, library: Library) -> bytes:
    """Hash the system prompt of an agent with a library. Shape: [32] bytes."""
    return text_sha(system_prompt(instructions, library))


def _library_sha(spec: RunSpec, library: Library) -> bytes | None:
    """Hash the library; the library of an exported agent is inside its instructions."""
    return library_sha(library) if library else block_sha(instructions_of(spec.identity))
