"""Methods of `Workspace` for stored runs and libraries: read, compare, edit, copy and delete."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from grpo_practice.api.database import DatabaseFile

if TYPE_CHECKING:
    from grpo_practice.core.stats.paired import Verdict
    from grpo_practice.reports.comparison import ComparisonReport
    from grpo_practice.reports.experience_reports import (
        DecisionReport,
        ExperienceReport,
        LibraryReport,
    )
    from grpo_practice.reports.rollout_report import (
        RolloutReport,
        RolloutsReport,
        TranscriptsReport,
    )
    from grpo_practice.reports.run_diagnosis import RunDiagnosis
    from grpo_practice.reports.run_list import DeletedRuns, LabelledRun, RunOptions, RunsReport
    from grpo_practice.reports.stored_runs import RunReport
    from grpo_practice.run.database import DatabaseCheck, DatabaseCopy
    from grpo_practice.run.hand_edits import EditedLibrary as EditedLibrary
    from grpo_practice.run.hand_edits import LibraryDifference
    from grpo_practice.store.queries.export_rows import ExportRow


class RolloutOptions(TypedDict, total=False):
    """Keywords that select rollouts of a run; a rollout must match all keywords that are set."""

    step: int | None
    """Step to select; None selects all steps."""
    question: int | None
    """Number of the question in the run's dataset, starting at 1."""
    failed: bool
    """Whether to return only rollouts without a reward or with a reward below 1."""
    flipped: bool
    """Whether to return only rollouts of questions that were answered correctly (mean reward of 0.5
    or more) in one of two plays and incorrectly in the other. For an evaluation, the other play is
    the evaluation of the agent without experiences; for a practice run, the two plays are the
    question's first and last.
    """
    against: str | None
    """Run to compare with, for `flipped`; None selects the default described under `flipped`."""


class StoredRuns(DatabaseFile):
    """Runs of a database, with their rollouts and their libraries of experiences."""

    def runs(self, **choice: "Unpack[RunOptions]") -> "RunsReport":
        """Return the runs, newest first, or only those that match all keywords; see `RunOptions`.

        Raises:
            ConfigError: The kind or the order is unknown, or `last` is not positive.
        """
        from grpo_practice.reports.run_list import runs_report

        with self._store() as store:
            return runs_report(store, **choice)

    def names(self, kind: Literal["runs", "datasets"]) -> list[str]:
        """Return the names of the runs (newest first) or of the datasets.

        This call writes nothing and does not wait for a lock that another process holds on the
        database.

        Raises:
            StoreError: The database does not exist, or cannot be read right now.
        """
        from grpo_practice.store import Store, datasets
        from grpo_practice.store.queries import runs

        # Called for shell completion, where a person waits for each keystroke.
        with Store(self.path, "look", wait_s=0.2) as store:
            if kind == "datasets":
                return [dataset.name for dataset in store.read(datasets.newest)]
            return [run.name for run in reversed(store.read(runs.all_runs))]

    def run(self, name: str) -> "RunReport":
        """Return the steps, scores and costs of a run.

        Raises:
            ConfigError: The run does not exist.
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
            runs: Two or more evaluations; a practice run stands for the evaluation of its last
                library.
            detect: Difference, as a share; the report estimates how many questions would detect it.
            require: Verdict that makes the report's exit code 0; any other makes it 1.
            answers: Number of questions whose answers to include, those with the largest change
                first.

        Raises:
            ConfigError: A run does not exist, or the runs cannot be compared.
        """
        from grpo_practice.run.comparison import compare

        with self._store() as store:
            return compare(store, runs, detect=detect, required=require, answers=answers)

    def compare_arms(self, exp_id: str, arms: Sequence[str]) -> "ComparisonReport":
        """Compare the effects of practice and training on an agent, from stored runs only.

        Args:
            exp_id: Experiment.
            arms: Two or more of `base`, `practised`, `trained` and `trained+practised`, all played
                by `evaluate_arms`.

        Raises:
            ConfigError: An arm was not played, or its questions or settings differ from the
                others'.
        """
        from grpo_practice.run.trained_arms import compare_stored

        with self._store() as store:
            return compare_stored(store, exp_id, arms)

    def diagnose(self, name: str) -> "RunDiagnosis":
        """Return the problems of a run, found in the stored data without sending a request.

        Raises:
            ConfigError: The run does not exist, or nothing has been stored for it.
        """
        from grpo_practice.reports.run_diagnosis import diagnose

        with self._store() as store:
            return diagnose(store, name)

    def is_training(self, run: str) -> bool:
        """Return whether this is a training run; False if the run does not exist."""
        from grpo_practice.core.errors import ConfigError
        from grpo_practice.store.queries import runs

        with self._store() as store:
            with suppress(ConfigError):
                return store.read(runs.named, run).kind == "train"
            return False

    def label_run(
        self,
        run: str,
        *,
        add: Sequence[str] = (),
        remove: Sequence[str] = (),
        note: str | None = None,
    ) -> "LabelledRun":
        """Add and remove tags of a run, and replace its note; return its tags and its note.

        A tag is one word. The note "" removes the note, and None keeps it.

        Raises:
            ConfigError: The run does not exist or lacks a tag to remove, or a text is not allowed.
        """
        from grpo_practice.reports.run_list import LabelledRun
        from grpo_practice.store.queries import runs

        with self._store() as store:
            name = store.read(runs.named, run).name
            if add or remove or note is not None:
                store.label_run(name, add, remove, note)
            return LabelledRun(store.read(runs.get, name))

    def runs_to_delete(self, *names: str, with_dependants: bool = False) -> list[str]:
        """Return the names of the runs that `delete_run` would delete, without changing anything.

        Raises:
            ConfigError: A run does not exist, or another run starts from the library of one of
                them.
        """
        from grpo_practice.store.delete_run import doomed
        from grpo_practice.store.queries import runs

        with self._store() as store:
            named = store.read(runs.matching, names)
            return store.read(doomed, named, with_dependants=with_dependants)

    def delete_run(self, *names: str, with_dependants: bool = False) -> "DeletedRuns":
        """Delete runs, each given by name or by a glob, and the evaluations they started.

        Answers that another run uses are reassigned to that run. With `with_dependants`, runs that
        use a library of a deleted run are deleted, too.

        Raises:
            ConfigError: A run does not exist, or another run starts from the library of one of
                them.
            LockedError: Another process is working on one of them.
        """
        from grpo_practice.reports.run_list import DeletedRuns

        # Resolve the names here, although `delete_runs` checks them again, because the locks need
        # them.
        gone = self.runs_to_delete(*names, with_dependants=with_dependants)
        with self._store() as store, ExitStack() as stack:
            for name in gone:  # lock all first, to delete every run or none
                stack.enter_context(store.lock(name))
            return DeletedRuns(store.delete_runs(gone, with_dependants=with_dependants))

    def rollouts(
        self, run: str, *, limit: int | None = None, **choice: "Unpack[RolloutOptions]"
    ) -> "Iterator[RolloutReport]":
        """Yield the rollouts of a run with their transcripts, reading each one on demand.

        Args:
            run: `RUN`, `RUN@BRANCH` or `RUN:STEP`.
            limit: Maximum number of groups (one question in one step) to read.
            choice: See `RolloutOptions`.

        Raises:
            ConfigError: The run, step or question does not exist, or there is no run to compare
                with.
        """
        from grpo_practice.run.rollouts import Choice, rollouts_of

        with self._store() as store:
            # Inside the block, so that the store stays open for as long as the caller reads.
            yield from rollouts_of(store, Choice(run, **choice), limit)

    def transcripts(
        self, run: str, *, limit: int = 3, **choice: "Unpack[RolloutOptions]"
    ) -> "TranscriptsReport":
        """Return the first rollouts of a run with their transcripts, and the number of the rest.

        The arguments are the same as for `rollouts`; `limit` counts groups (one question in one
        step), each with all of its attempts.
        """
        from grpo_practice.run.rollouts import Choice, transcripts_report

        with self._store() as store:
            return transcripts_report(store, Choice(run, **choice), limit)

    def rollout_list(
        self, run: str, *, limit: int = 50, **choice: "Unpack[RolloutOptions]"
    ) -> "RolloutsReport":
        """Return the first rollouts of a run as one line each, without reading their transcripts.

        The arguments are the same as for `rollouts`; `limit` counts rollouts, and the report gives
        the total number.
        """
        from grpo_practice.run.rollouts import Choice, rollout_report

        with self._store() as store:
            return rollout_report(store, Choice(run, **choice), limit)

    def rows(self, run: str) -> "Iterator[ExportRow]":
        """Yield the rollouts of a run as flat rows, reading each one on demand.

        Args:
            run: `RUN`, `RUN@BRANCH` or `RUN:STEP`.

        Raises:
            ConfigError: The run does not exist, or none of its rollouts has been played yet.
        """
        from grpo_practice.run.rollouts import run_rows

        with self._store() as store:
            # Inside the block, so that the store stays open for as long as the caller reads.
            yield from run_rows(store, run)

    def backup(self, target: str | Path | None = None, *, replace: bool = False) -> "DatabaseCopy":
        """Copy the database as it is now, even while a run is writing to it.

        Args:
            target: File to create (default: the database's name + .bak).
            replace: Whether to replace an existing file.

        Raises:
            ConfigError: The database does not exist, or the copy may not have this name.
            StoreError: The database is damaged, or the copy cannot be written.
        """
        from grpo_practice.run.database import backup_database

        return backup_database(self.path, Path(target) if target else None, replace=replace)

    def check(self) -> "DatabaseCheck":
        """Check the integrity of the database without changing it; runs may continue.

        Raises:
            ConfigError: The database does not exist.
            StoreError: The file is not a database of this program, or cannot be opened.
        """
        from grpo_practice.run.database import check_database

        return check_database(self.path)

    def experiences(
        self, run: str | None = None, step: str | int = "last", *, quarantined: bool = False
    ) -> "LibraryReport":
        """Return the experiences of a library, with the evidence for each.

        Args:
            run: `RUN`, `RUN@BRANCH`, `RUN:STEP` or `L12`; None selects the latest practice run.
            step: `last`, `best`, or the number of a closed step.
            quarantined: Whether to include quarantined experiences and the reasons.

        Raises:
            ConfigError: The library does not exist.
        """
        from grpo_practice.run.libraries import library_report

        with self._store() as store:
            return library_report(store, run, str(step), quarantined=quarantined)

    def experience(self, name: str, run: str | None = None) -> "ExperienceReport":
        """Return the history of an experience of a run, for instance `E12`.

        Raises:
            ConfigError: The run does not exist, or never had this experience.
        """
        from grpo_practice.run.libraries import experience_report

        with self._store() as store:
            return experience_report(store, name, run)

    def edit_library(
        self,
        run: str | None = None,
        step: str | int = "last",
        *,
        remove: Sequence[str] = (),
        rewrite: "Mapping[str, str] | None" = None,
        approve: Sequence[str] = (),
    ) -> "EditedLibrary":
        """Make a new library by editing an existing one; the run keeps its own library.

        Args:
            run: As for `experiences`.
            step: `last`, `best`, or the number of a closed step.
            remove: Experiences to leave out: `E12`, …
            rewrite: New texts of experiences, by label: `E12` → text.
            approve: Quarantined texts to add although they were quarantined: `Q12`, …

        Raises:
            ConfigError: The library, an experience or a quarantined text does not exist, or a text
                is not allowed in a library.
        """
        from grpo_practice.run.hand_edits import edit_library

        with self._store() as store:
            return edit_library(
                store, run, str(step), remove=remove, rewrite=rewrite, approve=approve
            )

    def diff_libraries(self, a: str, b: str) -> "LibraryDifference":
        """Return the differences between two libraries, named as `RUN`, `RUN:STEP` or `L12`.

        Raises:
            ConfigError: One of the libraries does not exist.
        """
        from grpo_practice.run.hand_edits import diff_libraries

        with self._store() as store:
            return diff_libraries(store, a, b)

    def approve(
        self, held: Sequence[str] | None = None, run: str | None = None
    ) -> "DecisionReport":
        """Approve held experiences, which then enter the library of a run.

        Args:
            held: Labels `H12`, …, as listed by `experiences`; None selects all.
            run: Name of the run; None selects the latest practice run.

        Raises:
            ConfigError: The run does not exist, it holds no experience with this label, or the
                text is not allowed in a library.
            LockedError: Another process is working on the run.
        """
        from grpo_practice.run.approvals import decide

        with self._store() as store:
            return decide(store, held, run, approve=True)

    def reject(self, held: Sequence[str] | None = None, run: str | None = None) -> "DecisionReport":
        """Reject held experiences permanently; the arguments are the same as for `approve`.

        Raises: The same errors as `approve`.
        """
        from grpo_practice.run.approvals import decide

        with self._store() as store:
            return decide(store, held, run, approve=False)
