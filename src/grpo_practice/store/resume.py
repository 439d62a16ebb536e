"""Choice of the branch that a command works on: a new branch, the newest one or a restarted one.

The decision is a pure function, so that tests can list every case as a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_practice.core.errors import ChangedKey, ConfigError, FingerprintError
from grpo_practice.store.identity import (
    METHOD,
    diff,
    is_edited_verify,
    undoing_hint,
)


@dataclass(frozen=True, slots=True)
class Head:
    """Data about the newest branch of a run that the decision needs."""

    cause: str
    from_step: int
    identity: Mapping[str, Any]
    recorded: int
    """Number of recorded steps of the run: 1 + the last closed one."""
    own_closed: int
    """Number of closed steps in this branch itself."""
    finished: bool


@dataclass(frozen=True, slots=True)
class Begin:
    """Begin the first branch of a run."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Resume the newest branch."""

    notice: str | None = None


@dataclass(frozen=True, slots=True)
class Rebind:
    """Replace the newest branch under a changed configuration, and reuse its answers.

    Either the branch has closed no step, or an edited verify function scores the stored answers
    again.
    """

    notice: str


@dataclass(frozen=True, slots=True)
class Restart:
    """Begin a new branch: steps before `step` are kept, `step` and later ones are played again."""

    step: int
    goes_on: bool = False
    """True if `step` is open, so that its existing calls may be reused."""


ResumeDecision = Begin | Resume | Rebind | Restart


def resume_decision(
    run: str,
    head: Head | None,
    identity: Mapping[str, Any],
    *,
    restart_step: int | None,
    again: bool = False,
    whole: bool = False,
) -> ResumeDecision:
    """Return how to continue a run, based on its newest branch.

    `head` is the newest branch, None for a new run; `identity` is the identity that the command
    would bind the run to. `again` repeats a restart that is in progress or finished. A `whole` run,
    which is an evaluation, can only be restarted as a whole.

    Raises:
        FingerprintError: Closed steps have another identity, and no restart was requested.
        ConfigError: `restart_step` is beyond the recorded steps.
    """
    recorded = head.recorded if head else 0
    if restart_step is not None and not 0 <= restart_step <= recorded:
        steps = f"{recorded} step{'s' if recorded != 1 else ''}"
        raise ConfigError(
            f"cannot restart {run} at step {restart_step}: it has {steps} recorded",
            hint=f"give a number from 0 to {recorded}, or omit --restart-step to continue",
        )
    if head is None:
        return Begin()
    changes = diff(head.identity, identity)
    # Before the check of the identity: a restart is how a run continues with a changed one.
    if restart_step is not None:
        return _restart(head, restart_step, changes, again=again)
    is_new_method = any(change.key == METHOD for change in changes)
    # A finished run is only read, so the version of the method that merged it does not matter.
    if not changes or (head.finished and is_new_method and len(changes) == 1):
        return Resume()
    if head.own_closed == 0:
        keys = ", ".join(c.key for c in changes)
        return Rebind(
            f"{run}: {keys} changed before any step was closed; continuing with the change"
        )
    # A branch that was restarted at a later step holds only some of the answers.
    if whole and head.from_step == 0 and is_edited_verify(changes):
        return Rebind(f"{run}: the verify function has changed; it scores the stored answers again")
    if whole:
        afresh = "--restart-step 0 to ask all questions again"
    elif head.finished:
        afresh = "--restart-step N to play from step N again"
    else:
        afresh = f"--restart-step {recorded} to keep the steps before it and continue from there"
    undo = "" if is_new_method else f"undo the change{undoing_hint(changes)}, "
    raise FingerprintError(
        f"{run} was started with a different configuration",
        changes,
        hint=f"{undo}give the run another exp_id, or add {afresh}",
    )


def _restart(head: Head, step: int, changes: list[ChangedKey], *, again: bool) -> ResumeDecision:
    if changes or again:
        # `recorded` is also the number of the open step, if there is one.
        return Restart(step, goes_on=step == head.recorded > 0 and not again)
    if head.cause == "restart" and head.from_step == step and not head.finished:
        return Resume(f"resuming the restart at step {step} (--again starts another)")
    if head.cause == "restart" and head.from_step == step > 0:
        return Resume(f"the restart at step {step} is already finished (--again repeats it)")
    if step == head.recorded > 0:
        return Resume(f"steps 0 to {step - 1} are recorded: continuing from there")
    return Restart(step)
