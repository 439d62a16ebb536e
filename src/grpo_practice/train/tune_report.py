"""Report on a search for better training settings."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from grpo_practice.core.stats import Score
from grpo_practice.reports.base import Report, number

FLATTERS = (
    "the best of several scores is biased upwards, because luck helped to select it; quote the"
    " score on other questions instead"
)


@dataclass(frozen=True, slots=True)
class Phase:
    """Consecutive training steps of the same weights with the same settings."""

    step: int
    """First step of the phase."""
    run: str
    values: Mapping[str, Any]
    """Key of `train:` → value."""


def copied_from(phases: Sequence[Phase]) -> tuple[str, int] | None:
    """Return the run and step whose weights were last copied; None if none were copied."""
    if len(phases) < 2:
        return None
    before, now = phases[-2:]
    return before.run, now.step - 1


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of a search, or a member of a population."""

    number: int
    run: str
    state: str
    """State of the trial: `complete`, `pruned` or `failed`."""
    values: Mapping[str, Any]
    """Key of `train:` → value."""
    score: float | None
    """Mean reward of the trial's last weights on the selection questions."""
    steps: int
    """Number of steps trained."""
    phases: Sequence[Phase] = ()
    """History of the weights of a population member."""

    @property
    def source(self) -> str:
        """Run and step of the weights that the member last copied; "" if it copied none."""
        copied = copied_from(self.phases)
        return f"{copied[0].rpartition('/')[2]} after step {copied[1]}" if copied else ""


@dataclass(frozen=True, slots=True, repr=False)
class TuneReport(Report):
    """The current state of a search."""

    schema: ClassVar = "grpo-practice.tune/1"
    in_document: ClassVar = ("exp_id", "trials", "best", "selection", "tested", "test", "note")

    exp_id: str
    trials: Sequence[Trial]
    best: Trial | None
    """Trial with the highest score; None if no trial was completed."""
    selection: str
    """Dataset on which the best trial is selected."""
    tested: str | None = None
    """Run that evaluates the best trial's weights on the questions of `evaluation.data.dataset`."""
    test: Score | None = None

    @property
    def note(self) -> str:
        """Sentence about the selection bias of the scores."""
        return FLATTERS

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the best trial, with its scores on the selection and test questions."""
        best = self.best
        if best is None:
            return [(f"{self.exp_id}: no trial was completed",)]
        kind = "members" if best.phases else "trials"
        rows = [
            (f"{self.exp_id}: {best.run} is the best of {len(self.trials)} {kind}",),
            # A member whose settings changed has a row for each phase instead.
            *([("settings", settings_text(best.values))] if len(best.phases) < 2 else []),
            *(
                (f"from step {phase.step}", f"{settings_text(phase.values)}   {phase.run}")
                for phase in best.phases
                if len(best.phases) > 1
            ),
            ("selection", f"{number(best.score)} on {self.selection}"),
        ]
        if self.test is not None:
            within = self.test.ci95
            between = f"   95 % interval {within[0]:.3f} to {within[1]:.3f}" if within else ""
            rows.append(("test", f"{number(self.test.mean)}{between}   {self.tested}"))
        return rows


def settings_text(values: Mapping[str, Any]) -> str:
    """Format settings for display."""
    return ", ".join(f"{key} {setting_text(value)}" for key, value in values.items())


def setting_text(value: object) -> str:
    """Format a setting for display, floats with three significant digits."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
