"""The part of `Workspace` for results of runs: libraries, experiences, agents and weights."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from grpo_practice.api.database import DatabaseFile

if TYPE_CHECKING:
    from grpo_practice.effects.prune_report import PruneReport
    from grpo_practice.export.export_report import Exported
    from grpo_practice.reports.edited_library import EditedLibrary, LibraryDifference
    from grpo_practice.reports.experience_reports import (
        DecisionReport,
        ExperienceReport,
        LibraryReport,
    )
    from grpo_practice.train.export_report import TrainedExport


class Libraries(DatabaseFile):
    """Libraries of experiences, and the agents and files made from them."""

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
            approve: Quarantined texts to add despite the reason for their quarantine: `Q12`, …

        Raises:
            ConfigError: The library, an experience or a quarantined text does not exist, or a text
                is not allowed in a library.
        """
        from grpo_practice.run.hand_edits import edit_library

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
        """Make a new library without the experiences that `effects` measured as probably harmful.

        The report claims no gain; measure one with `evaluate_arms`. The run keeps its own library.

        Args:
            library: `RUN[:STEP]` or `L12`; None selects the library of the latest practice run.
            step: Step whose library to prune: `last`, `best` or a number.
            max_tokens: Maximum size of the new library; the best experiences that fit are kept.

        Raises:
            ConfigError: The library does not exist, the effects of its experiences were not
                measured, or no experience fits.
        """
        from grpo_practice.effects.pruning import prune

        with self._store() as store:
            return prune(store, library, step, max_tokens)

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
            ConfigError: The run does not exist, it holds no experience of that name, or the library
                does not accept the text.
            LockedError: Another process is working on the run.
        """
        from grpo_practice.run.approvals import decide

        with self._store() as store:
            return decide(store, held, run, approve=True)

    def reject(self, held: Sequence[str] | None = None, run: str | None = None) -> "DecisionReport":
        """Reject held experiences for good; the arguments are the same as for `approve`.

        Raises: The same errors as `approve`.
        """
        from grpo_practice.run.approvals import decide

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
        """Return the agent with its learnt experiences; if `output` is given, write it there.

        Args:
            run: `RUN`, `RUN@BRANCH`, `RUN:STEP` or `L12`; None selects the latest practice run.
            step: `last`, `best`, or the number of a closed step.
            format: Export format; None chooses it by the name of the file.
            output: File or folder to write.
            force: Whether to replace an existing file. An `AGENTS.md` does not need it: only the
                section written by this program is replaced.

        Raises:
            ConfigError: The library does not exist, or the file cannot be written.
        """
        from grpo_practice.core.files import write_files, write_section
        from grpo_practice.export.agent_export import call_of_program, exported, remember_export
        from grpo_practice.export.export_report import Exported
        from grpo_practice.export.render import FORMATS, format_by_name, render_files
        from grpo_practice.reports.before_after import before_after
        from grpo_practice.run.library_refs import library_of

        format = format or format_by_name(str(output or ""))
        path = None if output is None else Path(output)
        with self._store() as store:
            found = library_of(store, run, str(step))
            scores = before_after(store, found.branch, found.run, found.library)
            agent = exported(store, found, scores)
            agent = replace(agent, place="" if path is None else path.absolute().name)
            files = render_files(agent, format)
            # Only files that `eval --agent` can read need to be trusted later.
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
        """Write the weights of a training run, and an agent file that uses them.

        Args:
            run: Training run.
            step: `last`, `best` (on the selection questions) or the number of a saved step.
            output: Folder to write; None is `EXP-trained` in the current folder.
            whole: Whether to write the whole model instead of the adapter.
            force: Whether to replace a folder written by an earlier export.

        Raises:
            ConfigError: The weights do not exist, or the folder cannot be written.
        """
        from grpo_practice.train.export import export_trained

        with self._store() as store:
            exp = run.partition("/")[0]
            target = Path(f"{exp}-trained" if output is None else output)
            return export_trained(store, run, str(step), target, whole=whole, force=force)
