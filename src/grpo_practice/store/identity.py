"""Meaning of the keys in an identity: the flat, dotted keys that a branch is bound to.

`config/identity.py` chooses which keys of a configuration belong to the identity, and only this
module interprets stored keys. In the identity of a practice run, the agent's keys start with
`evaluation.`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_practice.core.errors import ChangedKey
from grpo_practice.core.hashing import digest, text_sha
from grpo_practice.core.prompts.system import (
    block_sha,
    library_sha,
    system_prompt,
    without_block,
)
from grpo_practice.core.text import brief, unlike
from grpo_practice.core.types import Library
from grpo_practice.store.records import EFFECT, AgentRecord, RunSpec

Identity = Mapping[str, Any]

SHOWN = 60
"""Maximum number of characters shown from a value that differs between two agents."""

METHOD = "practice.method"
AGENT_SHA = "agent.sha256"
LIBRARY_SHA = "library.sha256"
ATTEMPTS_SHA = "practice.attempts_sha256"
"""Key of a practice run on recorded attempts; the value is their hash."""
MODEL_SHA = "train.model_sha256"
WEIGHTS_SHA = "weights.sha256"
"""Key of an evaluation of trained weights; the value is their hash."""
POPULATION = "train.population"
"""Key of a member of a population; the value describes how its members are compared."""
ORIGIN = "train.origin"
"""Key of a member that copied another member's weights; the value is that member and the step."""
TEACHER_CONTEXT = "practice.teacher_context"
INSTRUCTIONS = "agent.agent.instructions"
MODEL = "agent.model.model_provider.model"
_OVERLAP, _VERIFY = "practice.overlap", "verify.name"
_TEXTS = (
    "agent.agent.name", "agent.type", "agent.function", INSTRUCTIONS, MODEL, _VERIFY,
    "verify.sha256", POPULATION, ORIGIN, AGENT_SHA, LIBRARY_SHA, MODEL_SHA, WEIGHTS_SHA,
    ATTEMPTS_SHA,
)  # fmt: skip
_TYPES: Mapping[str, type] = {**dict.fromkeys(_TEXTS, str), "agent.command": list, METHOD: int}
"""Keys that are read one by one, with the types of their values; each value may be null."""
_EITHER = ("", "evaluation.")
"""Prefixes of the agent's keys in the identities of evaluations and of practice runs."""

_METHODS: Mapping[object, str] = {
    1: "1 (votes decide on proposals, texts that give answers away are dropped)",
    2: "2 (votes and rewards are weighed by their precision, new experiences are on trial)",
}
"""Names of the values of `practice.METHOD`."""


def diff(was: Identity, now: Identity) -> list[ChangedKey]:
    """Return the keys with different values, in order of their names."""
    keys = sorted(was.keys() | now.keys())
    return [_change(k, was, now) for k in keys if was.get(k) != now.get(k)]


def _change(key: str, was: Identity, now: Identity) -> ChangedKey:
    """Return the change in readable form: for a changed file, its name instead of two hashes."""
    if key == METHOD:
        return ChangedKey(key, *(_METHODS.get(of.get(key), of.get(key)) for of in (was, now)))
    if key != AGENT_SHA:
        return ChangedKey(key, was.get(key), now.get(key))
    before, after = (_program_of(identity) for identity in (was, now))
    return ChangedKey(key, before, f"{after}, which has changed" if after == before else after)


def _program_of(identity: Identity) -> str | None:
    """Return the agent's file or command; None if the agent is not a user's program."""
    for at in _EITHER:
        if function := identity.get(f"{at}agent.function"):
            return str(function).rpartition(":")[0]
        if command := identity.get(f"{at}agent.command"):
            return f"a file of {' '.join(map(str, command))}"
    return None


def is_edited_verify(changes: Sequence[ChangedKey]) -> bool:
    """Return True if only the file of the verify function has changed."""
    return [change.key for change in changes] == ["verify.sha256"]


def undoing_hint(changes: Sequence[ChangedKey]) -> str:
    """Suggest how to undo a change that no person made, such as a new context size."""
    was = next((c.was for c in changes if c.key == TEACHER_CONTEXT), None)
    return f" (set {TEACHER_CONTEXT}: {was})" if was is not None else ""


def keeps_checkpoints(changes: Sequence[ChangedKey]) -> bool:
    """Return False if the checkpoints of a training run do not fit its new identity.

    Checkpoints do not fit after a change of the base model, of the adapter's shape, or of how
    updates are counted.
    """
    fixed = (MODEL_SHA, "train.update_epochs", "train.lora.")
    return not any(change.key.startswith(fixed) for change in changes)


def origin_of(identity: Identity) -> str | None:
    """Return the member whose weights this member of a population copied, or None."""
    found = identity.get(ORIGIN)
    return None if found is None else str(found)


def population_of(identity: Identity) -> str | None:
    """Return how the members of a population are compared; None for any other run."""
    found = identity.get(POPULATION)
    return None if found is None else str(found)


def scoring_of(identity: Identity) -> dict[str, Any]:
    """Return the keys of an identity that define the agent and its scoring, without a prefix."""
    keys = {key: key.removeprefix("evaluation.") for key in identity}
    return {k: identity[key] for key, k in keys.items() if k.startswith(("agent.", "verify."))}


def agent_of(identity: Identity) -> dict[str, Any]:
    """Return the keys of an identity that define the agent, without a prefix."""
    return {k: value for k, value in scoring_of(identity).items() if k.startswith("agent.")}


def agent_name(identity: Identity) -> str | None:
    """Return the name of the agent in its configuration; None for a recorded run."""
    return agent_of(identity).get("agent.agent.name")


def agent_changes(was: Identity, now: Identity) -> list[str]:
    """Return what differs between two agents, as `key: was → now`."""
    found = list[str]()
    for change in diff(agent_of(was), agent_of(now)):
        if change.key == "agent.agent.name":  # no model reads it
            continue
        values = str(change.was), str(change.now)
        if change.key == INSTRUCTIONS and any(map(block_sha, values)):
            # An exported agent's instructions include its library; compare only the rest.
            values = without_block(values[0]), without_block(values[1])
        if values[0] != values[1]:
            shown = " → ".join(text or "nothing" for text in unlike(*values, SHOWN))
            found.append(f"{change.key}: {shown}")
    return found


def instructions_of(identity: Identity) -> str:
    """Return the instructions of the agent, or ""."""
    return str(agent_of(identity).get(INSTRUCTIONS) or "")


def has_own_agent(identity: Identity) -> bool:
    """Return True if the user's own agent plays the rollouts."""
    return agent_of(identity).get("agent.type") in ("python", "command")


def key_faults(identity: Identity, kind: str) -> list[str]:
    """Return a fault for each stored key that a run of this kind lacks or cannot read."""
    types = {key: _TYPES.get(key.removeprefix("evaluation.")) for key in identity}
    wrong = [
        key
        for key, kind_of in types.items()
        if kind_of and not isinstance(identity[key], kind_of | None)
    ]
    if kind == "practice" and type(identity.get(_OVERLAP)) not in (int, float):
        wrong.append(_OVERLAP)
    if kind in ("eval", "train") and scoring_of(identity).get(_VERIFY) is None:
        wrong.append(_VERIFY)
    return [f"{key} is {brief(str(identity.get(key)), SHOWN)}" for key in wrong]


def overlap_of(identity: Identity) -> float:
    """Return the share of a step's groups that a practice run may begin early."""
    return float(identity[_OVERLAP])


def verify_of(identity: Identity) -> str:
    """Return the name of the verify function that scores the rollouts."""
    return str(scoring_of(identity)[_VERIFY])


def agent_record(spec: RunSpec) -> AgentRecord:
    """Return the agent that a run with this spec plays."""
    agent, instructions = agent_of(spec.identity), instructions_of(spec.identity)
    # They are part of the system prompt, whose hash is compared separately.
    agent.pop(INSTRUCTIONS, None)
    weights = spec.identity.get(WEIGHTS_SHA)
    library, prompt = None, None
    if spec.kind == "eval":
        # The library of an exported agent is inside its instructions.
        library = library_sha(spec.library) if spec.library else block_sha(instructions)
        prompt = prompt_sha(instructions, spec.library) if spec.purpose != EFFECT else None
    return AgentRecord(
        model=spec.base_model or agent.get(MODEL) or None,
        k=spec.k,
        seed=spec.seed,
        agent_sha=digest(agent),
        weights_sha=bytes.fromhex(weights) if weights else None,
        library_sha=library,
        prompt_sha=prompt,
    )


def prompt_sha(instructions: str, library: Library) -> bytes:
    """Hash the system prompt of an agent with a library. Shape: [32] bytes."""
    return text_sha(system_prompt(instructions, library))
