"""Reports of a run that was just worked on: stable keys, unknown numbers null."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import Any

from typing_extensions import override

from grpo_practice import stats
from grpo_practice.calls import Usage
from grpo_practice.config.schema.runs import EvalConfig
from grpo_practice.findings import Finding, exit_code, noteworthy, problems, remedy
from grpo_practice.prompts.system import library_sha
from grpo_practice.reports.answer_findings import answer_findings, health_document, share_of
from grpo_practice.reports.base import Report, number
from grpo_practice.reports.before_after import When, before_after
from grpo_practice.reports.compared import gain_of
from grpo_practice.reports.documents import (
    MEAN_OVER,
    cost_text,
    cost_usd,
    requests_document,
    unscorable_count,
    usage_document,
    usd,
)
from grpo_practice.reports.encoder import json_value
from grpo_practice.reports.known_scores import KnownScore, measured
from grpo_practice.reports.learning_findings import counted_steps, learning_findings
from grpo_practice.stats import Score
from grpo_practice.store import Store, datasets, libraries, steps
from grpo_practice.store.distillation import DISTILLATION, Distillation
from grpo_practice.store.queries import run_health, scores
from grpo_practice.store.queries.held import held
from grpo_practice.store.queries.run_health import Health
from grpo_practice.store.queries.scores import Requests
from grpo_practice.store.records import Branch, DatasetRow, StepRow
from grpo_practice.types import Library


@dataclass(frozen=True, slots=True)
class Invocation:
    """Totals of one command."""

    id: int
    replayed: int
    """Calls that the ledger answered."""
    seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class EvalReport(Report):
    """An evaluation as it stands."""

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
    """Error → how often, commonest first."""
    usage: Usage
    """Tokens and cost of the whole run, all its invocations and branches."""
    unpriced: Mapping[str, int]
    """Model → calls of which it is not known what they cost."""
    requests: Requests
    """Requests of this invocation."""
    replayed: int
    seconds: float
    seconds_per_rollout: float | None
    """Mean seconds that the model took for a scored rollout."""
    health: Health
    difference: str | None = None
    """Sentence on the difference to the agent without experiences, on the same questions."""

    @property
    def findings(self) -> list[Finding]:
        """Findings that a person should know of, the problems first."""
        means = [self.score.mean]
        return noteworthy(answer_findings(self.run, self.outcomes, means, self.health))

    @property
    def why_failed(self) -> list[str]:
        """Sentences that say why the score means nothing; empty if it means something."""
        return [finding.sentence for finding in problems(self.findings)]

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the score, what it rests on, and the cost."""
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

    @override
    def document(self) -> dict[str, Any]:
        """Return `grpo-practice.eval/1`."""
        s = self.score
        return {
            "schema": "grpo-practice.eval/1",
            "run": self.run,
            "branch": self.branch.id,
            "simulated": self.simulated,
            "dataset": json_value(self.dataset),
            "agent": {"name": self.agent, "library": _library_name(self.library)},
            "k": self.k,
            "score": json_value(s),
            "rollouts": {
                "planned": s.planned,
                "scored": s.scored,
                "correct": s.correct,
                "coverage": s.coverage,
                "outcomes": self.outcomes,
                "truncated_share": share_of("truncated", self.outcomes),
                "truncated_before_the_answer": self.health.mute,
                "seconds_per_rollout": self.seconds_per_rollout,
            },
            "difference": self.difference,
            "by_source": {name: json_value(part) for name, part in self.by_source.items()},
            "usage": usage_document(self.usage),
            "cost_usd": cost_usd(self.usage),
            "unpriced_calls": sum(self.unpriced.values()),
            "unpriced_models": list(self.unpriced),
            **health_document(self.health),
            "findings": json_value(self.findings),
            "requests": requests_document(self.requests, self.replayed),
            "seconds": round(self.seconds, 3),
            "exit": exit_code(self.findings),
        }


def _library_name(library: Library | None) -> str | None:
    return f"L{library.id}" if library is not None and library.id else None


def eval_report(
    store: Store, config: EvalConfig, branch: Branch, invocation: Invocation, *, simulated: bool
) -> EvalReport:
    """Return the report of an evaluation that was just worked on."""
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
        difference=gain_of(store, branch.run, config.exp_id),
    )


@dataclass(frozen=True, slots=True, repr=False)
class PracticeReport(Report):
    """A practice run, as it stands."""

    run: str
    branch: Branch
    simulated: bool
    steps: Sequence[StepRow]
    evals: dict[int, KnownScore]
    """Step → the in-run evaluation of the library it made."""
    library: Library
    tested: bool
    """Whether its configuration names questions to evaluate on."""
    before: KnownScore | None
    """The agent without experiences, where it was evaluated."""
    after: KnownScore | None
    """The agent with the final library, where it was evaluated."""
    usage: Usage
    """Tokens and cost of the whole run, and of the evaluations on its way."""
    unpriced: Mapping[str, int]
    """Model → calls of which it is not known what they cost."""
    requests: Requests
    """Requests of this invocation, and of the evaluations on its way."""
    replayed: int
    seconds: float
    hashes: Mapping[int, str]
    """Step → hash of the library it made, in hex."""
    costs: Mapping[int, int | None]
    """Step → micro-dollars; None if unknown."""
    outcomes: Mapping[str, int]
    failures: Mapping[str, int]
    """Error → how often, commonest first."""
    health: Health
    held: int = 0
    """New texts of experiences that wait for approval."""
    measure: Mapping[When, str] = field(default_factory=dict)
    """Score that is missing → the command that measures it."""
    difference: str | None = None
    """Sentence on the difference that practice has made; None where a score is missing."""

    @property
    def merge_failed(self) -> list[int]:
        """Steps whose merge failed."""
        return [row.plan.step for row in self.steps if row.status == "merge_failed"]

    @property
    def findings(self) -> list[Finding]:
        """Findings that a person should know of, the problems first."""
        found = learning_findings(
            self.run,
            self.steps,
            self.outcomes,
            asked_all=not self.health.unasked,
            held=self.held,
        )
        means = [(row.stats or {}).get("mean_reward") for row in self.steps]
        return noteworthy([*found, *answer_findings(self.run, self.outcomes, means, self.health)])

    @property
    def why_failed(self) -> list[str]:
        """Reasons why the run is not a success, a sentence each; empty when it is one."""
        return [finding.sentence for finding in problems(self.findings)]

    @property
    def distillation(self) -> Distillation | None:
        """Outcome of all informative groups; None without a step that counted them."""
        steps = counted_steps(self.steps)
        return Distillation.total(list(steps.values())) if steps else None

    @property
    @override
    def next_command(self) -> str:
        """Command to type now."""
        if command := remedy(self.findings):
            return command
        if self.held:
            return f"grpo-practice experiences list --run {quote(self.run)}"
        if not self.library.experiences:
            return f"grpo-practice runs diagnose {quote(self.run)}"
        return f"grpo-practice export-agent --run {quote(self.run)}"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the scores before and after, the experiences, and the cost."""
        return [
            (f"{self.run}{' (simulated)' if self.simulated else ''}",),
            ("steps", f"{sum(row.closed for row in self.steps)} of {len(self.steps)} closed"),
            ("before", number(self.before.score.mean if self.before else None)),
            ("after", number(self.after.score.mean if self.after else None)),
            ("cost", cost_text(self.usage)),
            *((e.id, e.text) for e in self.library.experiences),
        ]

    @override
    def document(self) -> dict[str, Any]:
        """Return `grpo-practice.practice/1`."""
        return {
            "schema": "grpo-practice.practice/1",
            "run": self.run,
            "branch": self.branch.id,
            "simulated": self.simulated,
            "steps": [self._step(row) for row in self.steps],
            "library": {
                "id": f"L{self.library.id}",
                "sha256": library_sha(self.library).hex(),
                "n": len(self.library),
                "tokens": None,  # nobody counts them yet; each model counts its own
            },
            "before": json_value(self.before),
            "after": json_value(self.after),
            "difference": self.difference,
            "measure": dict(self.measure),
            "outcomes": dict(self.outcomes),
            "requests": requests_document(self.requests, self.replayed),
            "usage": usage_document(self.usage),
            "cost_usd": cost_usd(self.usage),
            "unpriced_calls": sum(self.unpriced.values()),
            "unpriced_models": list(self.unpriced),
            **health_document(self.health),
            "seconds": round(self.seconds, 3),
            DISTILLATION: self.distillation.document() if self.distillation else None,
            "findings": json_value(self.findings),
            "held": self.held,
            "next": self.next_command,
            "exit": exit_code(self.findings),
        }

    def _step(self, row: StepRow) -> dict[str, Any]:
        stats, known = dict(row.stats or {}), self.evals.get(row.plan.step)
        counts = Distillation.of(stats)
        return {
            "step": row.plan.step,
            "epoch": row.plan.epoch,
            "library": f"L{row.library_out}" if row.library_out else None,
            "sha256": self.hashes.get(row.plan.step),
            "n": stats.get("experiences"),
            "groups": {
                "planned": row.groups,
                "left_out": len(row.left_out or ()),
                "informative": stats.get("informative"),
                **dict.fromkeys(("uniform", "failed", "too_few"), 0),
                **stats.get("groups", {}),
                "shrunk": [
                    {"planned": s.planned, "scored": s.scored, "groups": s.groups}
                    for s in self.health.shrunk
                    if s.step == row.plan.step
                ],
            },
            "quarantined": stats.get("quarantined"),
            DISTILLATION: counts.document() if counts else None,
            "rollouts": {
                "planned": stats.get("planned", row.rollouts),
                "scored": stats.get("scored"),
                "outcomes": stats.get("outcomes", {}),
            },
            "mean_reward": stats.get("mean_reward"),
            "mean_reward_over": MEAN_OVER[row.mean_over],
            "status": row.status,
            "reason": stats.get("merge_failed"),
            "cost_usd": usd(self.costs.get(row.plan.step)),
            "eval": known.run if known else None,
        }


def practice_report(
    store: Store, branch: Branch, invocation: Invocation, *, exp_id: str, simulated: bool
) -> PracticeReport:
    """Return the report of a practice run that was just worked on."""
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
        usage=store.read(scores.usage, branch.run, children=True),
        unpriced=store.read(scores.unpriced, branch.run, children=True),
        requests=store.read(scores.requests, invocation.id, children=True),
        replayed=invocation.replayed,
        seconds=invocation.seconds,
        hashes={step: library_sha(made).hex() for step, made in outs.items()},
        costs=store.read(scores.step_costs, branch),
        outcomes=store.read(scores.outcomes, branch),
        failures=store.read(scores.failures, branch),
        health=store.read(run_health.health_of, branch, children=True),
        held=sum(not one.approved for one in store.read(held, branch.id, until=len(rows))),
        measure=known.missing(),
        difference=known.difference,
    )
