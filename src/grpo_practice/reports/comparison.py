"""Evaluations compared on their common questions: is one of them better, and by how much?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import ClassVar

from typing_extensions import override

from grpo_practice.core.stats import Score
from grpo_practice.core.stats.paired import ALPHA, FEWEST, Difference, Look, Moved, Verdict
from grpo_practice.core.stats.power import Noise, detectable, questions_to_find
from grpo_practice.core.stats.scores import mean
from grpo_practice.core.text import count, ordinal
from grpo_practice.reports.base import Report, number
from grpo_practice.reports.learning_cost import LearningCost
from grpo_practice.store.queries.arms import ArmTotals
from grpo_practice.store.queries.rollout_list import RolloutRow

CANNOT_SAY = (
    "how much the result depends on the seed: each arm was trained or practised only once",
    "how the arms do on other questions, or with another endpoint's sampling",
    "what longer training or practice would achieve",
)
"""Limits of a comparison of practice with training."""
MANY = 100
"""Number of question clusters from which p values are valid for any mean."""
SKEWED = (
    "with fewer than 100 questions and a mean outside .1 to .9, false verdicts are likelier than p"
    " implies"
)
"""Warning appended to a verdict; `make proof` measures the error rate that justifies it."""
MOST_MOVED = 10
"""Maximum number of questions shown for a contrast, largest change first."""


@dataclass(frozen=True, slots=True)
class Arm:
    """An evaluation in a comparison."""

    in_document: ClassVar = (
        *("run", "named", "score", "k", "tokens_per_answer", "cost_usd_per_answer", "truncated"),
        *("empty", "no_answer_read", "totals.begun", "totals.ended"),
    )

    run: str
    named: str
    """Name as typed; a practice run stands for the evaluation of its last library."""
    score: Score
    totals: ArmTotals
    k: int
    """Number of rollouts planned for each question."""
    extracts: bool
    """Whether the verify function extracts an answer from a response."""

    @property
    def tokens_per_answer(self) -> float | None:
        """Tokens per answer, in and out; None if no reply reports them."""
        return self.totals.tokens / self.totals.counted if self.totals.counted else None

    @property
    def cost_usd_per_answer(self) -> float | None:
        """Dollars per answer; None if the cost of any answer is unknown."""
        totals = self.totals
        if not totals.priced or totals.priced < totals.scored:
            return None
        return totals.cost_micro / totals.priced / 1e6

    @property
    def truncated(self) -> float:
        """Share of the answers that the token limit cut off."""
        return self._share(self.totals.truncated)

    @property
    def empty(self) -> float:
        """Share of the answers without any text."""
        return self._share(self.totals.empty)

    @property
    def no_answer_read(self) -> float | None:
        """Share of scored responses without an extracted answer; None if nothing is extracted."""
        return self._share(self.totals.unread) if self.extracts else None

    def _share(self, n: int) -> float:
        return n / self.totals.scored if self.totals.scored else 0.0


def judged_of(found: Difference, new: Difference | None) -> Difference:
    """Return the difference used for the verdict: on new questions, if there are enough of them."""
    return new if new and len(new.questions) >= FEWEST else found


@dataclass(frozen=True, slots=True)
class Contrast:
    """Difference between an arm and its baseline."""

    in_document: ClassVar = (
        *("baseline", "arm", "verdict", "p_adjusted", "look", "difference", "known", "new"),
        *("could_find", "notes", "k", "difference.questions", "clusters"),
    )

    baseline: str
    arm: str
    difference: Difference
    """Difference over all common questions."""
    verdict: Verdict
    p_adjusted: float
    """p value of the judged difference, adjusted for other contrasts and earlier comparisons."""
    look: Look
    """Position among all comparisons made on these questions."""
    known: int = 0
    """Number of common questions that were practised on, or that were used to select a library."""
    new: Difference | None = None
    """Difference over the new questions; None if all common questions are new, or none is."""
    notes: Sequence[str] = ()
    """Sentences about other differences between the two arms."""
    k: tuple[int, int] = (1, 1)
    """Number of rollouts planned for each question, in the baseline and in the arm."""
    clusters: Mapping[str, str] = field(default_factory=dict)
    """Sample → its family, for questions that belong to one."""

    @property
    def judged(self) -> Difference:
        """Difference used for the verdict: on new questions, if there are enough of them."""
        return judged_of(self.difference, self.new)

    @property
    def is_skewed(self) -> bool:
        """Whether errors may exceed 5 %, because questions are few and a mean is near 0 or 1."""
        of = self.judged
        means = (mean([q.a for q in of.questions]), mean([q.b for q in of.questions]))
        return of.effective_clusters < MANY and not all(0.1 <= one <= 0.9 for one in means)

    @property
    def noise(self) -> Noise | None:
        """Variance of the difference between clusters; None if all differences are equal.

        The observed difference is not used, because power computed from it is biased.
        """
        of = self.judged
        return Noise(of.se**2 * of.effective_clusters, 0, 0) if of.se else None

    @property
    def could_find(self) -> float | None:
        """Smallest difference that these questions can detect with 80 % power; None if unknown."""
        if self.noise is None or self.verdict == "too few":
            return None
        clusters = round(self.judged.effective_clusters)
        return detectable(self.noise, clusters, 1, 1, self.look.level)

    def questions_for(self, difference: float) -> int | None:
        """Return about how many questions are needed to detect this difference at 80 % power."""
        if self.noise is None:
            return None
        clusters = questions_to_find(self.noise, difference, 1, 1, self.look.level)
        # Further questions are expected to form families of the same sizes.
        return round(clusters * len(self.judged.questions) / self.judged.effective_clusters)

    @property
    def moved(self) -> list[Moved]:
        """Questions whose mean reward differs, largest change first."""
        return sorted(
            # Means are floats, so a difference of less than 1e-9 counts as a rounding error.
            (q for q in self.difference.questions if abs(q.by) > 1e-9),
            key=lambda q: -abs(q.by),
        )


def _change(verb: str, ratio: float, unit: str) -> list[str]:
    """Return how much the cost or tokens per answer changed; [] for less than 1 %."""
    if ratio >= 2:
        return [f"an answer {verb} {ratio:.1f} times the {unit or 'money'}"]
    percent = round(100 * (ratio - 1))
    less = "fewer" if unit else "less"
    more = f"{abs(percent)} % {'more' if percent > 0 else less}"
    return [f"an answer {verb} {more}" + (f" {unit}" if unit else "")] if percent else []


def _p(value: float) -> str:
    """Format a p value as `p .007`, with more digits if rounding would cross the threshold."""
    if value < 0.0005:
        return "p < .001"
    told = (f"{value:.{digits}f}" for digits in range(3, 17))
    side = value < ALPHA
    return f"p {next((p for p in told if (float(p) < ALPHA) == side), value)}".replace("0.", ".", 1)


def points(value: float, *, signed: bool = False) -> str:
    """Format a share in percentage points: `8.1`; signed, `+8.1` or `-3.1`."""
    return f"{100 * value:{'+' if signed else ''}.1f}"


@dataclass(frozen=True, slots=True, repr=False)
class ComparisonReport(Report):
    """A comparison of runs with a baseline."""

    schema: ClassVar = "grpo-practice.compare/1"
    in_document: ClassVar = (
        *("simulated", "arms", "contrasts", "sentences", "questions_for_detect", "detect"),
        *("texts", "answers", "practice_cost_micro", "learning", "cannot_say"),
    )

    arms: Sequence[Arm]
    """All arms; the baseline is the first."""
    contrasts: Sequence[Contrast]
    """Contrasts of the other arms, one each."""
    texts: Mapping[int, str]
    """Sample → its question."""
    practice_cost_micro: int | None = None
    """Cost of the practice that produced the last arm; None if unknown or without practice."""
    detect: float = 0.05
    """Difference for which the needed number of questions is computed."""
    simulated: bool = False
    by_arm: bool = False
    """Whether the arms have display names such as `full` and `none`."""
    required: bool = True
    """Whether every contrast has the required verdict; True if no verdict is required."""
    answers: Mapping[str, Mapping[int, Sequence[RolloutRow]]] = field(default_factory=dict)
    """Run → sample → rollouts, for the questions whose answers were requested."""
    learning: Mapping[str, LearningCost] = field(default_factory=dict)
    """Arm → cost of producing it, in a comparison of practice with training."""

    @property
    @override
    def exit_code(self) -> int:
        """1 if a verdict was required and a contrast has a different verdict, else 0."""
        return 0 if self.required else 1

    @property
    def sentences(self) -> list[str]:
        """Result of each contrast in a sentence."""
        return [self.sentence(contrast) for contrast in self.contrasts]

    @property
    def questions_for_detect(self) -> list[int | None]:
        """Number of questions that each contrast needs to detect `detect`."""
        return [contrast.questions_for(self.detect) for contrast in self.contrasts]

    @property
    def cannot_say(self) -> Sequence[str]:
        """Limits of the comparison, if it compares practice with training."""
        return CANNOT_SAY if self.learning else ()

    def name_of(self, run: str) -> str:
        """Return the display name of an arm."""
        named = (arm.named for arm in self.arms if arm.run == run)
        return next(named, run) if self.by_arm else run

    @property
    @override
    def next_command(self) -> str:
        """Command that lists the answers to the questions whose reward changed."""
        a, b = self.contrasts[-1].baseline, self.contrasts[-1].arm
        return f"grpo-practice rollouts list {quote(b)} --against {quote(a)}"

    def title(self, contrast: Contrast) -> str:
        """Return the title of a contrast, such as `full minus none`."""
        return f"{self.name_of(contrast.arm)} minus {self.name_of(contrast.baseline)}"

    def headings(self, contrast: Contrast) -> tuple[str, str]:
        """Return the headings for the two scores of a question."""
        if not self.by_arm:
            return "before", "after"
        return self.name_of(contrast.baseline), self.name_of(contrast.arm)

    def sentence(self, contrast: Contrast) -> str:
        """Return a sentence with the result of a contrast."""
        return f"{self._found(contrast)}{self._more(contrast)}"

    def _found(self, contrast: Contrast) -> str:
        of = contrast.judged
        size, ends = points(abs(of.mean)), f"{points(of.ci95[0])} to {points(of.ci95[1])}"
        p = _p(contrast.p_adjusted)
        asked = f"on {self._asked(contrast)}"
        if (number := contrast.look.number) > 1:
            asked += f", the {ordinal(number)} comparison on these questions"
        match contrast.verdict:
            case "better" | "worse":
                # The difference is printed without its sign, so swap the ends and negate them.
                if contrast.verdict == "worse":
                    ends = f"{points(-of.ci95[1])} to {points(-of.ci95[0])}"
                found = f"{contrast.verdict} by {size} points (95 % interval {ends}, {p}) {asked}"
                return f"{found} ({SKEWED})" if contrast.is_skewed else found
            case "too few":
                what = count(len(of.questions), "question")
                if of.clusters < len(of.questions):
                    what += f" in families worth {of.effective_clusters:.0f} independent questions"
                return f"too few questions: {what}, and a verdict needs {FEWEST}"
            case "missing":
                return (
                    f"no verdict: {points(of.mean, signed=True)} points ({ends}), but"
                    f" {count(of.missing, 'rollout')} without a reward could overturn it"
                )
            case "none found":
                # An interval that excludes 0 seems to contradict this verdict: show the adjusted p.
                why = f", {p}" if of.p < ALPHA else ""
                found = f"no difference found: {points(of.mean, signed=True)} points ({ends}{why})"
                return f"{found} {asked}{self._would_find(contrast)}"

    def _would_find(self, contrast: Contrast) -> str:
        """Return the smallest detectable difference, and the questions needed for `detect`."""
        could, needed = contrast.could_find, contrast.questions_for(self.detect)
        if could is None or needed is None:
            return ""
        wanted = points(self.detect).removesuffix(".0")
        return (
            f"; this could find {points(could)};"
            f" to find {wanted} points: about {needed:,} questions"
        )

    def _asked(self, contrast: Contrast) -> str:
        n, (k_a, k_b) = len(contrast.judged.questions), contrast.k
        new = " new" if contrast.judged is contrast.new or not contrast.known else ""
        times = f"{k_a}" if k_a == k_b else f"{k_a} and {k_b}"
        asked = f"{n:,}{new} {'question' if n == 1 else 'questions'} \u00d7 {times}"
        if new:
            return asked
        which = "all" if contrast.known == n else f"{contrast.known:,}"
        return f"{asked}, {which} of them practised on or used to select a library"

    def _more(self, contrast: Contrast) -> str:
        """Return the change in cost per answer, and the cost of the practice, if known."""
        arms = {arm.run: arm for arm in self.arms}
        was, now = arms[contrast.baseline], arms[contrast.arm]
        parts = []
        if was.cost_usd_per_answer and now.cost_usd_per_answer:
            parts += _change("costs", now.cost_usd_per_answer / was.cost_usd_per_answer, "")
        elif was.tokens_per_answer and now.tokens_per_answer:
            parts += _change("takes", now.tokens_per_answer / was.tokens_per_answer, "tokens")
        # Practice produced the last arm, so its cost belongs to the last contrast.
        if self.practice_cost_micro and contrast is self.contrasts[-1]:
            cents = self.practice_cost_micro >= 10_000
            parts.append(f"practice cost ${self.practice_cost_micro / 1e6:,.{2 if cents else 6}f}")
        return "".join(f"; {part}" for part in parts)

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each arm, and the sentence of each contrast."""
        return [
            *((self.name_of(arm.run), number(arm.score.mean)) for arm in self.arms),
            *((self.title(contrast), self.sentence(contrast)) for contrast in self.contrasts),
        ]
