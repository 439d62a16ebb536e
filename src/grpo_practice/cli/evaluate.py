"""`eval`: play and score every question of a dataset."""

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from grpo_practice.cli.cap_options import (
    DryRunOption,
    MaxCostOption,
    MaxRequestsOption,
    MaxTokensOption,
    PilotOption,
    forecast_only,
    given,
)
from grpo_practice.cli.completion import dataset_names, run_names
from grpo_practice.cli.options import (
    AgainOption,
    AgentOption,
    ConfigOption,
    DbOption,
    JsonOption,
    RestartOption,
    SetOption,
    TraceContentOption,
    TraceSampleOption,
    TrustHostOption,
    TrustOption,
    VerboseOption,
    trusting,
    workspace,
)
from grpo_practice.cli.other_words import OPTIONS
from grpo_practice.cli.terminal.formatting import print_json, say_restarted
from grpo_practice.errors import ConfigError

if TYPE_CHECKING:
    from grpo_practice.reports.comparison import ComparisonReport
    from grpo_practice.reports.run_reports import EvalReport
    from grpo_practice.workspace import EvalOptions, Forecast, Workspace

SHOWN = 3
"""Questions that `--show` prints without `--limit`."""


def evaluate(
    config: ConfigOption = None,
    agent: AgentOption = None,
    model: Annotated[str | None, typer.Option(help="Model that answers.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Endpoint of the model.")] = None,
    dataset: Annotated[
        str | None, typer.Option(autocompletion=dataset_names, help="Dataset to ask, or a file.")
    ] = None,
    verify: Annotated[
        str | None, typer.Option(help="How answers are scored: math, exact, file.py:func, …")
    ] = None,
    pass_k: Annotated[
        int | None, typer.Option("--pass-k", "-k", min=1, help="Rollouts per question.")
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Rollouts in flight at once.")
    ] = None,
    exp_id: Annotated[str | None, typer.Option(help="Name of the experiment.")] = None,
    arms: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Play these together and compare: none, full (the library), aa, direct, filler,"
            " L12, hand.yaml, agent.yaml; or base, practised, trained, trained+practised.",
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(help="With --arms: the library after this step: last, best or a number."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Ask so many questions only.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print what was asked and said.")] = False,
    rejudge: Annotated[
        bool,
        typer.Option("--rejudge", help="Score the rollouts of --run again; plays nothing."),
    ] = False,
    run: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            autocompletion=run_names,
            help="Evaluate as this run does; with --rejudge or --show: whose rollouts.",
        ),
    ] = None,
    max_cost: MaxCostOption = None,
    max_tokens: MaxTokensOption = None,
    max_requests: MaxRequestsOption = None,
    dry_run: DryRunOption = False,
    pilot: PilotOption = None,
    restart_step: RestartOption = None,
    again: AgainOption = False,
    trace_content: TraceContentOption = "yes",
    trace_sample: TraceSampleOption = 1.0,
    trust: TrustOption = None,
    trust_host: TrustHostOption = None,
    set_: SetOption = None,
    verbose: VerboseOption = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Evaluate an agent on a dataset, with an interval and with what could not be scored.

    Running the command again asks only what is missing. No config file is needed: a model, a
    dataset and a verify function will do. Without any of these, and without --run, the latest run's
    are used.

    Example: grpo-practice eval --model gpt-4o-mini --dataset mine --verify math -k 4
    """
    from grpo_practice.cli.terminal.progress_view import progress

    flags = {
        "exp_id": exp_id,
        "data.dataset": dataset,
        "agent.model.model_provider.base_url": base_url,
        "pass_k": pass_k,
        "concurrency": concurrency,
    }
    _check_arms(arms, step, show=show)
    if show and run is not None and not rejudge:
        _check_only_shows(config, agent, model, base_url, dataset, verify, *(set_ or []))
        from grpo_practice.cli.terminal.transcripts_view import show_whole

        stored = workspace(db).transcripts(run, limit=limit or SHOWN)
        print_json(stored.document()) if json else show_whole(stored, full=True)
        return
    ws, forecast = workspace(db), forecast_only(dry_run=dry_run, pilot=pilot)
    with progress(json=json) as emit:
        options: EvalOptions = {
            "agent": agent,
            "model": model,
            "verify": verify,
            "limit": limit,
            "rejudge": rejudge,
            "run": run,
            "sets": set_ or [],
            "overrides": given(flags),
            "max_cost": max_cost,
            "max_tokens": max_tokens,
            "max_requests": max_requests,
            "restart_step": restart_step,
            "again": again,
            "env": trusting(trust, trust_host),
            "verbose": verbose,
            "trace_content": trace_content == "yes",
            "trace_sample": trace_sample,
            "on_event": emit,
        }
        report: EvalReport | ComparisonReport | Forecast
        if arms is not None:
            names, at = [name.strip() for name in arms.split(",")], step or "last"
            if forecast:
                report = ws.forecast_arms(names, config, step=at, pilot=pilot, **options)
            else:
                report = ws.evaluate_arms(names, config, step=at, **options)
        elif forecast:
            report = ws.forecast_evaluation(config, pilot=pilot, **options)
        else:
            report = ws.evaluate(config, **options)
    document = report.document()
    print_json(document) if json else _show(ws, report, restart_step, show=show, limit=limit)
    if document["exit"]:
        raise typer.Exit(1)


def _show(
    ws: "Workspace",
    report: "EvalReport | ComparisonReport | Forecast",
    restart_step: int | None,
    *,
    show: bool,
    limit: int | None,
) -> None:
    from grpo_practice.cli.terminal.comparison_view import show_comparison
    from grpo_practice.cli.terminal.forecast_view import show_forecast
    from grpo_practice.cli.terminal.reports_view import show_eval
    from grpo_practice.cli.terminal.transcripts_view import say_how_many, show_transcripts
    from grpo_practice.reports.comparison import ComparisonReport
    from grpo_practice.reports.rollout_report import show_command
    from grpo_practice.reports.run_reports import EvalReport

    match report:
        case ComparisonReport():
            show_comparison(report)
            say_restarted(restart_step)
        case EvalReport():
            if show:
                most, all_ = limit or SHOWN, report.score.questions
                command = show_command(shlex.quote(report.run), all_)
                shown = show_transcripts(ws.rollouts(report.run, limit=most), most)
                say_how_many(shown, all_, command)
            show_eval(report)
            say_restarted(restart_step)
        case _:
            show_forecast(report)


def _check_only_shows(*typed: object) -> None:
    """Raise when a command that shows a stored run is told to evaluate, too.

    Raises:
        ConfigError: It is.
    """
    if any(typed):
        raise ConfigError(
            "--run with --show shows a run that is stored, and evaluates nothing: leave the config,"
            " agent, model, dataset and verify out",
            hint="to evaluate, leave --run out; to score its rollouts again, add --rejudge",
        )


def _check_arms(arms: str | None, step: str | None, *, show: bool) -> None:
    """Raise for what only several arms have, and what they have not.

    Raises:
        ConfigError: There is such an option.
    """
    if arms is None and step is not None:
        raise ConfigError(
            "--step says after which step --arms take the library",
            hint=f"{OPTIONS['--step']}: see grpo-practice eval --help",
        )
    if arms is not None and show:
        raise ConfigError(
            "--show prints one evaluation, and --arms plays several",
            hint="`runs compare` with --show 3 prints answers of two",
        )
