"""`eval`: play every question of a dataset and score the answers."""

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from grpo_practice.cli.options import (
    DbOption,
    DryRunOption,
    JsonOption,
    TrustHostOption,
    TrustOption,
    forecast_only,
    trusting,
    workspace,
)
from grpo_practice.cli.reference_options import OPTIONS
from grpo_practice.cli.request_options import shown, takes_request
from grpo_practice.cli.terminal.formatting import print_json, say_restarted
from grpo_practice.core.errors import ConfigError
from grpo_practice.run.requests.base import keywords
from grpo_practice.run.requests.runs import EvalRequest

if TYPE_CHECKING:
    from grpo_practice import Workspace
    from grpo_practice.api.workspace import Forecast
    from grpo_practice.reports.comparison import ComparisonReport
    from grpo_practice.reports.run_reports import EvalReport

SHOWN = 3
"""Default number of questions that `--show` prints."""


@takes_request(EvalRequest)
def evaluate(
    request: EvalRequest,
    arms: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Play these together and compare: agent.yaml, hand.yaml (experiences), L12, none,"
            " full (the library), aa (the library with another seed), direct (experiences that the"
            " teacher writes without attempts), filler (unrelated sentences of the same length); or"
            " base, practised, trained, trained+practised.",
        ),
    ] = None,
    step: Annotated[
        str | None,
        typer.Option(
            help="With --arms: the library after this step: last, best or a number; the first is 0."
        ),
    ] = None,
    show: Annotated[
        bool, typer.Option("--show", help="Print the questions and conversations.")
    ] = False,
    dry_run: DryRunOption = False,
    trust: TrustOption = None,
    trust_host: TrustHostOption = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Evaluate an agent on a dataset, with a confidence interval and a count of unscorable answers.

    Running the command again sends only missing requests. A config file is optional: a model, a
    dataset and a verify function are enough. Without these and without --run, the latest run's
    settings are used.

    Example: grpo-practice eval --model gpt-4o-mini --dataset mine --verify math -k 4
    """
    _check_arms(arms, step, show=show)
    if show and request.run is not None and not request.rejudge:
        _check_only_shows(request)
        from grpo_practice.cli.terminal.transcripts_view import show_whole

        stored = workspace(db).transcripts(request.run, limit=request.limit or SHOWN)
        print_json(stored.document()) if json else show_whole(stored, full=True)
        return
    # A pilot plays, so it shows progress; a dry run shows only notices.
    ws, forecast = workspace(db), forecast_only(dry_run=dry_run, pilot=request.pilot)
    with shown(dry_run=dry_run, json=json) as emit:
        request = replace(request, env=trusting(trust, trust_host), on_event=emit)
        report: EvalReport | ComparisonReport | Forecast
        asked = keywords(request)
        if arms is not None:
            names, at = [name.strip() for name in arms.split(",") if name.strip()], step or "last"
            if forecast:
                report = ws.forecast_arms(names, step=at, **asked)
            else:
                report = ws.evaluate_arms(names, step=at, **asked)
        elif forecast:
            report = ws.forecast_evaluation(**asked)
        else:
            report = ws.evaluate(**asked)
    document = report.document()
    print_json(document) if json else _show(ws, report, request, show=show)
    if document["exit"]:
        raise typer.Exit(1)


def _show(
    ws: "Workspace",
    report: "EvalReport | ComparisonReport | Forecast",
    request: EvalRequest,
    *,
    show: bool,
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
            say_restarted(request.restart_step)
        case EvalReport():
            if show:
                most, all_ = request.limit or SHOWN, report.score.questions
                command = show_command(shlex.quote(report.run), all_)
                shown = show_transcripts(ws.rollouts(report.run, limit=most), most)
                say_how_many(shown, all_, command)
            show_eval(report)
            say_restarted(request.restart_step)
        case _:
            show_forecast(report)


def _check_only_shows(request: EvalRequest) -> None:
    """Raise ConfigError for options that evaluate if the command only shows a stored run.

    Raises:
        ConfigError: Such an option was given.
    """
    asked = (request.config, request.agent, request.model, request.base_url, request.dataset)
    if any((*asked, request.verify, *request.sets)):
        raise ConfigError(
            "--run with --show only shows a stored run, so leave out config, agent, model,"
            " dataset and verify",
            hint="to evaluate, leave --run out; to score its rollouts again, add --rejudge",
        )


def _check_arms(arms: str | None, step: str | None, *, show: bool) -> None:
    """Raise ConfigError for options that require `--arms`, and for options that exclude it.

    Raises:
        ConfigError: Such an option was given.
    """
    if arms is None and step is not None:
        raise ConfigError(
            "--step requires --arms, because it selects the library for --arms",
            hint=f"grpo-practice eval --arms none,full --step {step}"
            if step.isdecimal() or step in ("last", "best")
            else f"{OPTIONS['--step']}: see grpo-practice eval --help",
        )
    if arms is not None and show:
        raise ConfigError(
            "--show cannot be used with --arms, because it prints only one evaluation",
            hint="`runs compare` with --show 3 prints the answers of two runs",
        )
