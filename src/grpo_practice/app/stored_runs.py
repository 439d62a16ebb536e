"""Reading what is stored: runs, rollouts, experiences, agents.

The half of `Workspace` that asks nobody.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Literal, TypedDict, Unpack

from grpo_practice.app.database_file import DatabaseFile

if TYPE_CHECKING:
    from grpo_practice.export.report import Exported
    from grpo_practice.reports.comparison import ComparisonReport
    from grpo_practice.reports.database import DatabaseCheck, DatabaseCopy
    from grpo_practice.reports.edited_library import EditedLibrary, LibraryDifference
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
    from grpo_practice.reports.stored_runs import DeletedRuns, RunReport, RunsReport, ShownKind
    from grpo_practice.stats.paired import Verdict


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
    """The runs of a database; a base of `Workspace`."""

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

    def diagnose(self, name: str) -> "RunDiagnosis":
        """Return what stands in the way of a run, from what is stored; nothing is asked.

        Raises:
            ConfigError: There is no such run, or nothing of it is stored.
        """
        from grpo_practice.reports.run_diagnosis import diagnose

        with self._store() as store:
            return diagnose(store, name)

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

    def experiences(
        self, run: str | None = None, step: str | int = "last", *, quarantined: bool = False
    ) -> "LibraryReport":
        """Return the experiences of a library, with the evidence on each.

        Args:
            run: `RUN`, `RUN@BRANCH`, `RUN:STEP` or `L12`; None: the latest practice run.
            step: `last`, `best`, or the number of a closed step.
            quarantined: Whether to return also what was kept out, and why.

        Raises:
            ConfigError: There is no such library.
        """
        from grpo_practice.app.libraries import library_report

        with self._store() as store:
            return library_report(store, run, str(step), quarantined=quarantined)

    def experience(self, name: str, run: str | None = None) -> "ExperienceReport":
        """Return where the experience `E12` of a run comes from.

        Raises:
            ConfigError: There is no such run, or never was such an experience in it.
        """
        from grpo_practice.app.libraries import experience_report

        with self._store() as store:
            return experience_report(store, name, run)

    def export(
        self,
        run: str | None = None,
        step: str | int = "last",
        *,
        format: str | None = None,
        output: str | Path | None = None,
        force: bool = False,
    ) -> "Exported":
        """Return the agent with what it learnt, and write it to a file or folder if one is named.

        Args:
            run: `RUN`, `RUN@BRANCH`, `RUN:STEP` or `L12`; None: the latest practice run.
            step: `last`, `best`, or the number of a closed step.
            format: None: by the file's name.
            output: File or folder to write.
            force: Whether to replace it; a section of an `AGENTS.md` replaces itself alone.

        Raises:
            ConfigError: There is no such library, or the file cannot be written.
        """
        from grpo_practice.app.agent_export import call_of_program, exported, remember_export
        from grpo_practice.app.library_refs import library_of
        from grpo_practice.export.files import write_files, write_section
        from grpo_practice.export.render import FORMATS, format_by_name, render_files
        from grpo_practice.export.report import Exported
        from grpo_practice.reports.before_after import before_after

        format = format or format_by_name(str(output or ""))
        path = None if output is None else Path(output)
        with self._store() as store:
            found = library_of(store, run, str(step))
            scores = before_after(store, found.branch, found.run, found.library)
            agent = exported(store, found, scores)
            agent = replace(agent, place="" if path is None else path.absolute().name)
            files = render_files(agent, format)
            if FORMATS[format].loadable:
                remember_export(store, found, files[""])
        if path is not None and FORMATS[format].section:
            write_section(path, files[""])
        elif path is not None:
            write_files(path, files, force=force)
        call = call_of_program(agent, repr(self))
        named = f" --run {quote(run or found.run)}" + (f" --step {step}" if step != "last" else "")
        return Exported(agent, files, format, path, call, scores, named)

    def edit_library(
        self,
        run: str | None = None,
        step: str | int = "last",
        *,
        remove: Sequence[str] = (),
        rewrite: "Mapping[str, str] | None" = None,
        approve: Sequence[str] = (),
    ) -> "EditedLibrary":
        """Make a library of another one by hand; the run keeps its own.

        Args:
            run: As for `experiences`.
            step: `last`, `best`, or the number of a closed step.
            remove: `E12` …, experiences that it is without.
            rewrite: `E12` → text that it has then.
            approve: `Q12` …, quarantined texts that it has, whatever was wrong with them.

        Raises:
            ConfigError: There is no such library, experience or text, or a text may not be there.
        """
        from grpo_practice.app.hand_edits import edit_library

        with self._store() as store:
            return edit_library(
                store, run, str(step), remove=remove, rewrite=rewrite, approve=approve
            )

    def diff_libraries(self, a: str, b: str) -> "LibraryDifference":
        """Return what differs between two libraries: `RUN`, `RUN:STEP`, `L12`.

        Raises:
            ConfigError: There is no such library.
        """
        from grpo_practice.app.hand_edits import diff_libraries

        with self._store() as store:
            return diff_libraries(store, a, b)

    def approve(
        self, held: Sequence[str] | None = None, run: str | None = None
    ) -> "DecisionReport":
        """Let held experiences into the library of a run.

        Args:
            held: `H12` …, as `experiences` lists them; None is all of them.
            run: Name of the run; None: the latest practice run.

        Raises:
            ConfigError: There is no such run, nothing of that name is held, or the library does
                not take it.
            LockedError: Somebody works on the run.
        """
        from grpo_practice.app.approvals import decide

        with self._store() as store:
            return decide(store, held, run, approve=True)

    def reject(self, held: Sequence[str] | None = None, run: str | None = None) -> "DecisionReport":
        """Keep held experiences out for good; the arguments are those of `approve`.

        Raises: as `approve` does.
        """
        from grpo_practice.app.approvals import decide

        with self._store() as store:
            return decide(store, held, run, approve=False)

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
