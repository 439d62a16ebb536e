"""The report of one or more runs as a self-contained page without scripts."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import ClassVar

from typing_extensions import override

from grpo_practice import __version__
from grpo_practice.core.stages import STAGES
from grpo_practice.core.stats import Score
from grpo_practice.core.text import count
from grpo_practice.reports.base import Report
from grpo_practice.reports.conclusion import points
from grpo_practice.reports.effects import ExperienceEffect
from grpo_practice.reports.stored_runs import StageCost
from grpo_practice.store.queries.pages import Life
from grpo_practice.viewer import charts
from grpo_practice.viewer.pages import render, seconds, style, style_hash, tokens, when
from grpo_practice.viewer.shown_rollouts import ShownRollouts
from grpo_practice.viewer.story import Story
from grpo_practice.viewer.training import Course

CUT = 4_000
"""Maximum number of characters shown of a turn."""
NOT_MEASURED = "Not measured yet: no evaluation compares the agent with and without what it learnt."
NOT_COMPARED = "Not measured yet: no evaluation compares the trained weights with their base model."


@dataclass(frozen=True, slots=True)
class ScoreRow:
    """A score with its position on the line from 0 to 1."""

    label: str
    run: str
    score: Score
    range: charts.Axis

    @property
    def text(self) -> str:
        """The score in words, for readers who cannot see the line."""
        ends = self.score.ci95
        between = f", between {ends[0]:.3f} and {ends[1]:.3f}" if ends else ""
        return f"{self.label}: {self.score.mean:.3f}{between}"


@dataclass(frozen=True, slots=True)
class ExperienceRow:
    """An experience with its life, evidence and effect."""

    life: Life
    lane: charts.Lane
    lived: str
    evidence: str
    effect: str


@dataclass(frozen=True, slots=True)
class StepCost:
    """Calls, tokens and cost of a step."""

    step: int
    calls: Sequence[int]
    """Calls by stage. Shape: [stages]"""
    tokens: int | None
    usd: float | None
    width: float


class Part:
    """One run of a report: its data, and the values computed for the page."""

    def __init__(self, number: int, story: Story, shown: ShownRollouts) -> None:
        self.id = f"run-{number}"
        self.story, self.shown = story, shown
        self.height = charts.HEIGHT
        self.steps = max(len(story.report.steps), 1)
        trained = story.report.trained
        self.course = Course(story.report.steps, trained) if trained else None
        """Course of a training run; None for any other run."""

    @property
    def answer(self) -> str:
        """Verdict on whether the agent is better; if there is none, the reason or the score."""
        story = self.story
        if story.conclusion:
            return story.conclusion.headline
        if story.report.run.kind == "practice":
            return NOT_MEASURED
        if self.course is not None:
            return NOT_COMPARED
        own = story.report.scores.get(story.name)
        if own is None or own.mean is None:
            return "Not complete yet: there is no score."
        return f"Scored {own.mean:.3f}; nothing to compare it with."

    @property
    def result(self) -> str:
        """The answer in one line, with the difference."""
        return self.story.conclusion.sentence if self.story.conclusion else self.answer

    @property
    def ranges(self) -> list[ScoreRow]:
        """Scores at the top of the page: before and after, or the run's own score."""
        story, found = self.story, list[tuple[str, str, Score]]()
        learnt = story.learnt
        if learnt and (learnt.before or learnt.after):
            for label, known in (
                ("without experiences", learnt.before),
                (f"with {count(len(story.library), 'experience')}", learnt.after),
            ):
                if known is not None:
                    found.append((label, known.run, known.score))
        elif story.comparison is not None:
            labels = ("base model", "trained weights")
            if self.course is None:
                labels = ("without experiences", "this run")
            arms = zip(labels, story.comparison.arms, strict=False)
            found = [(label, arm.run, arm.score) for label, arm in arms]
        elif story.name in story.report.scores:
            found = [("this run", story.name, story.report.scores[story.name])]
        return [
            ScoreRow(label, run, score, charts.score_range(score.mean, score.ci95))
            for label, run, score in found
            if score.mean is not None
        ]

    @property
    def asked(self) -> str:
        """Sentence on the number of questions and rollouts behind the scores."""
        rows = self.ranges
        score = rows[-1].score
        of = f"{score.scored:,} of {count(score.planned, 'planned rollout')} have a reward"
        return f"{count(score.questions_scored, 'question')}; {of}."

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Facts at the top of the page."""
        report = self.story.report
        run = report.run
        done = f"{run.steps_closed} of {count(run.steps, 'step')} closed"
        spent = [cost.usd for cost in report.costs if cost.usd is not None]
        unpriced = sum(cost.unpriced for cost in report.costs)
        cost = f"${sum(spent):,.4f}" if spent else "unknown"
        if unpriced:
            cost += f", without {count(unpriced, 'call')} whose price is unknown"
        found = [
            ("status", f"{run.shown_kind}, {run.status}, {done}"),
            ("arm", run.arm or ""),
            ("differs from the arm before", run.arm_change or ""),
            ("agent", report.agent or ""),
            ("model", report.model or ""),
            (
                "dataset",
                f"{report.dataset.name}, {report.dataset.n:,} questions" if report.dataset else "",
            ),
            ("scored by", report.verify or ""),
            *self._trained,
            ("spent", cost if self.has_costs else ""),
            ("started", when(run.created_at)),
            ("tags", " ".join(run.tags)),
            ("note", run.note),
        ]
        return [(name, value) for name, value in found if value]

    @property
    def _trained(self) -> list[tuple[str, str]]:
        """Facts that only training runs have."""
        course = self.course
        if course is None:
            return []
        took = f"{seconds(course.seconds)}, {tokens(course.tokens)} tokens sampled and read"
        return [
            ("trained", course.trained.recipe),
            ("base weights", f"sha256 {course.trained.base_sha[:16]}…"),
            ("took", took if course.stretches else ""),
        ]

    @property
    def has_costs(self) -> bool:
        """False for a training run without paid calls: its weights are sampled in-process."""
        return self.course is None or bool(self.story.report.costs)

    @property
    def curve(self) -> charts.Curve | None:
        """Learning curve; None if the run has no scores and no rewards."""
        story = self.story
        if not story.curve and not story.rewards:
            return None
        return charts.curve(story.curve, story.rewards, len(story.report.steps))

    @property
    def experiences(self) -> list[ExperienceRow]:
        """Experiences with their lives; those in the last library come first."""
        story = self.story
        here = {e.id for e in story.library.experiences}
        rows = [
            ExperienceRow(
                life,
                charts.lane(life, self.steps),
                _lived(life),
                story.evidence[life.id].sentence if life.id in story.evidence else "",
                _effect(story.effects.get(life.id)),
            )
            for life in story.lives
        ]
        return sorted(rows, key=lambda row: (row.life.id not in here, row.life.label))

    @property
    def experiences_sentence(self) -> str:
        """Sentence on the number of current and of removed experiences."""
        stand, lives = len(self.story.library), len(self.story.lives)
        gone = f"; {count(lives - stand, 'other')} were removed" if lives > stand else ""
        return f"{count(stand, 'experience')} in the last library{gone}."

    @property
    def flips_sentence(self) -> str:
        """Sentence on how many listed questions became correct, and how many incorrect."""
        up = sum(flip.now > flip.was for flip in self.shown.flips)
        down = len(self.shown.flips) - up
        return (
            f"{up} changed to correct, {down} to incorrect (a mean reward of 0.5 or more is"
            " correct)."
        )

    @property
    def flips_command(self) -> str:
        """Command that lists all flipped questions."""
        comparison = self.story.comparison
        return comparison.next_command if comparison else ""

    @property
    def questions_sentence(self) -> str:
        """Explanation of the columns of the questions."""
        if self.story.report.run.learns:
            grew = "Rewards of practice, in which the library grew."
            if self.course is not None:
                grew = "Rewards of training, in which the weights changed."
            return (
                "One column for each time a question was asked, not for each step; the questions"
                f" that changed most come first. {grew}"
            )
        if self.story.comparison is not None:
            return "Mean reward of each question, largest change first."
        return "Mean reward of each question."

    @property
    def list_command(self) -> str:
        """Command that lists the run's rollouts."""
        return f"grpo-practice rollouts list {quote(self.story.name)}"

    @property
    def show_command(self) -> str:
        """Command that shows rollouts with their transcripts."""
        return f"grpo-practice rollouts show {quote(self.story.name)}"

    @property
    def transcripts_sentence(self) -> str:
        """Sentence on the number of transcripts on the page."""
        n = len(self.shown.rollouts)
        return f"{count(n, 'transcript')}, the most informative ones. To see any other:"

    @property
    def costs(self) -> list[tuple[StageCost, float]]:
        """Costs by stage and model, each with its percentage of the largest number of tokens."""
        costs = self.story.report.costs
        sizes = [float((cost.tokens_in or 0) + (cost.tokens_out or 0)) for cost in costs]
        return [*zip(costs, charts.parts(sizes), strict=True)]

    @property
    def stages(self) -> list[str]:
        """Stages that made calls, in order."""
        made = {cost.stage for cost in self.story.step_costs}
        return [stage for stage in STAGES if stage in made]

    @property
    def step_costs(self) -> list[StepCost]:
        """Costs by step."""
        steps = dict[int, list[int]]()
        tokens, usd = dict[int, int | None](), dict[int, float | None]()
        stages = self.stages
        for cost in self.story.step_costs:
            calls = steps.setdefault(cost.step, [0] * len(stages))
            calls[stages.index(cost.stage)] += cost.calls
            known = (cost.tokens_in, cost.tokens_out)
            if any(n is not None for n in known):
                tokens[cost.step] = (tokens.get(cost.step) or 0) + sum(n or 0 for n in known)
            if cost.usd is not None:
                usd[cost.step] = (usd.get(cost.step) or 0.0) + cost.usd
        widths = charts.parts([tokens.get(step) for step in steps])
        return [
            StepCost(step, calls, tokens.get(step), usd.get(step), width)
            for (step, calls), width in zip(steps.items(), widths, strict=True)
        ]

    @property
    def origin(self) -> list[tuple[str, str]]:
        """Origin of the numbers: run, branches, library and commands."""
        report = self.story.report
        library = self.story.library
        branches = ", ".join(b.text for b in report.branches)
        found = [
            ("run", f"{report.run.name}, branch {self.story.branch.id}"),
            ("branches", branches),
            ("library", f"L{library.id}" if library.id else ""),
            ("last command", report.command),
            ("started", when(report.run.created_at)),
            ("compare it yourself", self._recompute),
        ]
        return [(name, value) for name, value in found if value]

    @property
    def _recompute(self) -> str:
        comparison = self.story.comparison
        if comparison is None:
            return ""
        return (
            f"grpo-practice runs compare {' '.join(quote(a.run) for a in comparison.arms)} --json"
        )

    @property
    def contents(self) -> list[tuple[str, str]]:
        """Ids and titles of the sections of the page."""
        shown, story = self.shown, self.story
        found = [
            ("curve", "Learning curve", self.curve is not None),
            ("training", "Training", self.course is not None),
            ("experiences", f"Experiences ({len(story.library)})", bool(story.lives)),
            ("lessons", "What made the difference", bool(shown.pairs)),
            ("flips", "Questions that flipped", bool(shown.flips)),
            ("questions", "Reward by question", bool(story.questions)),
            ("cost", "Cost", self.has_costs),
            ("failures", "Failures", bool(shown.failed or story.failures)),
            ("origin", "Configuration and origin", True),
            ("transcripts", f"Transcripts ({len(shown.rollouts)})", bool(shown.rollouts)),
        ]
        return [(id_, text) for id_, text, there in found if there]


def html(parts: Sequence[Part], database: str, made: str) -> str:
    """Return the page; its policy forbids everything except its own style sheet."""
    sheet = style()
    title = ", ".join(part.story.name for part in parts)
    return render(
        "report.html",
        parts=parts,
        style=sheet,
        policy=f"default-src 'none'; style-src '{style_hash(sheet)}'; base-uri 'none';"
        " form-action 'none'",
        title=f"{title} \u00b7 grpo-practice",
        version=__version__,
        database=database,
        made=when(made),
        shade=charts.shade,
        cut=CUT,
    )


def _lived(life: Life) -> str:
    begun = "imported" if life.born is None else f"since step {life.born}"
    return begun if life.ended is None else f"{begun}, removed in step {life.ended}"


def _effect(of: ExperienceEffect | None) -> str:
    if of is None or of.effect is None or of.ci95 is None:
        return "-"
    low, high = (points(end, signed=True) for end in of.ci95)
    mark = "" if of.supported else " ?"
    return f"{points(of.effect, signed=True)}{mark} ({low} to {high})"


@dataclass(frozen=True, slots=True, repr=False)
class SavedReport(Report):
    """The text of a report about one or more runs."""

    schema: ClassVar = "grpo-practice.report/1"
    in_document: ClassVar = ("runs", "answers", "format", "path", "bytes")

    runs: Sequence[str]
    format: str
    """Format of the text: `html` or `md`."""
    text: str
    path: Path | None
    """File that the text was written to; None if it was not written."""
    answers: Sequence[str]
    """Verdict for each run on whether it is better."""
    next_command: str
    """Command to type next."""

    @property
    def bytes(self) -> int:
        """Size of the text in bytes."""
        return len(self.text.encode())

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each run with its verdict."""
        return [("report",), *zip(self.runs, self.answers, strict=True)]
