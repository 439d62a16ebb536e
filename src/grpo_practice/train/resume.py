"""Resume a training run at its last intact checkpoint."""

from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from grpo_practice.core.errors import ConfigError, FingerprintError
from grpo_practice.run.session import Session
from grpo_practice.run.weights import weights_sha
from grpo_practice.store import branches, steps, trained_steps
from grpo_practice.store.identity import diff, keeps_checkpoints, origin_of
from grpo_practice.store.queries import runs
from grpo_practice.store.records import CheckpointRow, RunSpec
from grpo_practice.store.resume import Resume
from grpo_practice.store.trained_steps import checkpoint_folder


@dataclass(frozen=True, slots=True)
class StartingPoint:
    """Step and weights from which a command starts."""

    session: Session
    """Session that starts a branch at this step if later steps are already recorded."""
    step: int = 0
    """First step to play."""
    folder: Path | None = None
    """Checkpoint to continue from; None starts from the base model."""
    saved: CheckpointRow | None = None
    """The run's last checkpoint before that step."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Checkpoint of another population member from which a member copies its weights."""

    run: str
    saved: CheckpointRow

    @property
    def text(self) -> str:
        """Text that identifies this checkpoint among all others."""
        return f"{self.run} after step {self.saved.step} ({self.saved.sha256.hex()[:16]})"


def start_of(
    session: Session, spec: RunSpec, *, total: int, origin: Origin | None = None
) -> StartingPoint:
    """Return the point at which a run with `total` planned steps resumes.

    With an origin, the run starts a branch whose first checkpoint is the origin's weights.

    Steps after the last checkpoint are played again on a new branch, because their updates were
    lost with the process that made them.

    Raises:
        ConfigError: The weights of a checkpoint have changed, or the named step has no checkpoint.
        FingerprintError: The checkpoint to restart from does not fit the configuration.
    """
    store, name = session.store, spec.name
    branch = store.read(runs.newest_branch, name)
    if branch is None:
        return StartingPoint(session)
    session = _restarting(session, spec)
    if origin is not None and origin_of(branch.identity) != origin.text:
        first, taken = _taken_over(session, origin)
        return StartingPoint(replace(session, restart_step=first, again=True), first, taken)
    rows = store.read(steps.on_line, branch)
    recorded = 1 + max((row.plan.step for row in rows if row.closed), default=-1)
    wanted = session.restart_step
    known = store.read(trained_steps.checkpoints, branch)
    # Check for the checkpoint, too, because a kill between the last step and its save loses the
    # weights.
    if wanted is None and recorded >= total and known and known[-1].step == recorded - 1:
        return StartingPoint(session, recorded, saved=known[-1])  # complete: needs no weights
    if origin is not None:
        known = [row for row in known if row.step > origin.saved.step]
    if wanted is not None:
        known = [row for row in known if row.step < wanted]
        if wanted and (not known or known[-1].step != wanted - 1):
            places = ", ".join(str(row.step + 1) for row in known)
            raise ConfigError(
                f"cannot restart {name} at step {wanted}: no checkpoint was saved before it",
                hint=f"--restart-step 0{' or ' + places if places else ''}",
            )
    row, folder = _last_whole(session, name, known)
    step = row.step + 1 if row else 0
    if row is None and origin is not None:
        step, folder = _taken_over(session, origin)
    changes = diff(branch.identity, spec.identity)
    if wanted and not keeps_checkpoints(changes):
        raise FingerprintError(
            f"{name} cannot continue from step {wanted}, because its weights do not fit the"
            " changed base model, adapter or number of updates",
            changes,
            hint="--restart-step 0 trains from the base model",
        )
    if wanted is None and step < recorded:
        session.notice(
            f"{name} resumes at step {step}, after its last checkpoint; steps {step} to"
            f" {recorded - 1} are played again"
        )
        session = replace(session, restart_step=step, again=True)
    return StartingPoint(session, step, folder, row)


def _restarting(session: Session, spec: RunSpec) -> Session:
    """Return the session, but drop its restart if the run has already begun the same restart."""
    step, store = session.restart_step, session.store
    if step is None:
        return session
    head, decision = store.read(branches.decide, spec, restart_step=step, again=session.again)
    if head is None or head["from_step"] != step or not isinstance(decision, Resume):
        return session
    session.notice(str(decision.notice))  # continues at its last checkpoint
    return replace(session, restart_step=None)


def _taken_over(session: Session, origin: Origin) -> tuple[int, Path]:
    """Return the step after the origin's checkpoint, and the checkpoint's folder."""
    folder = checked_folder(session, origin.run, origin.saved)
    if folder is None:
        raise ConfigError(
            f"the weights of {origin.run} after step {origin.saved.step}, which another member"
            " takes over, are gone",
            hint=f"restore {quote(origin.saved.path)}, or give the search another exp_id",
        )
    return origin.saved.step + 1, folder


def _last_whole(
    session: Session, name: str, known: list[CheckpointRow]
) -> tuple[CheckpointRow | None, Path | None]:
    """Return the last checkpoint whose folder still exists and has not changed."""
    # A user may have deleted the newest checkpoints to free space; older ones can still be used.
    for row in reversed(known):
        folder = checked_folder(session, name, row)
        if folder is not None:
            return row, folder
    return None, None


def checked_folder(session: Session, name: str, row: CheckpointRow) -> Path | None:
    """Return the folder of a checkpoint; None, with a notice, if the folder is gone.

    Raises:
        ConfigError: The folder does not contain the weights that were saved.
    """
    folder = checkpoint_folder(session.store.path, row.path)
    if folder is None:
        session.notice(f"the checkpoint of step {row.step} is gone: {row.path}")
    elif weights_sha(folder) != row.sha256:
        raise ConfigError(
            f"{row.path} does not contain the weights that {name} saved at step {row.step}",
            hint=f"restore them; or, to resume from an earlier checkpoint: rm -r {quote(row.path)}",
        )
    return folder
