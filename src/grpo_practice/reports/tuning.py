"""Report of a search for better settings of training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from typing_extensions import override

from grpo_practice.reports.base import Report, number
from grpo_practice.stats import Score

FLATTERS = (
    "the best of several scores flatters: it is chosen for its luck, too; the score on other"
    " questions is the one to quote"
)


@dataclass(frozen=True, slots=True)
class Phase:
    """Steps that weights were trained under the same settings."""

    step: int
    """First step of it."""
    run: str
    values: Mapping[str, Any]
    """Key of `train:` → value."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of a search, or a member of a population."""

    number: int
    run: str
    state: str
    """`complete`, `pruned` or `failed`."""
    values: Mapping[str, Any]
    """Key of `train:` → value."""
    score: float | None
    """Mean reward of its last weights on the selection questions."""
    steps: int
    """Steps that it was trained."""
    phases: Sequence[Phase] = ()
    """Past of its weights, where it is a member of a population."""

    @property
    def source(self) -> str:
        """Run and step of the weights that it took over last; "" where all are its own."""
        if len(self.phases) < 2:
            return ""
        before, now = self.phases[-2:]
        return f"{before.run.rpartition('/')[2]} after step {now.step - 1}"


@dataclass(frozen=True, slots=True, repr=False)
class TuneReport(Report):
    """A search as it stands."""

    schema: ClassVar = "grpo-practice.tune/1"
    in_document: ClassVar = ("exp_id", "trials", "best", "selection", "tested", "test", "note")

    exp_id: str
    trials: Sequence[Trial]
    best: Trial | None
    """Trial with the highest score; None where none was trained to its end."""
    selection: str
    """Dataset that it is chosen on."""
    tested: str | None = None
    """Run that evaluates its weights on the questions of `evaluation.data.dataset`."""
    test: Score | None = None

    @property
    def note(self) -> str:
        """Sentence on what the scores are worth."""
        return FLATTERS

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the best trial, and its score on either dataset."""
        best = self.best
        if best is None:
            return [(f"{self.exp_id}: no trial was trained to its end",)]
        kind = "members" if best.phases else "trials"
        rows = [
            (f"{self.exp_id}: {best.run} is the best of {len(self.trials)} {kind}",),
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
    """Return settings as a person reads them."""
    return ", ".join(f"{key} {setting_text(value)}" for key, value in values.items())


def setting_text(value: object) -> str:
    """Return a setting as a person reads it."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)
