"""Meaning of the keys of an identity: the flat, dotted keys that a branch is bound to.

Which keys of a configuration are among them says `config/identity.py`. Here is the one place that
reads them back: stored identities are of any version, and those of practice runs have the agent's
keys below `evaluation.`.
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

LATER_KEYS: Identity = {
    AGENT_SHA: None,
    "practice.overlap": 0.0,
    "practice.summaries": "always",
    TEACHER_CONTEXT: 32_768,
    METHOD: 1,
    "practice.answer_guard": True,
    "practice.gate": "none",
    **{f"{at}agent.stop_at_tool_names": [] for at in _EITHER},
    **{f"{at}agent.function": None for at in _EITHER},
    **{f"{at}agent.command": None for at in _EITHER},
}
"""Keys that came with a later version, with the value that says what was done before.

A new key of the identity needs an entry: without one, every stored run counts as changed. So does
one that went (`practice.gate`): stored identities have it.
"""
TEACHER_KEYS = frozenset({"practice.summaries", TEACHER_CONTEXT})
"""Later keys whose default does otherwise than before: they matter to the teacher alone."""
REMOVED_VALUES: Identity = {"practice.group_policy": "adaptive"}
"""Values that a stored run may be bound to and no configuration can have any more."""
_METHODS = {
    1: "1 (every merged proposal passes)",
    2: "2 (what is outvoted does not pass)",
    3: "3 (a sentence that gives an answer away is dropped)",
}
"""Values of `practice.METHOD` in words."""


def complete(identity: Identity) -> dict[str, Any]:
    """Return the identity with the keys that came after it was stored."""
    if MODEL_SHA in identity:  # a training run: none of these keys was ever its own
        return {**identity}
    practises = any(key.startswith("evaluation.") for key in identity)
    later = LATER_KEYS.items()
    # An evaluation's agent has no prefix: a null under the other name would hide it in `agent_of`.
    return {k: v for k, v in later if practises or not k.startswith("evaluation.")} | {**identity}


def diff(was: Identity, now: Identity) -> list[Change]:
    """Return the keys whose values differ, in order of their names."""
    was, now = complete(was), complete(now)
    keys = sorted(was.keys() | now.keys())
    return [_change(k, was, now) for k in keys if was.get(k) != now.get(k)]


def _change(key: str, was: Identity, now: Identity) -> Change:
    """Return the change as a person reads it: of a file that is another one, not two hashes."""
    if key == METHOD:
        return Change(key, *(_METHODS.get(of[key], of[key]) for of in (was, now)))
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


def is_later_default(change: Change, was: Identity) -> bool:
    """Return True when a later version made this change: a run that has ended asks nothing."""
    return change.key == METHOD or (change.key in TEACHER_KEYS and change.key not in was)


def is_edited_verify(changes: Sequence[Change]) -> bool:
    """Return True when nothing but the file of the verify function has changed."""
    return [change.key for change in changes] == ["verify.sha256"]


def can_be_undone(changes: Sequence[Change]) -> bool:
    """Return True unless no configuration of this version gives back what was there before."""
    return not any(c.key == METHOD or REMOVED_VALUES.get(c.key) == c.was for c in changes)


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


def has_own_agent(identity: Identity) -> bool:
    """Return True when the rollouts are played by an agent of the user's own."""
    return agent_of(identity).get("agent.type") in ("python", "command")


def verify_of(identity: Identity) -> str:
    """Return the name of the verify function that scores."""
    return str(scoring_of(identity)["verify.name"])


def counts_votes(identity: Identity) -> bool:
    """Return True when proposals say what they found of the experience that they name."""
    return bool(complete(identity)[METHOD] >= 2)
