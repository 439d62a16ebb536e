"""The part of `Workspace` for stored runs: read, compare, copy and delete them."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from grpo_practice.api.database import DatabaseFile

if TYPE_CHECKING:
    from grpo_practice.app.training_data import DataOptions
    from grpo_practice.export.rows import RowFormat
    from grpo_practice.export.training import DataFormat
    from grpo_practice.reports.comparison import ComparisonReport
    from grpo_practice.reports.database import DatabaseCheck, DatabaseCopy
    from grpo_practice.reports.exported_rows import ExportedData, ExportedRows
    from grpo_practice.reports.rollout_report import (
        RolloutReport,
        RolloutsReport,
        TranscriptsReport,
    )
    from grpo_practice.reports.run_diagnosis import RunDiagnosis
    from grpo_practice.reports.stored_runs import DeletedRuns, RunReport, RunsReport, ShownKind
    from grpo_practice.stats.paired import Verdict
    from grpo_practice.store.queries.export_rows import ExportRow


class RolloutOptions(TypedDict, total=False):
    """Keywords that choose among the rollouts of a run; each that is given has to apply."""

    step: int | None
    """The only step; None is all."""
    question: int | None
    """Number of the question in the run's dataset, counted from 1."""
    failed: bool
    """Whether to return only those with a reward below 1, or none."""
    flipped: bool
    """Whether to return only those of questions that were right (a mean reward of 0.5 or more) in
    one of two plays and wrong in the other: an evaluation and that of the agent without
    experiences; a practice run's first and its last play of the question."""
    against: str | None
    """Run to compare with, for `flipped`; None: as said there."""


class StoredRuns(DatabaseFile):
    """Runs of a database, and their rollouts."""

    def runs(self, kind: "ShownKind | None" = None) -> "RunsReport":
        """Return all runs, or those of a kind, the oldest first."""
        from grpo_practice.reports.stored_runs import runs_report

        with self._store() as store:
            return runs_report(store, kind)

    def names(self, kind: Literal["runs", "datasets"]) -> list[str]:
        """Return the names of the runs, the newest first, or of the datasets.

        Nothing is written, and a database that somebody is writing is not waited for.

        Raises:
            StoreError: There is none, or it cannot be read at this moment.
        """
        from grpo_practice.store import Store, datasets
        from grpo_practice.store.queries import runs

        with Store(self.path, "look", wait_s=0.2) as store:
            if kind == "datasets":
                return [dataset.name for dataset in store.read(datasets.newest)]
            return [run.name for run in reversed(store.read(runs.all_runs))]

    def run(self, name: str) -> "RunReport":
        """Return the steps, scores and costs of a run.

        Raises:
            ConfigError: There is no such run.
        """
        from grpo_practice.reports.stored_runs import run_report

        with self._store() as store:
            return run_report(store, name)

    def compare(
        self,
        *runs: str,
        detect: float = 0.05,
        require: "Verdict | None" = None,
        answers: int = 0,
    ) -> "ComparisonReport":
        """Compare runs with the first of them, question by question.

        Args:
            runs: Two or more evaluations; a practice run stands for that of its last library.
            detect: Difference, as a share, for which the report says how many questions find it.
            require: Verdict without which the report's exit is 1.
            answers: Questions, those that moved most first, whose answers are in the report.

        Raises:
            ConfigError: There is no such run, or they cannot be compared.
        """
        from grpo_practice.app.comparison import compare

        with self._store() as store:
            return compare(store, runs, detect=detect, required=require, answers=answers)

    def compare_arms(self, exp_id: str, arms: Sequence[str]) -> "ComparisonReport":
        """Compare what practice and training have done to an agent; nothing is played.

        Args:
            exp_id: Experiment.
            arms: Two or more of `base`, `practised`, `trained` and `trained+practised`, which
                `evaluate_arms` has played.

        Raises:
            ConfigError: One was not played, or not asked like the others.
        """
        from grpo_practice.app.trained_arms import compare_stored

        with self._store() as store:
            return compare_stored(store, exp_id, arms)

    def diagnose(self, name: str) -> "RunDiagnosis":
        """Return what stands in the way of a run, from what is stored; nothing is asked.

        Raises:
            ConfigError: There is no such run, or nothing of it is stored.
        """
        from grpo_practice.reports.run_diagnosis import diagnose

        with self._store() as store:
            return diagnose(store, name)

    def is_training(self, run: str) -> bool:
        """Return whether it is a training run; False for one that is not there."""
        from grpo_practice.store.queries import runs

        with self._store() as store:
            found = store.read(runs.find, run)
            return found is not None and found.kind == "train"

    def runs_to_delete(self, *names: str, with_dependants: bool = False) -> list[str]:
        """Return the names of the runs that `delete_run` would delete; nothing is changed.

        Raises:
            ConfigError: There is no such run, or the library of one is another run's start.
        """
        from grpo_practice.store.delete_run import doomed
        from grpo_practice.store.queries import runs

        with self._store() as store:
            named = store.read(runs.matching, names)
            return store.read(doomed, named, with_dependants=with_dependants)

    def delete_run(self, *names: str, with_dependants: bool = False) -> "DeletedRuns":
        """Delete runs, each a name or a glob, and the evaluations that they made.

        Answers that another run uses stay with that run. With dependants, the runs that have a
        library of one of them are deleted, too.

        Raises:
            ConfigError: There is no such run, or the library of one is another run's start.
            LockedError: Somebody works on one of them.
        """
        from grpo_practice.reports.stored_runs import DeletedRuns

        gone = self.runs_to_delete(*names, with_dependants=with_dependants)
        with self._store() as store, ExitStack() as stack:
            for name in gone:
                stack.enter_context(store.lock(name))
            return DeletedRuns(store.delete_runs(gone, with_dependants=with_dependants))

    def rollouts(
        self, run: str, *, limit: int | None = None, **choice: "Unpack[RolloutOptions]"
    ) -> "Iterator[RolloutReport]":
        """Yield the rollouts of a run with their transcripts, read as they are asked for.

        Args:
            run: `RUN`, `RUN@BRANCH` or `RUN:STEP`.
            limit: Most groups (questions of a step) to read.
            choice: See `RolloutOptions`.

        Raises:
            ConfigError: There is no such run, step or question, or nothing to compare it with.
        """
        from grpo_practice.app.rollouts import Choice, rollouts_of

        with self._store() as store:
            yield from rollouts_of(store, Choice(run, **choice), limit)

    def transcripts(
        self, run: str, *, limit: int = 3, **choice: "Unpack[RolloutOptions]"
    ) -> "TranscriptsReport":
        """Return the first rollouts of a run with all that was said in them, and how many are left.

        The arguments are those of `rollouts`; `limit` counts groups (questions of a step), with all
        their attempts.
        """
        from grpo_practice.app.rollouts import Choice, transcripts_report

        with self._store() as store:
            return transcripts_report(store, Choice(run, **choice), limit)

    def rollout_list(
        self, run: str, *, limit: int = 50, **choice: "Unpack[RolloutOptions]"
    ) -> "RolloutsReport":
        """Return the first rollouts of a run, a line each; what was said is not read.

        The arguments are those of `rollouts`; `limit` counts rollouts, and how many there are is in
        the report.
        """
        from grpo_practice.app.rollouts import Choice, rollout_report

        with self._store() as store:
            return rollout_report(store, Choice(run, **choice), limit)

    def rows(self, run: str) -> "Iterator[ExportRow]":
        """Yield the rollouts of a run as flat rows, read as they are asked for.

        Args:
            run: `RUN`, `RUN@BRANCH` or `RUN:STEP`.

        Raises:
            ConfigError: There is no such run, or nothing was played in it yet.
        """
        from grpo_practice.app.run_rows import run_rows

        with self._store() as store:
            yield from run_rows(store, run)

    def export_rows(
        self,
        run: str,
        path: str | Path,
        *,
        format: "RowFormat | None" = None,
        force: bool = False,
    ) -> "ExportedRows":
        """Write the rollouts of a run to a file, one to a row.

        Args:
            run: As for `rows`.
            path: File to write.
            format: `csv`, in which no text is a formula, or `jsonl`, which is exact; None: by the
                file's name.
            force: Whether to replace it.

        Raises:
            ConfigError: There is no such run, nothing was played in it yet, or the file is there
                or cannot be written.
        """
        from grpo_practice.export.files import write_lines
        from grpo_practice.export.rows import Counted, format_of_rows, row_lines
        from grpo_practice.reports.exported_rows import ExportedRows

        target = Path(path)
        format, rows = format or format_of_rows(target), Counted(self.rows(run))
        write_lines(target, row_lines(rows, format), force=force)
        return ExportedRows(run, format, target, rows.n)

    def training_rows(
        self, run: str, format: "DataFormat", **options: "Unpack[DataOptions]"
    ) -> "Iterator[dict[str, Any]]":
        """Yield rows for TRL's SFTTrainer or DPOTrainer, read as they are asked for.

        Args:
            run: `RUN`, `RUN@BRANCH` or `RUN:STEP`.
            format: `sft` for single attempts, `dpo` for pairs of a better and a worse one.
            options: See `DataOptions`.

        Raises:
            ConfigError: There is no such run, it is an evaluation and `include_eval` is not set, or
                it has nothing to be trained on.
        """
        from grpo_practice.app.training_data import training_data

        with self._store() as store:
            yield from training_data(store, run, format, **options)

    def export_data(
        self,
        run: str,
        format: "DataFormat",
        path: str | Path,
        *,
        force: bool = False,
        **options: "Unpack[DataOptions]",
    ) -> "ExportedData":
        """Write rows for TRL's trainers to a file of JSON lines; see `training_rows`.

        Args:
            run: As for `training_rows`.
            format: As for `training_rows`.
            path: File to write.
            force: Whether to replace it.
            options: See `DataOptions`.

        Raises:
            ConfigError: As for `training_rows`; or the file is there, or cannot be written.
        """
        from grpo_practice.app.training_data import training_data
        from grpo_practice.export.files import write_lines
        from grpo_practice.export.rows import Counted, json_line
        from grpo_practice.reports.exported_rows import ExportedData

        with self._store() as store:
            data = training_data(store, run, format, **options)
            rows = Counted(data)
            write_lines(Path(path), map(json_line, rows), force=force)
        left_out = {str(why): n for why, n in data.left_out.items()}
        return ExportedData(run, format, Path(path), rows.n, left_out, data.simulated)

    def backup(self, target: str | Path | None = None, *, replace: bool = False) -> "DatabaseCopy":
        """Copy the database as it is now, also while a run writes to it.

        Args:
            target: File to make (default: the database's name + .bak).
            replace: Whether it may be there already.

        Raises:
            ConfigError: There is no database, or the copy may not have this name.
            StoreError: The database is damaged, or the copy cannot be written.
        """
        from grpo_practice.app.database import backup_database

        return backup_database(self.path, Path(target) if target else None, replace=replace)

    def check(self) -> "DatabaseCheck":
        """Look whether the database is whole; nothing is changed, and runs may go on.

        Raises:
            ConfigError: There is no database.
            StoreError: It is not ours, or cannot be opened at all.
        """
        from grpo_practice.app.database import check_database

        return check_database(self.path)
