"""`runs`: list, show, diagnose and delete runs."""

import shlex
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from grpo_practice.cli.options import (
    PROGRAM,
    DbOption,
    JsonOption,
    YesOption,
    dataset_names,
    on_database,
    run_names,
    workspace,
)
from grpo_practice.cli.terminal.findings_view import show_findings
from grpo_practice.cli.terminal.formatting import (
    confirm,
    count,
    duration,
    file_size,
    note,
    print_json,
    reward,
    say,
    say_next,
    tokens,
)
from grpo_practice.cli.terminal.runs_view import show_list
from grpo_practice.cli.terminal.tables import facts, show_conclusion, table
from grpo_practice.core.findings import noteworthy
from grpo_practice.core.text import to_the_minute

if TYPE_CHECKING:
    from collections.abc import Sequence

    from grpo_practice.reports.learning_findings import StepRow
    from grpo_practice.reports.stored_runs import RunReport
    from grpo_practice.reports.training import TrainedParts, UpdateRow


app = typer.Typer(no_args_is_help=True, help="List runs, with their status and cost.")

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        autocompletion=run_names,
        help="Run, by its name in `runs list` or the beginning of it.",
    ),
]


@app.command("list")
def list_(
    kind: Annotated[
        Literal["practice", "train", "eval", "effect", "recorded"] | None,
        typer.Option(help="Only runs of this kind."),
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT",
            help="Only runs with this text in name, arm, dataset, model, tags or note.",
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(autocompletion=dataset_names, metavar="NAME", help="Only on this dataset."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only runs that this model answered.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Only runs with this tag; repeatable.")
    ] = None,
    last: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only the N newest of these runs.")
    ] = None,
    sort: Annotated[
        Literal["begun", "score"] | None,
        typer.Option(help="begun: newest first, the default; score: highest first."),
    ] = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """List runs, newest first.

    Example: grpo-practice runs list --kind eval --last 10 --sort score
    """
    report = workspace(db).runs(
        kind=kind,
        grep=grep,
        dataset=dataset,
        model=model,
        tags=tag or (),
        last=last,
        sort=sort or "begun",
    )
    if json:
        print_json(report.document())
        return
    show_list(report)
    if report.runs:
        say_next(f"{PROGRAM} runs show {quote(report.runs[0].name)}")
    elif report.stored:
        say(f"none of the {count(report.stored, 'run')} matches")
        say_next(f"{PROGRAM} runs list")
    else:
        say(f"no runs yet; next: {PROGRAM} demo")


@app.command()
def show(run: RunArgument, db: DbOption = None, json: JsonOption = False) -> None:
    """Show the steps, scores and costs of a run.

    Example: grpo-practice runs show math
    """
    report = workspace(db).run(run)
    if json:
        print_json(report.document())
    else:
        _show(report)


@app.command()
def delete(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|GLOB",
            autocompletion=run_names,
            help="Run names, as in `runs list`, or patterns such as 'math*'.",
        ),
    ],
    with_dependants: Annotated[
        bool,
        typer.Option(
            "--with-dependants", help="Also delete runs that use a library of one of them."
        ),
    ] = False,
    yes: YesOption = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Delete runs and the evaluations that they made.

    This deletes all their paid results, except answers that another run uses.

    Example: grpo-practice runs delete math --yes
    """
    ws = workspace(db)
    # Ask about the names that patterns and dependants stand for, not about what was typed.
    gone = ws.runs_to_delete(*runs, with_dependants=with_dependants)
    for run in ws.runs().runs:
        if run.awaits and run.name in gone:
            note(f"{run.name}: in a batch that is billed, and will not be read: {run.awaits.text}")
    confirm(f"Delete {', '.join(gone)} and all their paid results?", yes=yes)
    deleted = ws.delete_run(*gone, with_dependants=with_dependants)
    if json:
        print_json(deleted.document())
        return
    say(f"deleted {count(len(deleted.runs), 'run')}: {', '.join(deleted.runs)}")
    say_next(f"{PROGRAM} runs list")


def _show(report: "RunReport") -> None:
    from grpo_practice.cli.terminal.findings_view import show_findings
    from grpo_practice.cli.terminal.health_view import retries, show_costs, shrunk_groups
    from grpo_practice.cli.terminal.reports_view import (
        coverage,
        funnel,
        held,
        interval,
        show_steps,
    )
    from grpo_practice.reports.run_reports import unscorable_count

    run, health, traffic = report.run, report.health, report.traffic
    practice = run.kind == "practice"
    say(f"{run.name}{' (simulated)' if run.simulated else ''}", style="bold")
    if report.conclusion:
        show_conclusion(report.conclusion)
        say("")
    branches = [b.text for b in report.branches]
    passed = ""
    if traffic is not None:
        failed = f", {traffic.failed} more without an answer" if traffic.failed else ""
        passed = count(traffic.requests, "answered request")
        passed += f" in {count(traffic.conversations, 'conversation')}{failed}"
    facts(
        [
            ("status", _status(report)),
            ("awaits", report.awaits.text if report.awaits else ""),
            ("arm", run.arm or ""),
            ("differs", f"from the arm before: {run.arm_change}" if run.arm_change else ""),
            ("agent", report.agent or ""),
            ("model", report.model or ""),
            ("dataset", _asked(report)),
            ("verify", report.verify or ""),
            *(_passed(report) if run.kind == "eval" else ()),
            ("branches", ", ".join(branches) if len(branches) > 1 else ""),
            ("passed", passed),
            ("steps", "" if traffic else f"{run.steps_closed} of {run.steps} closed"),
            ("played", f"overlap {overlap:g}" if (overlap := report.played.get("overlap")) else ""),
            ("rollouts", ", ".join(f"{n} {name}" for name, n in report.outcomes.items())),
            ("retries", retries(health) if health else ""),
            ("groups", shrunk_groups(health) if health else ""),
            *(funnel(report.steps, run.name) if practice else ()),
            ("held", held(report.held, run.name)),
            ("base", f"sha256 {report.trained.base_sha[:16]}…" if report.trained else ""),
            ("trained", report.trained.recipe if report.trained else ""),
            ("tags", " ".join(run.tags)),
            ("note", run.note),
        ]
    )
    if practice and report.steps:
        say("")
        show_steps(report.steps, {})
    if report.trained is not None:
        say("")
        show_trained(report.steps, report.trained)
    if report.scores:
        say("")
    table(
        ["evaluation", "score", "dataset", "arm", "95 % interval", "questions", "coverage"],
        [
            (
                *(name, reward(s.mean), report.tested[name].dataset, report.tested[name].arm or ""),
                *(interval(s), str(s.questions_scored), coverage(s)),
            )
            for name, s in report.scores.items()
        ],
        right=["score", "questions", "coverage"],
        least=["questions", "coverage", "95 % interval"],
    )
    for name, score in report.scores.items():
        if score.questions_unscorable:
            say(f"  {name}: {unscorable_count(score)}")
    show_costs(report.costs)
    command = f"{PROGRAM} rollouts list {shlex.quote(run.name)}"
    command += " --failed" if run.kind == "eval" else ""
    if sum(report.outcomes.values()) and command != report.next_command:
        say(f"conversations: {on_database(command)}")
    show_findings(report.findings)
    say_next(report.next_command)


def _status(report: "RunReport") -> str:
    run = report.run
    imported = ", imported" if run.imported else ""
    return f"{run.shown_kind}, {run.status}, begun {to_the_minute(run.created_at)} UTC{imported}"


def _asked(report: "RunReport") -> str:
    """Return the dataset with the number of questions asked and available."""
    if report.dataset is None:
        return ""
    if report.run.learns:
        return f"{report.dataset.name}, {count(report.dataset.n, 'question')}"
    asked, there = sum(len(row.plan.slots) for row in report.steps), report.dataset.n
    of = "" if asked == there else f"{asked} of "
    return f"{report.dataset.name}, {of}{count(there, 'question')}"


def _passed(report: "RunReport") -> list[tuple[str, str]]:
    """Return the k of an evaluation, and its Pass@k if the evaluation is complete."""
    from grpo_practice.cli.terminal.reports_view import passed

    score = report.scores.get(report.run.name)
    each = count(report.k or 0, "rollout")
    return [
        ("k", f"{each} a question" if report.k else ""),
        ("pass", passed(score) if score else ""),
    ]


def diagnose(run: RunArgument, db: DbOption = None, json: JsonOption = False) -> None:
    """List the problems that affect a run's learning or score.

    No requests are sent; the diagnosis uses only stored data.

    Example: grpo-practice runs diagnose math
    """
    report = workspace(db).diagnose(run)
    if json:
        print_json(report.document())
        return
    say(f"{report.run}{' (simulated)' if report.simulated else ''}", style="bold")
    show_findings(noteworthy(report.findings))
    if not noteworthy(report.findings):
        checked = ", ".join(dict.fromkeys(found.about for found in report.findings))
        say(f"no problems found; checked: {checked or 'no closed step'}")
    say_next(report.next_command)


def show_trained(steps: "Sequence[StepRow]", trained: "TrainedParts") -> None:
    """Print a row for each closed step, the selection scores, and the checkpoints."""
    from grpo_practice.reports.training import selection_text

    by_step = trained.by_step
    closed = [row for row in steps if row.closed and row.plan.step in by_step]
    columns = [
        "reward",
        "informative",
        "not informative",
        "loss",
        "KL",
        "entropy",
        "gradient",
        "clipped",
    ]
    columns += ["rate", "tokens", "time"]
    table(
        ["step", *columns],
        [_step(row, by_step[row.plan.step]) for row in closed],
        right=columns,
        least=["rate", "clipped", "gradient", "tokens", "not informative", "entropy", "KL", "time"],
    )
    if trained.selection:
        say(f"selection: {selection_text(trained.selection)}")
    if trained.checkpoints:
        say("")
    table(
        ["checkpoint", "weights", "sha256", "folder"],
        [
            (str(row.step), file_size(row.bytes), row.sha256.hex()[:8], row.path)
            for row in trained.checkpoints
        ],
        right=["weights"],
        least=["sha256", "weights"],
    )


def _step(row: "StepRow", update: "UpdateRow") -> "Sequence[str]":
    stats = row.stats or {}
    return (
        str(row.plan.step),
        reward(stats.get("mean_reward")),
        str(stats.get("informative", "-")),
        f"{update.uniform_share:.0%}",
        f"{update.loss:.3g}",
        "-" if update.kl is None else f"{update.kl:.2g}",
        "-" if update.entropy is None else f"{update.entropy:.2f}",
        f"{update.grad_norm:.2g}",
        "-" if update.clipped is None else f"{update.clipped:.1%}",
        f"{update.learning_rate:.1e}",
        tokens(update.tokens),
        duration(stats.get("seconds", update.seconds)),
    )
