"""The database file, with methods named after their purpose."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from grpo_practice import __version__
from grpo_practice.core.errors import (
    GrpoPracticeError,
    LockedError,
    PausedError,
    PrunedError,
    StoppedError,
)
from grpo_practice.core.types import Edit, Library, PlannedStep, Rollout, Sample, Verdict
from grpo_practice.data.attempts import StagedAttempts
from grpo_practice.data.staged_samples import StagedSamples
from grpo_practice.store import (
    branches,
    close_step,
    datasets,
    delete_run,
    invocations,
    libraries,
    recorded_runs,
    rollouts,
    run_labels,
    steps,
    trained_steps,
)
from grpo_practice.store.close_step import DerivedCause, Source
from grpo_practice.store.db import (
    explained,
)
from grpo_practice.store.ledger import SqlLedger
from grpo_practice.store.open_store import OpenStore
from grpo_practice.store.reading import read_only
from grpo_practice.store.records import (
    Approvals,
    Branch,
    CheckpointRow,
    DatasetRow,
    RolloutPrompt,
    RunSpec,
    StepResult,
    StepRow,
    TrainedStep,
    Unscored,
    VerifierRecord,
)
from grpo_practice.store.trained_steps import remove_checkpoints

if TYPE_CHECKING:
    from grpo_practice.store.batch_log import SqlBatchLog
    from grpo_practice.store.transfer import Moved

T = TypeVar("T")
Planner = Callable[[Branch, Sequence[StepRow]], Sequence[PlannedStep]]


_STATUS = {PausedError: "paused", StoppedError: "stopped", PrunedError: "stopped"}
"""Status of a run after these errors; any other error makes it `failed`."""


class Store(OpenStore):
    """An open database, with one method for each kind of write.

    An awaited write is on disk when it returns, except for a rollout: see `save_rollout`.
    """

    # Datasets

    def add_dataset(
        self,
        name: str,
        samples: Iterable[Sample] | StagedSamples,
        *,
        origin: str,
        replace: bool,
        after: DatasetRow | None = None,
    ) -> tuple[DatasetRow, bool]:
        """Bind the name to all of these samples; return the dataset and whether it is new."""
        if not isinstance(samples, StagedSamples):
            with StagedSamples(samples) as staged:
                return self.add_dataset(name, staged, origin=origin, replace=replace, after=after)
        if self.mode == "foresee":
            return self.read(datasets.add_apart, name, samples, origin=origin)
        add = partial(datasets.add, origin=origin, replace=replace, after=after)
        return self._write(lambda db: add(db, name, samples))

    def add_datasets(
        self, parts: Mapping[str, Iterable[Sample]], *, origin: str, replace: bool
    ) -> list[tuple[DatasetRow, bool]]:
        """Add several datasets, or no dataset if an error occurs."""
        add = partial(datasets.add, origin=origin, replace=replace)
        with ExitStack() as stack:
            staged = {n: stack.enter_context(StagedSamples(rows)) for n, rows in parts.items()}
            return self._write(lambda db: [add(db, name, rows) for name, rows in staged.items()])

    def hide_dataset(self, name: str) -> None:
        """Free the name, or raise DataError if it is unknown; old runs keep the rows they used."""
        # Raises, with a hint, if the name is unknown; hiding an unknown name would do nothing.
        self.read(datasets.get, name)
        self._write(lambda db: datasets.hide(db, name))

    # Runs

    @contextmanager
    def lock(self, run: str) -> Iterator[None]:
        """Keep all other processes and threads from writing the run while the block runs.

        Raises:
            LockedError: Another process, named in the message, or another thread holds the lock.
            StoreError: The database cannot be written or locked.
        """
        if self._locks is None:
            raise read_only(self.path)
        with self._locks.hold(run) as mine:
            if not mine:
                who = self.read(invocations.holder, run)
                by = f"another process is working on {run}" + (f" ({who})" if who else "")
                if self._locks.held_here(run):
                    by = f"this process is already working on {run}, in another thread or task"
                raise LockedError(by, hint="wait for it, stop it, or give this run another exp_id")
            yield

    def is_worked_on(self, run: str) -> bool:
        """Return whether a living process works on the run."""
        if self._locks is not None:
            return self._locks.held_anywhere(run)
        who = self.read(invocations.holder, run)  # a read-only database has no locks to ask
        return who is not None and who.may_live

    def close_dead(self, run: str) -> list[invocations.Holder]:
        """Close the invocations on the run whose processes died; requires the run's lock."""
        return self._write(lambda db: invocations.close_dead(db, run))

    def begin(
        self,
        spec: RunSpec,
        plan: Planner | None = None,
        *,
        restart_step: int | None = None,
        again: bool = False,
    ) -> Branch:
        """Return the branch to work on, with its steps planned; see `begin_all`."""
        return self.begin_all([(spec, plan)], restart_step=restart_step, again=again)[0]

    def foresee(
        self,
        spec: RunSpec,
        plan: Planner,
        *,
        restart_step: int | None = None,
        again: bool = False,
    ) -> tuple[Branch, list[StepRow]]:
        """Return the branch and the steps that `begin` would make or resume; write nothing."""
        branch = self.read(branches.foresee, spec, restart_step=restart_step, again=again)
        # Not through `read`, which would cache the steps under the id that all new branches share.
        rows = steps.on_line(self._db, branch)
        return branch, steps.planned(branch, rows, plan(branch, rows))

    def begin_all(
        self,
        wanted: Sequence[tuple[RunSpec, Planner | None]],
        *,
        restart_step: int | None = None,
        again: bool = False,
    ) -> list[Branch]:
        """Return the branches to work on, with planned steps; store nothing if anything raises.

        For the specs, `restart_step` and `again`, see `branches.begin`. A planner gets a branch and
        its existing steps, and returns the steps that the branch should have. A planner may read
        the store, and may be called twice.
        """

        def work(db: sqlite3.Connection) -> list[Branch]:
            begun = list[Branch]()
            for spec, plan in wanted:
                branch = branches.begin(db, spec, restart_step=restart_step, again=again)
                if spec.arm is not None:
                    run_labels.name_arm(db, spec.name, spec.arm)
                if plan is not None:
                    rows = steps.on_line(db, branch)
                    steps.plan(db, branch, rows, plan(branch, rows))
                begun.append(branch)
            return begun

        return self._write(work)

    def record(self, spec: recorded_runs.RecordedSpec) -> Branch:
        """Return the branch of the run that recordings are added to. See `recorded_runs.begin`."""
        return self._write(lambda db: recorded_runs.begin(db, spec))

    def renew_config(self, branch: Branch, spec: RunSpec) -> None:
        """Store the configuration of `spec` with the branch."""
        self._write(lambda db: branches.renew_config(db, branch.id, spec))

    @contextmanager
    def invocation(
        self,
        branch: Branch,
        command: str,
        *,
        goes_on: bool = True,
        addresses: Mapping[str, str] | None = None,
    ) -> Iterator[int]:
        """Record the block as one invocation, and set the run's status according to how it ends.

        With `goes_on=False`, the invocation neither changes the run's status nor is suggested as
        the command that continues the run. For `addresses`, see `RunSpec`.
        """
        invocation_id = self._write(
            partial(
                invocations.open_invocation,
                run=branch.run,
                branch_id=branch.id if goes_on else None,
                version=__version__,
                command=command,
                addresses=addresses,
            )
        )
        status, code, reason, go_on = "failed", 1, None, None
        try:
            yield invocation_id
            status, code = "done", 0
        except GrpoPracticeError as e:
            status = next((s for kind, s in _STATUS.items() if isinstance(e, kind)), "failed")
            code, reason = e.exit_code, str(e)
            # The command as typed would pause again immediately.
            go_on = e.go_on if isinstance(e, PausedError) else None
            raise
        except Exception as e:
            reason = f"{type(e).__name__}: {e}"
            raise
        except BaseException as e:
            # A Ctrl-C or a cancelled task, which is a stop and not a failure of the run.
            status, code, reason = "stopped", 130, type(e).__name__
            raise
        finally:
            end = partial(
                invocations.close_invocation,
                invocation_id=invocation_id,
                status=status if goes_on else None,
            )
            self._write(partial(end, exit_code=code, reason=reason, go_on=go_on))

    def delete_runs(self, runs: Sequence[str], *, with_dependants: bool = False) -> list[str]:
        """Delete the runs and the runs they made, with checkpoints on disk; return their names.

        See `delete_run.doomed` and `delete_run.delete`.
        """

        def work(db: sqlite3.Connection) -> tuple[list[str], list[str]]:
            gone = delete_run.doomed(db, runs, with_dependants=with_dependants)
            paths = trained_steps.checkpoint_paths(db, gone)
            delete_run.delete(db, gone)
            return gone, paths

        gone, folders = self._write(work)
        # Delete folders after the rows, because a row without its folder would leave a run that
        # cannot continue.
        remove_checkpoints(self.path, folders)
        return gone

    def import_runs(
        self, source: Path, runs: Sequence[str] = (), names: Mapping[str, str] | None = None
    ) -> "Moved":
        """Take runs in from a file with this schema that nobody else uses; see `transfer`."""
        from grpo_practice.store.transfer import transfer  # no other command needs it

        copy = partial(transfer, folder=self.path.name, imported=True)
        return self._write(lambda db: copy(db, source, runs, names=names))

    def label_run(
        self, run: str, add: Sequence[str], remove: Sequence[str], note: str | None
    ) -> None:
        """Add and remove tags of a run, and replace its note; see `run_labels.label`."""
        self._write(lambda db: run_labels.label(db, run, add, remove, note))

    # The work of a run

    def ledger(self, branch: Branch, invocation_id: int) -> SqlLedger:
        """Return the ledger for the calls of this invocation."""
        with explained(self.path):
            return SqlLedger(self._db, self._writes, invocation_id, {branch.id: branch.reuses})

    def put_verifier(self, verifier: VerifierRecord) -> int:
        """Return the row ID of a verify function in its current version; insert it if it is new."""
        return self._write(lambda db: branches.put_verifier(db, verifier))

    def plan_rejudge(self, branch: Branch, source: Sequence[StepRow]) -> list[StepRow]:
        """Plan steps that score the rollouts of the source steps again."""
        pairs = [(s.plan, s.played_by or s.branch_id) for s in source]
        self._write(lambda db: steps.play_elsewhere(db, branch, pairs))
        return self.read(steps.on_line, branch)

    def fill_step(self, branch: Branch, plan: PlannedStep, staged: StagedAttempts) -> None:
        """Store recorded attempts as the rollouts of a step; see `recorded_attempts.fill`."""
        from grpo_practice.store import recorded_attempts  # few runs need it

        self._write(lambda db: recorded_attempts.fill(db, branch, plan, staged.attempts_at))

    def batch_log(self, branch: Branch) -> "SqlBatchLog":
        """Return the record of the batches in which the run's requests are sent."""
        from grpo_practice.store.batch_log import SqlBatchLog  # only runs need it

        return SqlBatchLog(self.read, self._write, self.flushed, branch)

    async def open_step(self, branch: Branch, step: int, library_id: int | None) -> None:
        """Mark the step as open."""
        await self._write_soon(lambda db: steps.open_step(db, branch.id, step, library_id))

    async def save_rollout(
        self, branch: Branch, step: int, rollout: Rollout, prompt: RolloutPrompt
    ) -> None:
        """Queue the attempt for storage, with its verdict if it has one.

        The row is on disk once any later write is, such as the end of its step. If the row cannot
        be written, the next awaited write raises the error.
        """
        save = rollouts.Save(branch.holder(step), step, rollout, prompt, branch.verifier_id)
        # Not awaited until it is on disk, because committed calls reproduce it, so a kill costs no
        # money.
        await self._writer.row_soon(rollouts.save, save)

    async def save_verdict(
        self, branch: Branch, rollout_id: int, verdict: Verdict | Unscored
    ) -> None:
        """Store this branch's verdict on a rollout that another branch played."""
        await self._write_soon(
            lambda db: rollouts.put_verdict(db, rollout_id, branch.verifier_id, verdict)
        )

    async def pause_step(self, branch: Branch, step: int, pauses: int) -> None:
        """Store how often the open step has paused because no comparison was usable."""
        await self._write_soon(lambda db: steps.pause_step(db, branch.id, step, pauses))

    async def close_practice(self, branch: Branch, step: int, result: StepResult) -> int:
        """Close the step in one transaction; return the ID of the library for the next step."""
        return await self._write_soon(lambda db: close_step.close(db, branch, step, result))

    def approve(self, branch: Branch, step: int, approvals: Approvals) -> int:
        """Apply held operations to the library of the last closed step; return the new one's ID."""
        return self._write(lambda db: close_step.approve(db, branch, step, approvals))

    def decide(self, branch: Branch, step: int, held: Iterable[int], *, approve: bool) -> None:
        """Record decisions on held operations; approved ones apply when the open step closes."""
        self._write(lambda db: close_step.decide(db, branch, step, held, approve=approve))

    def put_library(self, branch: Branch, library: Library) -> Library:
        """Store a library that no step of the branch's run made, and return it with its ID."""
        library_id = self._write(lambda db: libraries.put(db, branch.run, branch.id, library))
        return replace(library, id=library_id)

    def derive_library(
        self,
        branch: Branch,
        parent: Library,
        edits: Sequence[Edit],
        *,
        cause: DerivedCause,
        source: Source,
    ) -> Library:
        """Return the result of editing a stored library; see `close_step.derive`."""
        derive = partial(close_step.derive, cause=cause, source=source)
        return self._write(lambda db: derive(db, branch, parent, edits))

    async def close_eval(self, branch: Branch, step: int, stats: Mapping[str, Any]) -> None:
        """Close an evaluation step."""
        at = branch.holder(step)
        await self._write_soon(lambda db: steps.close_eval(db, at, step, stats))

    async def close_trained(self, branch: Branch, step: int, done: TrainedStep) -> None:
        """Store a step of a training run, with its rollouts, in one transaction."""
        await self._write_soon(lambda db: trained_steps.close(db, branch, step, done))

    async def add_checkpoint(self, branch: Branch, made: CheckpointRow) -> None:
        """Record that a checkpoint is on disk."""
        await self._write_soon(lambda db: trained_steps.add_checkpoint(db, branch, made))


@dataclass(frozen=True, slots=True)
class StoredSamples:
    """The samples of a dataset, read one by one while the store is open."""

    store: Store
    row: DatasetRow

    def __len__(self) -> int:
        return self.row.n

    def __iter__(self) -> Iterator[Sample]:
        return self.store.each(datasets.each, self.row.id)
