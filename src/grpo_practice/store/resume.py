"""Which branch a command works on: a new one, the newest, or one that starts in the middle.

Pure, so that every case is a row of a test.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_practice.errors import Change, ConfigError, FingerprintError
from grpo_practice.store.bound_keys import (
    METHOD,
    diff,
    is_edited_verify,
    undoing_hint,
)


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
    """Replace the newest branch under a changed configuration; its answers are used.

    The branch has closed nothing, or an edited verify function scores the stored answers again.
    """

    notice: str


@dataclass(frozen=True, slots=True)
class Restart:
    """A new branch: steps before `step` are kept, `step` and later are played afresh."""

    step: int
    goes_on: bool = False
    """True if `step` is open: calls that it has made already may be reused."""


ResumeDecision = Start | Resume | Rebind | Restart


def resume_decision(
    run: str,
    head: Head | None,
    identity: Mapping[str, Any],
    *,
    restart_step: int | None,
    again: bool = False,
    whole: bool = False,
) -> ResumeDecision:
    """Return what to do, given how the run stands.

    `head` is its newest branch, None for a run that is not there yet; `identity`, what the command
    would bind it to. `again` repeats a restart that is under way or finished; a `whole` run, an
    evaluation, can only be restarted as a whole.

    Raises:
        FingerprintError: Closed steps were made under another identity and nothing says restart.
        ConfigError: `restart_step` is not among what is recorded.
    """
    recorded = head.recorded if head else 0
    if restart_step is not None and not 0 <= restart_step <= recorded:
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
    is_new_method = any(change.key == METHOD for change in changes)
    # A finished run is only read, whichever version merged it.
    if not changes or (head.finished and is_new_method and len(changes) == 1):
        return Resume()
    if head.own_closed == 0:
        keys = ", ".join(c.key for c in changes)
        return Rebind(f"{run}: {keys} changed before any step was closed; going on with it")
    # A branch that was restarted in the middle has only some of its answers.
    if whole and head.from_step == 0 and is_edited_verify(changes):
        return Rebind(f"{run}: the verify function has changed; it scores the stored answers again")
    if whole:
        afresh = "--restart-step 0 to ask all questions afresh"
    elif head.finished:
        afresh = "--restart-step N to play from step N on afresh"
    else:
        afresh = f"--restart-step {recorded} to keep the steps before it and go on from there"
    undo = "" if is_new_method else f"undo the change{undoing_hint(changes)}, "
    raise FingerprintError(
        f"{run} was started with another configuration",
        changes,
        hint=f"{undo}give the run another exp_id, or add {afresh}",
    )


def _restart(head: Head, step: int, changes: list[Change], *, again: bool) -> ResumeDecision:
    if changes or again:
        return Restart(step, goes_on=step == head.recorded > 0 and not again)
    if head.cause == "restart" and head.from_step == step and not head.finished:
        return Resume(
            f"going on with the restart at step {step} that was under way (--again starts another)"
        )
    if head.cause == "restart" and head.from_step == step > 0:
        return Resume(
            f"the restart at step {step} is finished, and not played again (--again repeats it)"
        )
    if step == head.recorded > 0:
        return Resume(f"steps 0 to {step - 1} are recorded: going on from there")
    return Restart(step)
