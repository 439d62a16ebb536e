"""Evaluations compared on their common questions: is one of them better, and by how much?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import ClassVar

from typing_extensions import override

from grpo_practice.core.stats import Score
from grpo_practice.core.stats.paired import FEWEST, Difference, Look, Moved, Verdict
from grpo_practice.core.stats.power import Noise, detectable, questions_to_find
from grpo_practice.core.stats.scores import mean
from grpo_practice.core.text import count
from grpo_practice.reports.base import Report, number
from grpo_practice.reports.conclusion import (
    DETECT,
    Conclusion,
    change,
    headline,
    p_value,
    points,
    spread,
    without_score,
)
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
    "with fewer than 100 questions and a score outside .1 to .9, false verdicts are likelier than p"
    " implies"
)
"""Warning beside a verdict; `make proof` measures the error rate that justifies it."""
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


@dataclass(frozen=True, slots=True, repr=False)
class ComparisonReport(Report):
    """A comparison of runs with a baseline."""

    schema: ClassVar = "grpo-practice.compare/1"
    in_document: ClassVar = (
        *("simulated", "arms", "contrasts", "conclusions", "questions_for_detect", "detect"),
        *("texts", "answers", "practice_cost_micro", "learning", "cannot_say"),
        *("best", "choice", "disagreed", "expected"),
    )

    arms: Sequence[Arm]
    """All arms; the baseline is the first."""
    contrasts: Sequence[Contrast]
    """Contrasts of the other arms, one each."""
    texts: Mapping[int, str]
    """Sample → its question."""
    practice_cost_micro: int | None = None
    """Cost of the practice that produced the last arm; None if unknown or without practice."""
    detect: float = DETECT
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
    each: bool = False
    """Whether each arm is compared with each other arm, because none of them is a baseline."""
    disagreed: Sequence[int] = ()
    """Samples on which arms compared with each other disagree, largest difference first."""
    expected: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Sample → its expected answers, any of which is right, for the questions in `answers`."""

    @property
    def best(self) -> str | None:
        """Run of the arm that is better than each other arm; None if there is no such arm."""
        return next((arm.run for arm in self.arms if self.each and not self._rivals(arm)), None)

    @property
    def choice(self) -> str | None:
        """Sentence that names the best arm; None if the arms have a baseline."""
        if not self.each:
            return None
        if self.best is not None:
            return f"Best: {self.name_of(self.best)}, which is better than each other arm"
        top = max(self.arms, key=lambda arm: arm.score.mean or 0.0)
        rivals = " and ".join(self.name_of(run) for run in self._rivals(top))
        return (
            f"No arm is shown to be the best: {self.name_of(top.run)} has the highest score, but is"
            f" not shown to be better than {rivals}"
        )

    def _rivals(self, arm: Arm) -> list[str]:
        """Return the runs that this arm is not shown to be better than."""
        found = list[str]()
        for one in self.contrasts:
            if arm.run == one.arm and one.verdict != "better":
                found.append(one.baseline)
            if arm.run == one.baseline and one.verdict != "worse":
                found.append(one.arm)
        return found

    @property
    @override
    def exit_code(self) -> int:
        """1 if a verdict was required and a contrast has a different verdict, else 0."""
        return 0 if self.required else 1

    @property
    def conclusions(self) -> list[Conclusion]:
        """Result of each contrast in words."""
        return [self.conclusion(contrast) for contrast in self.contrasts]

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
        if self.each and len(self.disagreed) > len(self.expected):
            runs = " ".join(quote(arm.run) for arm in self.arms)
            return f"grpo-practice runs compare {runs} --show {min(len(self.disagreed), 1_000)}"
        a, b = self.contrasts[-1].baseline, self.contrasts[-1].arm
        return f"grpo-practice rollouts list {quote(b)} --against {quote(a)}"

    def title(self, contrast: Contrast) -> str:
        """Return the title of a contrast, such as `full compared with none`."""
        return f"{self.name_of(contrast.arm)} compared with {self.name_of(contrast.baseline)}"

    def headings(self, contrast: Contrast) -> tuple[str, str]:
        """Return the headings for the two scores of a question."""
        if not self.by_arm:
            return "before", "after"
        return self.name_of(contrast.baseline), self.name_of(contrast.arm)

    def conclusion(self, contrast: Contrast) -> Conclusion:
        """Return the result of a contrast: the verdict, and labeled lines that explain it."""
        of, look = contrast.judged, contrast.look.number
        difference = f"{points(of.mean, signed=True)} points"
        if contrast.verdict == "too few":
            difference += ", without an interval"
        else:
            difference += f" (95 % interval {spread(*of.ci95)})"
        lines = {
            "scores": self._scores(contrast),
            "difference": difference,
            "questions": self._asked(contrast),
            "changed": f"{of.up:,} up, {of.down:,} down, {of.equal:,} equal",
            "without a score": without_score(of),
            **self._power(contrast),
            "an answer costs": self._answer_cost(contrast),
            "the practice cost": self._practice_cost(contrast),
            "adjusted p": "" if contrast.verdict == "too few" else p_value(contrast.p_adjusted),
            "looks at these questions": f"{look}"
            if look == 1
            else f"{look}; with each look, a verdict needs a larger difference",
            "caution": _caution(contrast),
        }
        title = headline(contrast.verdict, of.ci95, self.detect)
        return Conclusion(title, {label: text for label, text in lines.items() if text})

    def _scores(self, contrast: Contrast) -> str:
        """Return the mean rewards of the judged questions: `0.443 before, 0.637 after`."""
        before, after = self._sides(contrast)
        asked = contrast.judged.questions
        return (
            f"{mean([q.a for q in asked]):.3f} {before}, {mean([q.b for q in asked]):.3f} {after}"
        )

    def _sides(self, contrast: Contrast) -> tuple[str, str]:
        """Return words for the sides of a contrast: `before` and `after`, or `with full`."""
        before, after = self.headings(contrast)
        return (f"with {before}", f"with {after}") if self.by_arm else (before, after)

    def _power(self, contrast: Contrast) -> dict[str, str]:
        """Return what these and further questions would find; nothing if a difference was found."""
        if contrast.verdict in ("better", "worse"):
            return {}
        could, needed = contrast.could_find, contrast.questions_for(self.detect)
        find = "these questions find"
        if contrast.verdict == "too few":
            return {find: f"nothing: a verdict needs at least {FEWEST} questions"}
        known = f"a true difference of {points(could)} points, 4 times in 5" if could else "unknown"
        more = f"about {needed:,} questions in all" if needed else "unknown"
        return {find: known, f"to find {points(self.detect).removesuffix('.0')} points": more}

    def _asked(self, contrast: Contrast) -> str:
        of, (k_a, k_b) = contrast.judged, contrast.k
        n, new = len(of.questions), contrast.judged is contrast.new or not contrast.known
        each = f"{k_a} and {count(k_b, 'attempt')}" if k_a != k_b else count(k_a, "attempt")
        asked = f"{n:,}{' new' if new else ''}, {each} each"
        if of.clusters < n:
            asked += f", in families worth {of.effective_clusters:.0f} independent questions"
        if not new:
            which = "all" if contrast.known == n else f"{contrast.known:,}"
            asked += f", {which} of them practised on or used to select a library"
        arms = {arm.run: arm for arm in self.arms}
        lost = max(
            arms[run].score.questions_unscorable for run in (contrast.baseline, contrast.arm)
        )
        return f"{asked}; {lost:,} others cannot be scored" if lost else asked

    def _answer_cost(self, contrast: Contrast) -> str:
        """Return the cost of an answer before and after, in dollars or else in tokens."""
        arms = {arm.run: arm for arm in self.arms}
        was, now = arms[contrast.baseline], arms[contrast.arm]
        before, after = self._sides(contrast)
        if (a := was.cost_usd_per_answer) and (b := now.cost_usd_per_answer):
            return f"${a:.6f} {before}, ${b:.6f} {after}{change(b / a, 'less')}"
        if (a := was.tokens_per_answer) and (b := now.tokens_per_answer):
            return f"{a:,.0f} tokens {before}, {b:,.0f} {after}{change(b / a, 'fewer')}"
        return "unknown: no tokens were reported"

    def _practice_cost(self, contrast: Contrast) -> str:
        """Return the cost of the practice that produced the last arm, for the last contrast."""
        if not self.practice_cost_micro or contrast is not self.contrasts[-1]:
            return ""
        cents = self.practice_cost_micro >= 10_000
        return f"${self.practice_cost_micro / 1e6:,.{2 if cents else 6}f}"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each arm, and the verdict of each contrast with its explanation."""
        rows = [[self.choice]] if self.choice else []
        rows += [[self.name_of(arm.run), number(arm.score.mean)] for arm in self.arms]
        for contrast, found in zip(self.contrasts, self.conclusions, strict=True):
            rows += [[self.title(contrast), found.headline], *map(list, found.lines.items())]
        return rows


def _caution(contrast: Contrast) -> str:
    """Return why the numbers may mislead; empty if nothing is known against them."""
    rewards = {reward for q in contrast.judged.questions for reward in (q.a, q.b)}
    if rewards == {0.0}:
        return "no answer of either side is right: read some, and check the verify function"
    if rewards == {1.0}:
        return "all answers of both sides are right: these questions are too easy to show a gain"
    return SKEWED if contrast.verdict in ("better", "worse") and contrast.is_skewed else ""
