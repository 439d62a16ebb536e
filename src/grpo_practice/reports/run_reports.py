"""Reports printed at the end of a run; their keys are stable, and unknown numbers are null."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from grpo_practice.core import stats
from grpo_practice.core.calls import Usage
from grpo_practice.core.findings import Finding, exit_code, noteworthy, problems, remedy
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.stats import Score
from grpo_practice.core.text import count
from grpo_practice.core.types import Library
from grpo_practice.reports.answer_findings import LIMITS, answer_findings, share_of, voided_by
from grpo_practice.reports.base import Report, export_command, number
from grpo_practice.reports.before_after import When, before_after
from grpo_practice.reports.compared import gain_of
from grpo_practice.reports.conclusion import Conclusion
from grpo_practice.reports.known_scores import KnownScore, measured
from grpo_practice.reports.learning_findings import (
    distillation_of,
    learning_findings,
    recorded_finding,
)
from grpo_practice.store import Store, datasets, libraries, steps
from grpo_practice.store.distillation import Distillation
from grpo_practice.store.queries import run_health, scores
from grpo_practice.store.queries.held import held
from grpo_practice.store.queries.run_health import Health
from grpo_practice.store.queries.scores import Requests
from grpo_practice.store.records import Branch, DatasetRow, StepRow

if TYPE_CHECKING:
    from grpo_practice.config.schema.runs import EvalConfig


def unscorable_count(score: Score) -> str:
    """Describe the number of questions that cannot be scored; empty if all can be scored."""
    if not score.questions_unscorable:
        return ""
    total = count(score.questions + score.questions_unscorable, "question")
    return f"{score.questions_unscorable} of {total} cannot be scored"


def cost_text(usage: Usage) -> str:
    """Format the cost of calls in dollars; `unknown` if a call has no price."""
    return "unknown" if usage.cost_micro is None else f"${usage.cost_micro / 1e6:.6f}"


@dataclass(frozen=True, slots=True)
class Invocation:
    """Totals of one invocation of a command."""

    id: int
    replayed: int
    """Calls answered from the ledger."""
    seconds: float


class EndReport(Report):
    """Report at the end of a run that distinguishes success from failure."""

    __slots__ = ()
    health: Health

    @property
    @abstractmethod
    def findings(self) -> list[Finding]:
        """Noteworthy findings, problems first."""

    @property
    def why_failed(self) -> list[str]:
        """Reasons why the run failed, one sentence each; empty if it succeeded."""
        return [finding.sentence for finding in problems(self.findings)]

    @property
    @override
    def exit_code(self) -> int:
        """1 if the run failed, else 0."""
        return exit_code(self.findings)

    @property
    def reproducible(self) -> bool:
        """Whether the same command would give the same result."""
        return not voided_by(self.health)


@dataclass(frozen=True, slots=True, repr=False)
class EvalReport(EndReport):
    """The current state of an evaluation."""

    schema: ClassVar = "grpo-practice.eval/1"
    in_document: ClassVar = (
        *("run", "branch", "simulated", "dataset", "agent", "library", "k", "score", "conclusion"),
        *("by_source", "outcomes", "failures", "truncated_share", "usage", "unpriced", "requests"),
        *("replayed", "seconds", "seconds_per_rollout", "health", "reproducible", "findings"),
    )

    run: str
    branch: Branch
    simulated: bool
    dataset: DatasetRow
    agent: str
    library: Library | None
    k: int
    score: Score
    by_source: dict[str, Score]
    outcomes: dict[str, int]
    failures: dict[str, int]
    """Error → number of occurrences, most common first."""
    usage: Usage
    """Tokens and cost of the whole run, over all invocations and branches."""
    unpriced: Mapping[str, int]
    """Model → number of calls of unknown cost."""
    requests: Requests
    """Requests of this invocation."""
    replayed: int
    seconds: float
    seconds_per_rollout: float | None
    """Mean model time, in seconds, per scored rollout."""
    health: Health
    conclusion: Conclusion | None = None
    """Difference from the agent without experiences, on the same questions, in words."""

    @property
    @override
    def findings(self) -> list[Finding]:
        """Noteworthy findings, problems first."""
        means = [self.score.mean]
        return noteworthy(answer_findings(self.run, self.outcomes, means, self.health))

    @property
    def truncated_share(self) -> float | None:
        """Share of the answers that the token limit cut off."""
        return share_of("truncated", self.outcomes)

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the score, its number of rollouts and questions, and the cost."""
        score, interval = self.score, self.score.ci95
        between = f"   95 % interval {interval[0]:.3f} to {interval[1]:.3f}" if interval else ""
        return [
            (f"{self.run}{' (simulated)' if self.simulated else ''}",),
            ("score", f"{number(score.mean)}{between}"),
            ("rollouts", f"{score.correct} correct, {score.scored} scored of {score.planned}"),
            ("dataset", f"{self.dataset.name}, {score.questions} questions"),
            *([("left out", left_out)] if (left_out := unscorable_count(score)) else []),
            ("cost", cost_text(self.usage)),
        ]


def eval_report(
    store: Store, config: "EvalConfig", branch: Branch, invocation: Invocation, *, simulated: bool
) -> EvalReport:
    """Return the report of an evaluation at the end of its command."""
    questions = store.read(scores.questions, branch)
    mixed = config.data.type == "mixed"
    return EvalReport(
        run=branch.run,
        branch=branch,
        simulated=simulated,
        dataset=store.read(datasets.by_id, branch.dataset_id),
        agent=config.agent.agent.name,
        library=branch.library if branch.library.id else None,
        k=config.pass_k,
        score=stats.score(questions, config.pass_k),
        by_source=stats.by_source(questions, config.pass_k) if mixed else {},
        outcomes=store.read(scores.outcomes, branch),
        failures=store.read(scores.failures, branch),
        usage=store.read(scores.usage, branch.run),
        unpriced=store.read(scores.unpriced, branch.run),
        requests=store.read(scores.requests, invocation.id),
        replayed=invocation.replayed,
        seconds=invocation.seconds,
        seconds_per_rollout=store.read(scores.seconds_per_rollout, branch),
        health=store.read(run_health.health_of, branch),
        conclusion=gain_of(store, branch.run, config.exp_id),
    )


@dataclass(frozen=True, slots=True, repr=False)
class PracticeReport(EndReport):
    """The current state of a practice run."""

    schema: ClassVar = "grpo-practice.practice/1"
    in_document: ClassVar = (
        *("run", "branch", "simulated", "steps", "library_shas", "step_cost_micro", "evals"),
        *("library", "library.experiences", "before", "after", "conclusion", "measure", "outcomes"),
        *("failures", "requests", "replayed", "usage", "unpriced", "health", "reproducible"),
        *("seconds", "distillation", "findings", "held"),
    )

    run: str
    branch: Branch
    simulated: bool
    steps: Sequence[StepRow]
    evals: dict[int, KnownScore]
    """Step → in-run evaluation of the library that the step made."""
    library: Library
    tested: bool
    """Whether the test questions are known."""
    before: KnownScore | None
    """Score of the agent without experiences; None if it was not evaluated."""
    after: KnownScore | None
    """Score of the agent with the final library; None if it was not evaluated."""
    usage: Usage
    """Tokens and cost of the whole run, including its in-run evaluations."""
    unpriced: Mapping[str, int]
    """Model → number of calls of unknown cost."""
    requests: Requests
    """Requests of this invocation, including requests of in-run evaluations."""
    replayed: int
    seconds: float
    library_shas: Mapping[int, str]
    """Step → hash of the library that the step made, in hex."""
    step_cost_micro: Mapping[int, int | None]
    """Step → cost in micro-dollars; None if unknown."""
    outcomes: Mapping[str, int]
    failures: Mapping[str, int]
    """Error → number of occurrences, most common first."""
    health: Health
    held: int = 0
    """Number of new texts that are waiting for approval."""
    measure: Mapping[When, str] = field(default_factory=dict)
    """Missing score → the command that measures it."""
    conclusion: Conclusion | None = None
    """Difference that practice made, in words; None if a score is missing."""

    @property
    def merge_failed(self) -> list[int]:
        """Steps whose merge failed."""
        return [row.plan.step for row in self.steps if row.status == "merge_failed"]

    @property
    @override
    def findings(self) -> list[Finding]:
        """Noteworthy findings, problems first."""
        found = learning_findings(
            self.run,
            self.steps,
            self.outcomes,
            asked_all=not self.health.unasked,
            held=self.held,
        )
        means = [(row.stats or {}).get("mean_reward") for row in self.steps]
        limit = LIMITS["practice"]
        answers = answer_findings(self.run, self.outcomes, means, self.health, limit)
        return noteworthy([*found, *answers, *recorded_finding(self.branch.identity)])

    @property
    def distillation(self) -> Distillation | None:
        """Outcome of all informative groups; None if no step counted them."""
        return distillation_of(self.steps)

    @property
    @override
    def next_command(self) -> str:
        """Command to type next: repair, list held texts, diagnose, measure, or export the agent."""
        if command := remedy(self.findings):
            return command
        if self.held:
            return f"grpo-practice experiences list --run {quote(self.run)}"
        if not self.library.experiences:
            return f"grpo-practice runs diagnose {quote(self.run)}"
        return next(iter(self.measure.values()), None) or export_command(self.run)

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the scores before and after, the cost and the experiences."""
        return [
            (f"{self.run}{' (simulated)' if self.simulated else ''}",),
            ("steps", f"{sum(row.closed for row in self.steps)} of {len(self.steps)} closed"),
            ("before", number(self.before.score.mean if self.before else None)),
            ("after", number(self.after.score.mean if self.after else None)),
            ("cost", cost_text(self.usage)),
            *((e.id, e.text) for e in self.library.experiences),
        ]


def practice_report(
    store: Store, branch: Branch, invocation: Invocation, *, exp_id: str, simulated: bool
) -> PracticeReport:
    """Return the report of a practice run at the end of its command."""
    rows, tip = store.read(steps.on_line, branch), branch.id
    outs = {
        row.plan.step: store.read(libraries.load, row.library_out)
        for row in rows
        if row.library_out
    }
    evals = {
        step: score for step, library in outs.items() if (score := measured(store, branch, library))
    }
    library = outs[max(outs)] if outs else branch.library
    known = before_after(store, tip, branch.run, library)
    return PracticeReport(
        run=branch.run,
        branch=branch,
        simulated=simulated,
        steps=rows,
        evals=evals,
        library=library,
        tested=known.tested,
        before=known.before,
        after=known.after,
        # With the evaluations that the run started, since the same command paid for them.
        usage=store.read(scores.usage, branch.run, children=True),
        unpriced=store.read(scores.unpriced, branch.run, children=True),
        requests=store.read(scores.requests, invocation.id, children=True),
        replayed=invocation.replayed,
        seconds=invocation.seconds,
        library_shas={step: library_sha(made).hex() for step, made in outs.items()},
        step_cost_micro=store.read(scores.step_costs, branch),
        outcomes=store.read(scores.outcomes, branch),
        failures=store.read(scores.failures, branch),
        health=store.read(run_health.health_of, branch, children=True),
        held=sum(not one.approved for one in store.read(held, branch.id, until=len(rows))),
        measure=known.missing(),
        conclusion=known.conclusion,
    )
