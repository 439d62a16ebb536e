"""`runs`: what was run, how it stands, what it cost."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpo_practice.cli.options import PROGRAM, DbOption, JsonOption, YesOption, existing_store
from grpo_practice.cli.terminal.formatting import (
    cached_share,
    confirm,
    count,
    print_json,
    reward,
    say,
    tokens,
)
from grpo_practice.cli.terminal.tables import facts, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_practice.reports.shortfalls import Shortfall
    from grpo_practice.stats import Score
    from grpo_practice.store import Store
    from grpo_practice.store.queries.history import BranchRow
    from grpo_practice.store.queries.run_health import Health
    from grpo_practice.store.queries.runs import StageCost
    from grpo_practice.store.recorded_runs import Traffic
    from grpo_practice.store.records import RunRow, StepRow

app = typer.Typer(no_args_is_help=True, help="What was run, how it stands, what it cost.")

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="Its name, as `runs list` says.")]


@app.command("list")
def list_(db: DbOption = None, json: JsonOption = False) -> None:
    """List all runs, the oldest first.

    Example: grpo-practice runs list
    """
    from grpo_practice.store.queries import runs

    with existing_store(db) as store:
        found = store.read(runs.all_runs)
    if json:
        documents = [_run_document(run) for run in found]
        print_json({"schema": "grpo-practice.runs/1", "runs": documents, "exit": 0})
        return
    table(
        ["run", "kind", "status", "steps", "begun"],
        [
            (
                run.name + (" (simulated)" if run.simulated else ""),
                run.kind,
                run.status,
                "-" if run.kind == "recorded" else f"{run.steps_closed} of {run.steps}",
                _time(run.created_at),
            )
            for run in found
        ],
        right=["steps"],
    )
    last = found[-1].name if found else None
    say(f"next: {PROGRAM} runs show {last}" if last else f"no runs yet; next: {PROGRAM} demo")


@app.command()
def show(run: RunArgument, db: DbOption = None, json: JsonOption = False) -> None:
    """Show the steps, scores and costs of a run.

    Example: grpo-practice runs show math
    """
    with existing_store(db) as store:
        found = _look_up(store, run)
    if json:
        print_json(_document(found))
    else:
        _show(found)


@app.command()
def delete(run: RunArgument, yes: YesOption = False, db: DbOption = None) -> None:
    """Delete a run, and the evaluations that it made.

    Everything that was paid for in them goes too.

    Example: grpo-practice runs delete math --yes
    """
    from grpo_practice.store.queries import runs

    with existing_store(db) as store:
        found = store.read(runs.get, run)
        confirm(f"Delete {found.name} and all that was paid for in it?", yes=yes)
        with store.lock(run):
            gone = store.delete_run(run)
    say(f"deleted {count(len(gone), 'run')}: {', '.join(gone)}")
    say(f"next: {PROGRAM} runs list")


def _time(stored: str) -> str:
    """To the minute, in UTC as it is stored."""
    return f"{stored[:10]} {stored[11:16]} UTC"


@dataclass(frozen=True, slots=True)
class _Found:
    """All there is to say about a run."""

    run: "RunRow"
    branches: "list[BranchRow]"
    steps: "list[StepRow]"
    outcomes: dict[str, int]
    scores: "dict[str, Score]"
    """Of the run, or of its experiment's evaluations; complete ones only."""
    costs: "list[StageCost]"
    health: "Health | None"
    """None for a run that was never begun."""
    played: dict[str, Any]
    """How a practice run plays its groups: its policy and its overlap."""
    command: str
    """That worked on it last, to go on with."""
    traffic: "Traffic | None" = None
    """What passed, for a recorded run."""

    @property
    def shortfalls(self) -> "list[Shortfall]":
        """Comparisons and proposals of a practice run of which too many came to nothing."""
        from grpo_practice.reports.shortfalls import shortfalls

        return shortfalls(self.steps) if self.run.kind == "practice" else []

    @property
    def practise(self) -> str:
        """The command that goes on with a practice run, which need not be the latest."""
        alone = f"{PROGRAM} practice"
        return self.command if self.command.startswith(alone) else alone


def _look_up(store: "Store", name: str) -> _Found:
    from grpo_practice.calls import ROLE_OF
    from grpo_practice.reports.run_reports import known_score
    from grpo_practice.store import branches, recorded_runs, steps
    from grpo_practice.store.queries import history, references, run_health, runs, scores

    run, stages = store.read(runs.get, name), list[str](ROLE_OF)
    branch = store.read(branches.load, run.head_branch) if run.head_branch else None
    evals = [r for r in store.read(runs.all_runs) if r.kind == "eval"]
    shown = evals if run.kind == "practice" else [r for r in evals if r.name == name]
    family = [r.name for r in shown if r.exp_id == run.exp_id]
    known = {evaluated: known_score(store, evaluated) for evaluated in family}
    return _Found(
        run,
        store.read(history.branches_of, name),
        store.read(steps.on_line, branch) if branch else [],
        store.read(scores.outcomes, branch) if branch else {},
        {n: k.score for n, k in known.items() if k is not None},
        sorted(store.read(runs.costs, name), key=lambda cost: stages.index(cost.stage)),
        store.read(run_health.health_of, branch) if branch else None,
        store.read(references.play_settings, branch.id)
        if branch and run.kind == "practice"
        else {},
        store.read(runs.last_command, name),
        store.read(recorded_runs.traffic, branch.id) if branch and run.kind == "recorded" else None,
    )


def _show(found: _Found) -> None:
    from grpo_practice.cli.terminal.health_view import retries, say_reproducible, shrunk_groups
    from grpo_practice.cli.terminal.reports_view import (
        coverage,
        funnel,
        interval,
        say_shortfalls,
        show_steps,
    )

    run, health = found.run, found.health
    say(f"{run.name}{' (simulated)' if run.simulated else ''}", style="bold")
    many = [f"{b.id} ({b.cause} at step {b.from_step})" for b in found.branches]
    facts(
        [
            ("status", f"{run.kind}, {run.status}, begun {_time(run.created_at)}"),
            ("branches", ", ".join(many) if len(many) > 1 else ""),
            ("passed", _passed(found.traffic)),
            ("steps", "" if found.traffic else f"{run.steps_closed} of {run.steps} closed"),
            ("played", _played(found.played)),
            ("rollouts", ", ".join(f"{n} {name}" for name, n in found.outcomes.items())),
            ("retries", retries(health) if health else ""),
            ("groups", shrunk_groups(health) if health else ""),
            *(funnel(found.steps, run.name) if run.kind == "practice" else ()),
        ]
    )
    if run.kind == "practice":
        show_steps(found.steps, {})
    table(
        ["evaluation", "score", "95 % interval", "questions", "coverage"],
        [
            (name, reward(s.mean), interval(s), str(s.n_scored_questions), coverage(s))
            for name, s in found.scores.items()
        ],
        right=["score", "questions", "coverage"],
    )
    _show_costs(found.costs)
    if health is not None:
        say_reproducible(health)
    say_shortfalls(found.shortfalls, run.name, found.practise)
    say(f"next: {_next(found)}")


def _next(found: _Found) -> str:
    """What to type now: of a run that is not complete, or has no score at all, what goes on."""
    run, steps = found.run, found.steps
    if run.kind == "recorded":
        return f"{PROGRAM} data upload --from-run {run.name} --name NAME"
    if run.status == "running":
        return f"{PROGRAM} runs show {run.name}"
    failed = all(name.startswith("error") for name in found.outcomes)
    if found.command and (failed or run.steps_closed < run.steps):
        if found.played.get("group_policy") != "adaptive":
            return found.command
        if not run.steps_closed:  # removed, but what has closed nothing may change its policy
            return f"{found.command} --set practice.group_policy=fixed"
    for short in found.shortfalls:
        if short.total:
            return short.next_command(run.name, found.practise)
    if run.kind == "eval":
        return f"{PROGRAM} eval --rejudge --verify V --run {run.name}"
    if steps and (steps[-1].stats or {}).get("experiences") == 0:
        return f"{PROGRAM} eval --limit 3 --show"
    return f"{PROGRAM} experiences list --run {run.name}"


def _passed(traffic: "Traffic | None") -> str:
    """What went through `serve`."""
    if traffic is None:
        return ""
    requests, talks = traffic.requests, traffic.conversations
    failed = f", {traffic.failed} more without an answer" if traffic.failed else ""
    return f"{count(requests, 'answered request')} in {count(talks, 'conversation')}{failed}"


def _played(how: Mapping[str, Any]) -> str:
    """Where it is not played as published."""
    policy, overlap = how.get("group_policy", "fixed"), how.get("overlap", 0.0)
    told = [f"group_policy {policy}"] if policy != "fixed" else []
    return ", ".join([*told, f"overlap {overlap:g}"] if overlap else told)


def _show_costs(costs: "Sequence[StageCost]") -> None:
    """Calls, tokens and money by stage; what was cached, where an endpoint tells it."""
    from grpo_practice.cli.terminal.health_view import stage_cost

    told = any(c.tokens_cached is not None for c in costs)
    cached = ["cached"] if told else []
    table(
        ["stage", "model", "calls", "tokens in", *cached, "tokens out", "cost"],
        [
            (
                c.stage,
                c.name,
                str(c.calls),
                _sum(c.tokens_in, c.uncounted),
                *([_cached(c)] if told else []),
                _sum(c.tokens_out, c.uncounted),
                stage_cost(c.usd, c.unpriced),
            )
            for c in costs
        ],
        right=["calls", "tokens in", "cached", "tokens out", "cost"],
    )


def _sum(known: int | None, uncounted: int) -> str:
    """Tokens of some calls; marked where some of them did not tell theirs."""
    return tokens(known) + (" and more" if known is not None and uncounted else "")


def _cached(cost: "StageCost") -> str:
    """What an endpoint had in its cache; a tool has none."""
    no_request = cost.tokens_in == 0
    return "-" if no_request else cached_share(cost.tokens_in, cost.tokens_cached) or "unknown"


def _document(found: _Found) -> dict[str, Any]:
    from grpo_practice.reports.documents import score_document
    from grpo_practice.reports.reproducibility import health_document
    from grpo_practice.reports.shortfalls import counted_steps
    from grpo_practice.store.distillation import DISTILLATION, Distillation

    counts = list(counted_steps(found.steps).values())

    return {
        "schema": "grpo-practice.run/1",
        **_run_document(found.run),
        **found.played,
        **({"passed": asdict(found.traffic)} if found.traffic else {}),
        "branches": [asdict(branch) for branch in found.branches],
        "steps": [
            {
                "step": row.plan.step,
                "epoch": row.plan.epoch,
                "status": row.status,
                "library": f"L{row.library_out}" if row.library_out else None,
                "left_out": len(row.left_out or ()),
                "stats": dict(row.stats) if row.stats else None,
            }
            for row in found.steps
        ],
        DISTILLATION: Distillation.total(counts).document() if counts else None,
        "shortfalls": [
            short.document(found.run.name, found.practise) for short in found.shortfalls
        ],
        "outcomes": found.outcomes,
        "scores": {name: score_document(score) for name, score in found.scores.items()},
        "costs": [asdict(cost) for cost in found.costs],
        **(health_document(found.health) if found.health else {}),
        "exit": 0,
    }


def _run_document(run: "RunRow") -> dict[str, Any]:
    return {
        "run": run.name,
        "exp_id": run.exp_id,
        "kind": run.kind,
        "role": run.role,
        "parent": run.parent_run,
        "status": run.status,
        "simulated": run.simulated,
        "steps": {"planned": run.steps, "closed": run.steps_closed},
        "created_at": run.created_at,
    }
