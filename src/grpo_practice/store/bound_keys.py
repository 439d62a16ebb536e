"""Meaning of the keys of an identity: the flat, dotted keys that a branch is bound to.

`config/identity.py` chooses which keys of a configuration belong to it. Only this module reads them
back. In the identity of a practice run, the agent's keys are below `evaluation.`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from grpo_practice.errors import Change

Identity = Mapping[str, Any]

METHOD = "practice.method"
AGENT_SHA = "agent.sha256"
LIBRARY_SHA = "library.sha256"
MODEL_SHA = "train.model_sha256"
WEIGHTS_SHA = "weights.sha256"
"""Key of an evaluation of trained weights: their hash."""
POPULATION = "train.population"
"""Key of a member of a population: how its members are compared."""
ORIGIN = "train.origin"
"""Key of a member that has taken over weights: whose, and after which step."""
TEACHER_CONTEXT = "practice.teacher_context"
INSTRUCTIONS = "agent.agent.instructions"
MODEL = "agent.model.model_provider.model"
_EITHER = ("", "evaluation.")
"""Prefixes of the agent's keys in the identity of an evaluation, and of a practice run."""

_METHODS: Mapping[object, str] = {
    1: "1 (proposals are outvoted, answers that a text gives away are dropped)",
}
"""Values of `practice.METHOD` in words."""


def diff(was: Identity, now: Identity) -> list[Change]:
    """Return the keys whose values differ, in order of their names."""
    keys = sorted(was.keys() | now.keys())
    return [_change(k, was, now) for k in keys if was.get(k) != now.get(k)]


def _change(key: str, was: Identity, now: Identity) -> Change:
    """Return the change as a person reads it: of a file that is another one, not two hashes."""
    if key == METHOD:
        return Change(key, *(_METHODS.get(of.get(key), of.get(key)) for of in (was, now)))
    if key != AGENT_SHA:
        return Change(key, was.get(key), now.get(key))
    before, after = (_program_of(identity) for identity in (was, now))
    return Change(key, before, f"{after}, which has changed" if after == before else after)


def _program_of(identity: Identity) -> str | None:
    """Return the agent's file, or its command; None where it is no program of the user's."""
    for at in _EITHER:
        if function := identity.get(f"{at}agent.function"):
            return str(function).rpartition(":")[0]
        if command := identity.get(f"{at}agent.command"):
            return f"a file of {' '.join(command)}"
    return None


def is_edited_verify(changes: Sequence[Change]) -> bool:
    """Return True when nothing but the file of the verify function has changed."""
    return [change.key for change in changes] == ["verify.sha256"]


def undoing_hint(changes: Sequence[Change]) -> str:
    """Say how to undo a change that nobody made: the listed context of a model may be another."""
    was = next((c.was for c in changes if c.key == TEACHER_CONTEXT), None)
    return f" (set {TEACHER_CONTEXT}: {was})" if was is not None else ""


def keeps_checkpoints(changes: Sequence[Change]) -> bool:
    """Return False where what a training run has saved does not fit what it is to be.

    A change of the base, of the adapter's shape, or of how updates are counted does not fit.
    """
    fixed = (MODEL_SHA, "train.update_epochs", "train.lora.")
    return not any(change.key.startswith(fixed) for change in changes)


def origin_of(identity: Identity) -> str | None:
    """Return whose weights a member of a population has taken over; None for its own."""
    found = identity.get(ORIGIN)
    return None if found is None else str(found)


def population_of(identity: Identity) -> str | None:
    """Return how the members of a population are compared; None for any other run."""
    found = identity.get(POPULATION)
    return None if found is None else str(found)


def scoring_of(identity: Identity) -> dict[str, Any]:
    """Return what says who is scored, and how, under an evaluation's keys."""
    keys = {key: key.removeprefix("evaluation.") for key in identity}
    return {k: identity[key] for key, k in keys.items() if k.startswith(("agent.", "verify."))}


def agent_of(identity: Identity) -> dict[str, Any]:
    """Return what an identity says of the agent, under an evaluation's keys."""
    return {k: value for k, value in scoring_of(identity).items() if k.startswith("agent.")}


def instructions_of(identity: Identity) -> str:
    """Return the instructions of the agent; "" if it has none."""
    return str(agent_of(identity).get(INSTRUCTIONS) or "")


def has_own_agent(identity: Identity) -> bool:
    """Return True when the rollouts are played by an agent of the user's own."""
    return agent_of(identity).get("agent.type") in ("python", "command")


def verify_of(identity: Identity) -> str:
    """Return the name of the verify function that scores."""
    return str(scoring_of(identity)["verify.name"])
