"""Report on a stored run, with its steps, scores and costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote
from typing import TYPE_CHECKING, ClassVar

from typing_extensions import override

from grpo_practice.core.findings import Finding, noteworthy, remedy
from grpo_practice.core.stages import STAGES
from grpo_practice.core.stats import Score
from grpo_practice.core.text import count
from grpo_practice.reports.answer_findings import LIMIT, LIMITS, answer_findings, voided_by
from grpo_practice.reports.base import Report, Shown, number
from grpo_practice.reports.compared import gain_of
from grpo_practice.reports.conclusion import Conclusion
from grpo_practice.reports.known_scores import known_score
from grpo_practice.reports.learning_findings import (
    distillation_of,
    learning_findings,
    practise_command,
    recorded_finding,
)
from grpo_practice.reports.run_list import as_it_stands
from grpo_practice.store import Store, branches, datasets, libraries, recorded_runs, steps
from grpo_practice.store.batch_log import Awaited, awaited
from grpo_practice.store.distillation import Distillation
from grpo_practice.store.identity import agent_name, overlap_of, verify_of
from grpo_practice.store.queries import history, run_health, runs, scores
from grpo_practice.store.queries.held import held
from grpo_practice.store.queries.history import BranchRow
from grpo_practice.store.queries.run_health import Health
from grpo_practice.store.queries.runs import StageCost as StageCost
from grpo_practice.store.recorded_runs import Traffic
from grpo_practice.store.records import EFFECT, DatasetRow, RunRow, StepRow
from grpo_practice.store.run_names import questions_of

if TYPE_CHECKING:
    from grpo_practice.reports.training import TrainedParts


class Scores(Shown, dict[str, Score]):
    """Name of each evaluation → its score."""

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each evaluation: its score, interval and questions."""
        return [
            (count(len(self), "score"),),
            *((name, *_cells(score)) for name, score in self.items()),
        ]


def _cells(score: Score) -> tuple[str, str, str]:
    between = f"{score.ci95[0]:.3f} to {score.ci95[1]:.3f}" if score.ci95 else "no interval"
    return number(score.mean), between, count(score.questions_scored, "question")


@dataclass(frozen=True, slots=True)
class Tested:
    """Dataset and arm of an evaluation."""

    dataset: str
    arm: str | None
    """See `ArmName.typed`; None if unknown."""


@dataclass(frozen=True, slots=True, repr=False)
class RunReport(Report):
    """A stored run with its steps, scores and costs."""

    schema: ClassVar = "grpo-practice.run/1"
    in_document: ClassVar = (
        *("run", "awaits", "dataset", "agent", "model", "verify", "k", "played", "traffic"),
        *("branches", "steps"),
        *("distillation", "findings", "held", "outcomes", "scores", "tested", "conclusion"),
        "costs",
        *("trained", "health", "reproducible"),
    )

    run: RunRow
    branches: Sequence[BranchRow]
    steps: Sequence[StepRow]
    outcomes: Mapping[str, int]
    scores: Scores
    """Scores of the run, or of the experiment's evaluations of the run's agent or weights.

    Only complete evaluations are included. An evaluation from another experiment is included if it
    scored this agent before or after practice.
    """
    costs: Sequence[StageCost]
    health: Health | None
    """Health of the run; None if the run never started."""
    played: Mapping[str, float]
    """Group policy and overlap used by a practice run."""
    command: str
    """Last command that worked on the run; it also resumes the run."""
    verify: str | None = None
    """Name of the verify function of an evaluation or training run."""
    traffic: Traffic | None = None
    """Forwarded requests of a recorded run."""
    held: int = 0
    """Number of a practice run's new texts that are waiting for approval."""
    dataset: DatasetRow | None = None
    """Dataset of the newest branch; None if the run has none."""
    agent: str | None = None
    """Name of the agent in its configuration; None for a recorded run."""
    model: str | None = None
    """Model that answers; None if the agent's configuration does not name a model."""
    k: int | None = None
    """Number of rollouts planned for each question."""
    conclusion: Conclusion | None = None
    """Difference that practice made, or the difference from the experiment's evaluation without a
    library, in words; None if a score is missing.
    """
    trained: "TrainedParts | None" = None
    """Updates and checkpoints of a training run."""
    tested: Mapping[str, Tested] = field(default_factory=dict)
    """Name of each evaluation in `scores` → its dataset and arm."""
    awaits: Awaited | None = None
    """Requests that an endpoint is answering in batches; None without any."""
    origin: Sequence[Finding] = ()
    """Limits of the result that follow from where the run's attempts came from."""

    @property
    def checked(self) -> list[Finding]:
        """All findings about the run's steps and answers."""
        run, found, means = self.run, list[Finding](), None
        if self.health is None:
            return []
        if run.kind == "practice":
            unasked = self.health.unasked
            found += learning_findings(
                run.name,
                self.steps,
                self.outcomes,
                asked_all=not unasked,
                held=self.held,
                practise=self.practise,
            )
        if run.steps_closed == run.steps:
            score = self.scores.get(run.name)
            means = [(row.stats or {}).get("mean_reward") for row in self.steps]
            means += [score.mean] if score else []
        limit = LIMITS.get(run.kind, LIMIT)
        found += answer_findings(run.name, self.outcomes, means, self.health, limit)
        return [*found, *self.origin]

    @property
    def findings(self) -> list[Finding]:
        """Noteworthy findings, problems first."""
        return noteworthy(self.checked)

    @property
    def distillation(self) -> Distillation | None:
        """Outcome of all informative groups; None if no step counted them."""
        return distillation_of(self.steps)

    @property
    def reproducible(self) -> bool | None:
        """Whether the same command would give the same result; None if the run never started."""
        return None if self.health is None else not voided_by(self.health)

    @property
    def practise(self) -> str:
        """Command that resumes a practice run, which need not be the latest run."""
        return practise_command(self.command)

    @property
    @override
    def next_command(self) -> str:
        """Command that resumes an incomplete run, repairs a problem, or shows the result."""
        run = self.run
        if run.kind == "recorded":
            return questions_of(run.name)
        if run.status == "running":
            return f"grpo-practice runs show {quote(run.name)}"
        # Also true if no rollout was played, because the command must then be repeated, too.
        failed = all(name.startswith("error") for name in self.outcomes)
        if self.command and (failed or run.steps_closed < run.steps):
            return self.command
        if command := remedy(self.findings):
            return command
        if run.kind in ("eval", "train"):
            return self._after_end
        if not self.held and self.steps and (self.steps[-1].stats or {}).get("experiences") == 0:
            return f"grpo-practice rollouts show {quote(run.name)}"
        return f"grpo-practice experiences list --run {quote(run.name)}"

    @property
    def _after_end(self) -> str:
        """Command that exports trained weights, or lists the answers that were not right."""
        if self.run.kind == "train":
            return f"grpo-practice export-agent --run {quote(self.run.name)}"
        if self.run.purpose == EFFECT:
            return f"grpo-practice experiences list --run {quote(self.run.exp_id)}"
        return f"grpo-practice rollouts list {quote(self.run.name)} --failed"

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return the status of the run, and its scores."""
        run = self.run
        return [
            (run.name,),
            ("status", f"{run.kind}, {run.status}"),
            *([("awaits", self.awaits.text)] if self.awaits else ()),
            ("steps", f"{run.steps_closed} of {run.steps} closed"),
            *((name, number(score.mean)) for name, score in self.scores.items()),
        ]


def run_report(store: Store, name: str) -> RunReport:
    """Return the report of a stored run; raise ConfigError if no run is named so."""
    run, stages = as_it_stands(store, store.read(runs.named, name)), list[str](STAGES)
    name = run.name
    branch = store.read(branches.load, run.head_branch) if run.head_branch else None
    evals = [r for r in store.read(runs.all_runs) if r.has_score]
    own = {"practice": evals, "train": [r for r in evals if r.parent_run == name]}
    shown = own.get(run.kind, [r for r in evals if r.name == name])
    # A score that selected a library is not a result, because the highest of several is biased
    # upwards.
    family = [
        r.name
        for r in shown
        if r.exp_id == run.exp_id and (r.name == name or r.purpose != "select")
    ]
    rows = store.read(steps.on_line, branch) if branch else []
    known = {evaluated: known_score(store, evaluated) for evaluated in family}
    conclusion = None
    if branch and run.kind == "practice":
        outs = [row.library_out for row in rows if row.library_out]
        library = store.read(libraries.load, outs[-1]) if outs else branch.library
        from grpo_practice.reports.before_after import before_after

        learnt = before_after(store, branch.id, name, library)
        known |= {k.run: k for k in (learnt.before, learnt.after) if k}
        conclusion = learnt.conclusion
    elif known.get(name):
        conclusion = gain_of(store, name, run.exp_id)
    trained = None
    if branch and run.kind == "train":
        # Imported here, because it takes 10 ms of each command that shows a run.
        from grpo_practice.reports.training import trained_parts

        trained = trained_parts(store, branch)
    return RunReport(
        run,
        store.read(history.branches_of, name),
        rows,
        store.read(scores.outcomes, branch) if branch else {},
        Scores({n: k.score for n, k in known.items() if k is not None}),
        # In the order in which a run comes to its stages, rather than by name.
        sorted(store.read(runs.costs, name), key=lambda cost: stages.index(cost.stage)),
        store.read(run_health.health_of, branch) if branch else None,
        {"overlap": overlap_of(branch.identity)} if branch and run.kind == "practice" else {},
        store.read(runs.last_command, name),
        verify_of(branch.identity) if branch and run.kind in ("eval", "train") else None,
        store.read(recorded_runs.traffic, branch.id) if branch and run.kind == "recorded" else None,
        sum(not one.approved for one in store.read(held, branch.id, until=run.steps))
        if branch and run.kind == "practice"
        else 0,
        store.read(datasets.by_id, branch.dataset_id) if branch and branch.dataset_id else None,
        agent_name(branch.identity) if branch else None,
        branch.agent.model if branch else None,
        branch.agent.k if branch else None,
        conclusion,
        trained,
        {r.name: Tested(k.dataset, r.arm) for r in evals if (k := known.get(r.name))},
        store.read(awaited).get(name),
        recorded_finding(branch.identity) if branch else (),
    )
