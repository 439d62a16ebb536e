"""The part of `Workspace` for what runs have learnt: libraries, experiences, agents, weights."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from grpo_practice.api.database import DatabaseFile

if TYPE_CHECKING:
    from grpo_practice.export.report import Exported
    from grpo_practice.reports.edited_library import EditedLibrary, LibraryDifference
    from grpo_practice.reports.experience_reports import (
        DecisionReport,
        ExperienceReport,
        LibraryReport,
    )
    from grpo_practice.reports.pruning import PruneReport
    from grpo_practice.reports.trained_export import TrainedExport


class Libraries(DatabaseFile):
    """Libraries of experiences, and what is made of them."""

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

    def prune(
        self,
        library: str | None = None,
        *,
        step: str = "last",
        max_tokens: int | None = None,
    ) -> "PruneReport":
        """Make a library without the experiences that are likely to do harm, as `effects` found.

        No gain is claimed: `evaluate_arms` measures one. The run keeps its own library.

        Args:
            library: `RUN[:STEP]` or `L12`; None: that of the latest practice run.
            step: Step after which it was the library: `last`, `best` or a number.
            max_tokens: Most tokens of the new library; then the best of those that fit are kept.

        Raises:
            ConfigError: There is no such library, its experiences are not measured, or none of
                them fits.
        """
        from grpo_practice.app.pruning import prune

        with self._store() as store:
            return prune(store, library, step, max_tokens)

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

    def export_trained(
        self,
        run: str,
        step: str | int = "last",
        *,
        output: str | Path | None = None,
        whole: bool = False,
        force: bool = False,
    ) -> "TrainedExport":
        """Write the weights of a training run, and the file of the agent that has them.

        Args:
            run: Training run.
            step: `last`, `best` (on the selection questions) or the number of a saved step.
            output: Folder to write; None: `EXP-trained` in the current one.
            whole: Whether to write the whole model, in place of the adapter.
            force: Whether to replace a folder that an earlier export has written.

        Raises:
            ConfigError: There are no such weights, or the folder cannot be written.
        """
        from grpo_practice.app.trained_export import export_trained

        with self._store() as store:
            exp = run.partition("/")[0]
            target = Path(f"{exp}-trained" if output is None else output)
            return export_trained(store, run, str(step), target, whole=whole, force=force)
