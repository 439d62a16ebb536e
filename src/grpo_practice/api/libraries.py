"""Methods of `Workspace` for results of runs: libraries, experiences, agents and weights."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from grpo_practice.api.database import DatabaseFile

if TYPE_CHECKING:
    from grpo_practice.reports.experience_reports import (
        DecisionReport,
        ExperienceReport,
        LibraryReport,
    )
    from grpo_practice.run.hand_edits import EditedLibrary as EditedLibrary
    from grpo_practice.run.hand_edits import LibraryDifference


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
