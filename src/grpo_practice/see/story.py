"""All that a page about one run shows, as values: is it better, and what did it learn?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote

from grpo_practice import __version__
from grpo_practice.app.libraries import library_report
from grpo_practice.app.trained_arms import compare_stored
from grpo_practice.errors import ConfigError, FingerprintError
from grpo_practice.prompts.system import library_sha
from grpo_practice.reports.before_after import BeforeAfter, before_after
from grpo_practice.reports.compared import compare_evaluations
from grpo_practice.reports.comparison import ComparisonReport
from grpo_practice.reports.effects import ExperienceEffect, measurement
from grpo_practice.reports.experience_reports import EvidenceSummary
from grpo_practice.reports.known_scores import KnownScore, measured
from grpo_practice.reports.stored_runs import RunReport, run_report
from grpo_practice.store import Store, branches, libraries
from grpo_practice.store.queries import arms, evaluations, pages, references, rollout_list, runs
from grpo_practice.store.queries.pages import FailureLine, Life, StepStageCost, Visit
from grpo_practice.store.records import Branch, RunRow
from grpo_practice.store.run_names import eval_name, train_name
from grpo_practice.types import Library

MOST_QUESTIONS = 200
"""Questions of a run whose rewards are listed one by one: those that changed most."""
MOST_FAILURES = 50
"""Failed requests that are listed one by one."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Score of a library that was evaluated, on the curve of a practice run."""

    step: int
    """First step that made the library; -1 for the agent before the run."""
    last: int
    """Last step after which the library was the same: they share the one evaluation."""
    known: KnownScore


@dataclass(frozen=True, slots=True)
class QuestionRewards:
    """Mean rewards of one question: each time that it was asked, or in each arm."""

    sample: int
    number: int | None
    """Number of the question in the run's dataset, counted from 1."""
    text: str
    rewards: tuple[float | None, ...]
    """Shape: [visits]; None where no attempt has a reward."""
    places: tuple[tuple[int, int] | None, ...]
    """Step and slot of each; None for one of another run. Shape: [visits]"""

    @property
    def change(self) -> float:
        """Last reward less the first; 0 for one that has fewer than two."""
        known = [reward for reward in self.rewards if reward is not None]
        return known[-1] - known[0] if len(known) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Story:
    """One run, for a page."""

    report: RunReport
    branch: Branch
    learnt: BeforeAfter | None = None
    """Scores without and with what a practice run has learnt; None for any other run."""
    comparison: ComparisonReport | None = None
    """The baseline and this run, or the agent before and after; None where one is missing."""
    curve: Sequence[Measured] = ()
    rewards: Sequence[tuple[int, float]] = ()
    """Step and its mean reward in practice, for the closed ones: another thing than a score."""
    headings: Sequence[str] = ()
    """Names of the columns of `questions`."""
    questions: Sequence[QuestionRewards] = ()
    """Those that changed most first, as many as are listed."""
    more_questions: int = 0
    """Number of the others."""
    step_costs: Sequence[StepStageCost] = ()
    library: Library = field(default_factory=Library)
    """Last library of a practice run."""
    lives: Sequence[Life] = ()
    evidence: Mapping[str, EvidenceSummary] = field(default_factory=dict)
    effects: Mapping[str, ExperienceEffect] = field(default_factory=dict)
    """Measured effects of the last library's experiences; empty where they were not measured."""
    failures: Sequence[FailureLine] = ()
    more_failures: int = 0
    config: str = ""
    """Configuration as it is stored: secrets are not."""
    version: str = __version__

    @property
    def name(self) -> str:
        """Name of the run."""
        return self.report.run.name

    @property
    def verdict(self) -> str:
        """Verdict on what was learnt: `better`, `worse`, …; "" where nothing was compared."""
        return self.comparison.contrasts[0].verdict if self.comparison else ""

    @property
    def sentence(self) -> str:
        """Answer to whether it is better, by how much, and how sure that is; "" without one."""
        if self.comparison is None:
            return ""
        return self.comparison.sentence(self.comparison.contrasts[0])

    @property
    def measure(self) -> str | None:
        """Command that measures what is missing for an answer; None where nothing is."""
        run = self.report.run
        if run.kind == "train" and self.comparison is None and self.report.trained:
            done = run.steps_closed == run.steps and run.name == train_name(run.exp_id)
            command = f"grpo-practice eval --run {quote(run.name)} --arms base,trained"
            return command if done else None
        return self.learnt.measure() if self.learnt else None


def story_of(store: Store, name: str, *, whole: bool = True) -> Story:
    """Return all that a page about a run shows.

    Without `whole`, questions, lives of experiences and costs by step are left out: they have pages
    of their own.

    Raises:
        ConfigError: There is no such run, or nothing of it can be shown.
    """
    report = run_report(store, name)
    run = report.run
    if run.head_branch is None or run.kind == "recorded":
        what = "was never begun" if run.head_branch is None else "is recorded: it has no rollouts"
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
    """Return the story of a practice run, without what it learnt in detail."""
    branch, rows = story.branch, story.report.steps
    outs = [row.library_out for row in rows if row.library_out]
    library = store.read(libraries.load, outs[-1]) if outs else branch.library
    learnt = before_after(store, branch.id, branch.run, library)
    comparison = None
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
    """Return the story of a practice run with its experiences, and its questions by visit."""
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
    """Return the story of a run that learns with its questions by visit."""
    visits = store.read(pages.question_visits, story.branch)
    questions = _visits(store, story.branch, visits)
    columns = max((len(q.rewards) for q in questions), default=0)
    headings = [f"visit {n + 1}" for n in range(columns)]
    return _listed(store, replace(story, headings=headings), questions)


def _arms(store: Store, run: RunRow) -> ComparisonReport | None:
    """Return how trained weights compare with their base model; None where nobody asked both."""
    if run.name != train_name(run.exp_id):
        return None
    try:
        return compare_stored(store, run.exp_id, ("base", "trained"))
    except (ConfigError, FingerprintError):
        return None


def _evaluated(store: Store, story: Story) -> Story:
    """Return the story of an evaluation: beside its experiment's without a library, if any."""
    name, baseline = story.name, eval_name(story.report.run.exp_id)
    if name == baseline or not story.report.run.has_score or not store.read(runs.find, baseline):
        return story
    return replace(story, comparison=_compare(store, baseline, name))


def _asked(store: Store, story: Story) -> Story:
    """Return the story of an evaluation with its questions."""
    questions = _visits(store, story.branch, store.read(pages.question_visits, story.branch))
    headings = ["reward"]
    if story.comparison is not None:
        questions = _moved(story.comparison, questions)
        headings = [arm.run for arm in story.comparison.arms]
    return _listed(store, replace(story, headings=headings), questions)


def _compare(store: Store, baseline: str, run: str) -> ComparisonReport | None:
    """Return the comparison of two evaluations; None where they cannot be compared."""
    try:
        return compare_evaluations(store, [baseline, run])
    except ConfigError:
        return None


def _curve(store: Store, story: Story, learnt: BeforeAfter, end: Library) -> list[Measured]:
    """Return the scores of the libraries that were evaluated, each once."""
    # The agent before the first step has the empty library, and so may the first steps.
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
        # A library that came back has one evaluation, which is one mark.
        if known is not None and known.run not in seen:
            seen.add(known.run)
            found.append(Measured(made[0], made[-1], known))
    return found


def _visits(store: Store, branch: Branch, visits: Sequence[Visit]) -> list[QuestionRewards]:
    """Return the rewards of each question by visit, those that changed most first."""
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
    """Return the story with the first of these questions, and their texts."""
    listed = found[:MOST_QUESTIONS]
    texts = store.read(arms.question_texts, [q.sample for q in listed])
    return replace(
        story,
        questions=[replace(q, text=texts.get(q.sample, "")) for q in listed],
        more_questions=len(found) - len(listed),
    )


def _moved(comparison: ComparisonReport, own: Sequence[QuestionRewards]) -> list[QuestionRewards]:
    """Return the rewards of each question in the baseline and in this run, most changed first."""
    both = {int(q.key): (q.a, q.b) for q in comparison.contrasts[0].difference.questions}
    found = [
        replace(q, rewards=both[q.sample], places=(None, q.places[-1]))
        for q in own
        if q.sample in both
    ]
    return sorted(found, key=_by_change)


def _effects(store: Store, exp_id: str, library: Library) -> dict[str, ExperienceEffect]:
    """Return the measured effects of a library's experiences; none where nobody measured them."""
    name = store.read(evaluations.measurement_of, exp_id, library_sha(library))
    if name is None:
        return {}
    try:
        found = measurement(store, name)
    except ConfigError:  # it is not complete
        return {}
    return {one.experience.id: one for one in found.experiences}


def latest_run(store: Store) -> str:
    """Return the practice run that was worked on last, else the training run, else the evaluation.

    Raises:
        ConfigError: There is none of these.
    """
    kinds = ("practice", "train", "eval")
    latest = (store.read(runs.latest, (kind,)) for kind in kinds)
    found = next((run for run in latest if run is not None), None)
    if found is None:
        raise ConfigError("there is no run yet", hint="grpo-practice demo --keep demo")
    return found.name
