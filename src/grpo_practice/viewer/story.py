"""The data of a page about one run: is the agent better, and what did it learn?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote

from grpo_practice import __version__
from grpo_practice.core.errors import ConfigError, FingerprintError
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.types import Library
from grpo_practice.reports.before_after import BeforeAfter, before_after
from grpo_practice.reports.compared import compare_evaluations
from grpo_practice.reports.comparison import ComparisonReport
from grpo_practice.reports.conclusion import Conclusion
from grpo_practice.reports.effects import ExperienceEffect, measurement
from grpo_practice.reports.experience_reports import EvidenceSummary
from grpo_practice.reports.known_scores import KnownScore, measured
from grpo_practice.reports.stored_runs import RunReport, run_report
from grpo_practice.run.libraries import library_report
from grpo_practice.run.trained_arms import compare_stored
from grpo_practice.store import Store, branches, libraries
from grpo_practice.store.queries import arms, evaluations, pages, references, rollout_list, runs
from grpo_practice.store.queries.pages import FailureLine, Life, StepStageCost, Visit
from grpo_practice.store.records import Branch, RunRow
from grpo_practice.store.run_names import eval_name, train_name

MOST_QUESTIONS = 200
"""Maximum number of questions whose rewards are listed, largest change first."""
MOST_FAILURES = 50
"""Maximum number of failed requests listed."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Score of an evaluated library, for the learning curve of a practice run."""

    step: int
    """First step that made the library; -1 for the agent before the run."""
    last: int
    """Last step after which the library was still the same; these steps share one evaluation."""
    known: KnownScore


@dataclass(frozen=True, slots=True)
class QuestionRewards:
    """Mean rewards of one question: at each visit, or in each arm."""

    sample: int
    number: int | None
    """Number of the question in the run's dataset, starting at 1."""
    text: str
    rewards: tuple[float | None, ...]
    """Reward at each visit; None if no attempt has a reward. Shape: [visits]"""
    places: tuple[tuple[int, int] | None, ...]
    """Step and slot of each visit; None for a visit in another run. Shape: [visits]"""

    @property
    def change(self) -> float:
        """Last reward minus the first; 0 with fewer than two rewards."""
        known = [reward for reward in self.rewards if reward is not None]
        return known[-1] - known[0] if len(known) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Story:
    """The data of one run for a page."""

    report: RunReport
    branch: Branch
    learnt: BeforeAfter | None = None
    """Scores without and with a practice run's library; None for any other run."""
    comparison: ComparisonReport | None = None
    """Comparison of a baseline with this run, or before with after; None if a score is missing."""
    curve: Sequence[Measured] = ()
    rewards: Sequence[tuple[int, float]] = ()
    """Closed steps with their mean rewards during practice, which are not evaluation scores."""
    headings: Sequence[str] = ()
    """Names of the columns of `questions`."""
    questions: Sequence[QuestionRewards] = ()
    """The listed questions, largest change first."""
    more_questions: int = 0
    """Number of questions not listed."""
    step_costs: Sequence[StepStageCost] = ()
    library: Library = field(default_factory=Library)
    """Last library of a practice run."""
    lives: Sequence[Life] = ()
    evidence: Mapping[str, EvidenceSummary] = field(default_factory=dict)
    effects: Mapping[str, ExperienceEffect] = field(default_factory=dict)
    """Measured effects of the last library's experiences; empty if they were not measured."""
    failures: Sequence[FailureLine] = ()
    more_failures: int = 0
    config: str = ""
    """Stored configuration, without secrets."""
    version: str = __version__

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.report.run.name

    @property
    def conclusion(self) -> Conclusion | None:
        """Verdict on the run and its explanation; None without a comparison."""
        return self.comparison.conclusions[0] if self.comparison else None

    @property
    def measure(self) -> str | None:
        """Command that measures the missing scores; None if no score is missing."""
        run = self.report.run
        if run.kind == "train" and self.comparison is None and self.report.trained:
            done = run.steps_closed == run.steps and run.name == train_name(run.exp_id)
            command = f"grpo-practice eval --run {quote(run.name)} --arms base,trained"
            return command if done else None
        return self.learnt.measure() if self.learnt else None


def story_of(store: Store, name: str, *, whole: bool = True) -> Story:
    """Return the data of a page about a run.

    Without `whole`, questions, lives of experiences and costs by step are left out, because the
    viewer shows them on other pages.

    Raises:
        ConfigError: The run does not exist, or has no data to show.
    """
    report = run_report(store, name)
    run, name = report.run, report.run.name
    if run.head_branch is None or run.kind == "recorded":
        what = "was never started" if run.head_branch is None else "is recorded: it has no rollouts"
        raise ConfigError(f"{name} {what}", hint=report.next_command)
    branch = store.read(branches.load, run.head_branch)
    failures = store.read(pages.failure_page, name, None, MOST_FAILURES)
    shared = Story(
        report,
        branch,
        step_costs=store.read(pages.stage_costs, name) if whole else (),
        failures=failures,
        more_failures=store.read(pages.count_failures, name) - len(failures),
        config=store.read(references.record, branch.id).config_text,
    )
    if run.kind == "practice":
        practised = _practised(store, shared)
        return _learnt(store, practised) if whole else practised
    if run.kind == "train":
        trained = replace(shared, comparison=_arms(store, run))
        return _visited(store, trained) if whole else trained
    compared = _evaluated(store, shared)
    return _asked(store, compared) if whole else compared


def _practised(store: Store, story: Story) -> Story:
    """Return the data of a practice run, without experiences and questions."""
    branch, rows = story.branch, story.report.steps
    outs = [row.library_out for row in rows if row.library_out]
    library = store.read(libraries.load, outs[-1]) if outs else branch.library
    learnt = before_after(store, branch.id, branch.run, library)
    comparison = None
    # If nothing was learnt, both scores come from the same evaluation.
    if learnt.before and learnt.after and learnt.before.run != learnt.after.run:
        comparison = _compare(store, learnt.before.run, learnt.after.run)
    return replace(
        story,
        library=library,
        learnt=learnt,
        comparison=comparison,
        curve=_curve(store, story, learnt, library),
        rewards=[
            (row.plan.step, row.stats["mean_reward"])
            for row in rows
            if row.closed and row.stats and row.stats.get("mean_reward") is not None
        ],
    )


def _learnt(store: Store, story: Story) -> Story:
    """Return the data of a practice run with its experiences, and its questions by visit."""
    branch = story.branch
    made = any(row.library_out for row in story.report.steps)
    known = library_report(store, branch.run, "last", quarantined=False) if made else None
    story = replace(
        story,
        lives=store.read(pages.lives, branch),
        evidence=known.evidence if known else {},
        effects=_effects(store, story.report.run.exp_id, story.library),
    )
    return _visited(store, story)


def _visited(store: Store, story: Story) -> Story:
    """Return the data of a run that learns, including its questions by visit."""
    visits = store.read(pages.question_visits, story.branch)
    questions = _visits(store, story.branch, visits)
    columns = max((len(q.rewards) for q in questions), default=0)
    headings = [f"visit {n + 1}" for n in range(columns)]
    return _listed(store, replace(story, headings=headings), questions)


def _arms(store: Store, run: RunRow) -> ComparisonReport | None:
    """Compare trained weights with their base model; return None unless both were evaluated."""
    if run.name != train_name(run.exp_id):
        return None
    try:
        return compare_stored(store, run.exp_id, ("base", "trained"))
    # Not evaluated yet, or with other settings; `Story.measure` tells how to measure.
    except (ConfigError, FingerprintError):
        return None


def _evaluated(store: Store, story: Story) -> Story:
    """Return the data of an evaluation, compared with the one without a library, if any."""
    name, baseline = story.name, eval_name(story.report.run.exp_id)
    # The baseline itself has nothing to be compared with.
    if name == baseline or not story.report.run.has_score or not store.read(runs.find, baseline):
        return story
    return replace(story, comparison=_compare(store, baseline, name))


def _asked(store: Store, story: Story) -> Story:
    """Return the data of an evaluation, including its questions."""
    questions = _visits(store, story.branch, store.read(pages.question_visits, story.branch))
    headings = ["reward"]
    if story.comparison is not None:
        questions = _moved(story.comparison, questions)
        headings = [arm.run for arm in story.comparison.arms]
    return _listed(store, replace(story, headings=headings), questions)


def _compare(store: Store, baseline: str, run: str) -> ComparisonReport | None:
    """Return the comparison of two evaluations; None if they cannot be compared."""
    try:
        return compare_evaluations(store, [baseline, run])
    except ConfigError:
        return None


def _curve(store: Store, story: Story, learnt: BeforeAfter, end: Library) -> list[Measured]:
    """Return the scores of all evaluated libraries, each once."""
    # The agent before the first step has an empty library; so may the first steps.
    stretches = [(Library(), [-1])]
    for row in story.report.steps:
        if not row.library_out:
            continue
        if row.library_out != stretches[-1][0].id:
            library = store.read(libraries.load, row.library_out)
            if stretches[-1][0].experiences != library.experiences:
                stretches.append((library, []))
        stretches[-1][1].append(row.plan.step)
    found, seen = list[Measured](), set[str]()
    for library, made in stretches:
        if not library:
            known = learnt.before
        elif library.experiences == end.experiences and learnt.after:
            known = learnt.after
        else:
            known = measured(store, story.branch, library)
        # A library that occurs twice has one evaluation, hence one mark.
        if known is not None and known.run not in seen:
            seen.add(known.run)
            found.append(Measured(made[0], made[-1], known))
    return found


def _visits(store: Store, branch: Branch, visits: Sequence[Visit]) -> list[QuestionRewards]:
    """Return the rewards of each question by visit, largest change first."""
    by_sample = dict[int, list[Visit]]()
    for visit in visits:
        by_sample.setdefault(visit.sample_id, []).append(visit)
    numbers = dict[int, int]()
    for segment in branch.line:
        numbers = store.read(rollout_list.numbers, segment.branch_id, by_sample) | numbers
    found = [
        QuestionRewards(
            sample,
            numbers.get(sample),
            "",
            tuple(visit.mean for visit in asked),
            tuple((visit.step, visit.slot) for visit in asked),
        )
        for sample, asked in by_sample.items()
    ]
    return sorted(found, key=_by_change)


def _by_change(of: QuestionRewards) -> tuple[float, int, int]:
    return -abs(of.change), of.number or 0, of.sample


def _listed(store: Store, story: Story, found: Sequence[QuestionRewards]) -> Story:
    """Return the data with the texts of the first few questions, and the number of the others."""
    listed = found[:MOST_QUESTIONS]
    texts = store.read(arms.question_texts, [q.sample for q in listed])
    return replace(
        story,
        questions=[replace(q, text=texts.get(q.sample, "")) for q in listed],
        more_questions=len(found) - len(listed),
    )


def _moved(comparison: ComparisonReport, own: Sequence[QuestionRewards]) -> list[QuestionRewards]:
    """Return each question's rewards in the baseline and this run, largest change first."""
    both = {int(q.key): (q.a, q.b) for q in comparison.contrasts[0].difference.questions}
    found = [
        replace(q, rewards=both[q.sample], places=(None, q.places[-1]))
        for q in own
        if q.sample in both
    ]
    return sorted(found, key=_by_change)


def _effects(store: Store, exp_id: str, library: Library) -> dict[str, ExperienceEffect]:
    """Return the measured effects of a library's experiences; empty if not measured."""
    name = store.read(evaluations.measurement_of, exp_id, library_sha(library))
    if name is None:
        return {}
    try:
        found = measurement(store, name)
    except ConfigError:  # the measurement is incomplete
        return {}
    return {one.experience.id: one for one in found.experiences}


def latest_run(store: Store) -> str:
    """Return the latest practice run; failing that, the latest training run or evaluation.

    Raises:
        ConfigError: The database holds no such run.
    """
    kinds = ("practice", "train", "eval")
    latest = (store.read(runs.latest, (kind,)) for kind in kinds)
    found = next((run for run in latest if run is not None), None)
    if found is None:
        raise ConfigError("there is no run yet", hint="grpo-practice demo --keep demo")
    return found.name
