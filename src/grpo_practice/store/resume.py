"""Which branch a command works on: a new one, the newest, or one that starts in the middle.

Pure, so that every case is a row of a test.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_practice.errors import Change, ConfigError, FingerprintError


@dataclass(frozen=True, slots=True)
class Head:
    """The newest branch of a run, as far as the decision needs it."""

    cause: str
    from_step: int
    identity: Mapping[str, Any]
    recorded: int
    """Steps of the run with something closed: 1 + the last closed one."""
    own_closed: int
    """Closed steps that this branch itself holds."""
    finished: bool


@dataclass(frozen=True, slots=True)
class Start:
    """A run's first branch."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Go on with the newest branch."""

    notice: str | None = None


@dataclass(frozen=True, slots=True)
class Rebind:
    """Replace the newest branch, which has closed nothing, under a changed configuration."""

    notice: str


@dataclass(frozen=True, slots=True)
class Restart:
    """A new branch: steps before `step` are kept, `step` and later are played afresh."""

    step: int


ResumeDecision = Start | Resume | Rebind | Restart


ADDED: dict[str, Any] = {
    "agent.sha256": None,
    "practice.overlap": 0.0,
    "practice.summaries": "always",
    "practice.teacher_context": 32_768,
    "practice.method": 1,
    "practice.answer_guard": True,
    **{f"{at}agent.stop_at_tool_names": [] for at in ("", "evaluation.")},
    **{f"{at}agent.function": None for at in ("", "evaluation.")},
    **{f"{at}agent.command": None for at in ("", "evaluation.")},
}
"""Keys that came with a later version, and what was done before."""
TEACHING = frozenset({"practice.summaries", "practice.teacher_context"})
"""Such of them as have a default that does otherwise than before: they matter to the teacher."""
_METHODS = {1: "1 (every merged proposal passes)", 2: "2 (what is outvoted does not pass)"}
"""`practice.METHOD` in words."""
REMOVED: Mapping[str, Any] = {"practice.group_policy": "adaptive"}
"""Values that a stored run may be bound to and no configuration can have any more."""


def diff(was: Mapping[str, Any], now: Mapping[str, Any]) -> list[Change]:
    """The keys whose values differ, in order of their names."""
    was, now = {**ADDED, **was}, {**ADDED, **now}
    keys = sorted(was.keys() | now.keys())
    return [_change(k, was, now) for k in keys if was.get(k) != now.get(k)]


def _change(key: str, was: Mapping[str, Any], now: Mapping[str, Any]) -> Change:
    """What a person can read: of a file that has changed its name, not two hashes."""
    if key == "practice.method":
        return Change(key, *(_METHODS.get(of[key], of[key]) for of in (was, now)))
    if key != "agent.sha256":
        return Change(key, was.get(key), now.get(key))
    before, after = (_program(identity) for identity in (was, now))
    return Change(key, before, f"{after}, which has changed" if after == before else after)


def _only_later(change: Change, was: Mapping[str, Any]) -> bool:
    """Return True when a later version made this change: a run that has ended asks nothing."""
    return change.key == "practice.method" or (change.key in TEACHING and change.key not in was)


def _program(identity: Mapping[str, Any]) -> str | None:
    """The file of the agent, or the command that names some; None where it is no program."""
    for at in ("", "evaluation."):
        if function := identity.get(f"{at}agent.function"):
            return str(function).rpartition(":")[0]
        if command := identity.get(f"{at}agent.command"):
            return f"a file of {' '.join(command)}"
    return None


def decide(
    run: str,
    head: Head | None,
    identity: Mapping[str, Any],
    *,
    restart_step: int | None,
    again: bool = False,
    whole: bool = False,
) -> ResumeDecision:
    """What to do, given how the run stands.

    Args:
        run: Its name.
        head: Its newest branch; None for a run that is not there yet.
        identity: What the command would bind it to.
        restart_step: As the command says.
        again: Whether a restart that is under way is begun anew.
        whole: Whether the run can only be restarted as a whole: an evaluation.

    Raises:
        FingerprintError: Closed steps were made under another identity and nothing says restart.
        ConfigError: `restart_step` is beyond what is recorded.
    """
    recorded = head.recorded if head else 0
    if restart_step is not None and restart_step > recorded:
        steps = f"{recorded} step{'s' if recorded != 1 else ''}"
        raise ConfigError(
            f"cannot restart {run} at step {restart_step}: it has {steps} recorded",
            hint=f"give a number from 0 to {recorded}, or leave --restart-step out to continue",
        )
    if head is None:
        return Start()
    changes = diff(head.identity, identity)
    if restart_step is not None:
        return _restart(head, restart_step, changes, again=again)
    if not changes or (head.finished and all(_only_later(c, head.identity) for c in changes)):
        return Resume()
    if head.own_closed == 0:
        keys = ", ".join(c.key for c in changes)
        return Rebind(f"{run}: {keys} changed before any step was closed; going on with it")
    if whole:
        afresh = "--restart-step 0 to ask all questions afresh"
    elif head.finished:
        afresh = "--restart-step N to play from step N on afresh"
    else:
        afresh = f"--restart-step {recorded} to keep the steps before it and go on from there"
    beyond = any(c.key == "practice.method" or REMOVED.get(c.key) == c.was for c in changes)
    undo = "" if beyond else f"undo the change{_by_hand(changes)}, "
    raise FingerprintError(
        f"{run} was started with another configuration",
        changes,
        hint=f"{undo}give the run another exp_id, or add {afresh}",
    )


def _by_hand(changes: Sequence[Change]) -> str:
    """Say how to undo a change that nobody made: the listed context of a model may be another."""
    was = next((c.was for c in changes if c.key == "practice.teacher_context"), None)
    return f" (set practice.teacher_context: {was})" if was is not None else ""


def _restart(head: Head, step: int, changes: list[Change], *, again: bool) -> ResumeDecision:
    if changes or again:
        return Restart(step)
    if head.cause == "restart" and head.from_step == step and not head.finished:
        return Resume(
            f"going on with the restart at step {step} that was under way (--again starts another)"
        )
    if step == head.recorded > 0:
        return Resume(f"steps 0 to {step - 1} are recorded: going on from there")
    return Restart(step)
