"""`eval`: play and score every question of a dataset."""

from pathlib import Path
from typing import Annotated

import typer

from grpo_practice.cli.cap_options import (
    DryRunOption,
    MaxCostOption,
    MaxRequestsOption,
    MaxTokensOption,
    PilotOption,
    caps,
    given,
    show_forecast,
    working_store,
)
from grpo_practice.cli.options import (
    AgainOption,
    ConfigOption,
    DbOption,
    JsonOption,
    RestartOption,
    SetOption,
    VerboseOption,
    as_typed,
)
from grpo_practice.cli.terminal.formatting import print_json


def evaluate(
    config: ConfigOption = None,
    agent: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="Agent YAML, as export-agent writes it."),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model that answers.")] = None,
    base_url: Annotated[str | None, typer.Option(help="Endpoint of the model.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset to ask, or a file.")] = None,
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
    limit: Annotated[int | None, typer.Option(min=1, help="Ask so many questions only.")] = None,
    show: Annotated[bool, typer.Option("--show", help="Print what was asked and said.")] = False,
    rejudge: Annotated[
        bool,
        typer.Option("--rejudge", help="Score the rollouts of --run again; plays nothing."),
    ] = False,
    run: Annotated[
        str | None, typer.Option(metavar="RUN", help="With --rejudge: whose rollouts.")
    ] = None,
    max_cost: MaxCostOption = None,
    max_tokens: MaxTokensOption = None,
    max_requests: MaxRequestsOption = None,
    dry_run: DryRunOption = False,
    pilot: PilotOption = None,
    restart_step: RestartOption = None,
    again: AgainOption = False,
    set_: SetOption = None,
    verbose: VerboseOption = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Evaluate an agent on a dataset, with an interval and with what could not be scored.

    Running the command again asks only what is missing. No config file is needed: a model, a
    dataset and a verify function will do.

    Example: grpo-practice eval --model gpt-4o-mini --dataset mine --verify math -k 4
    """
    from grpo_practice.app.evaluation_run import prepare_eval, run_eval
    from grpo_practice.app.request import EvalRequest
    from grpo_practice.app.session import Session
    from grpo_practice.app.shutdown import run_until_stopped
    from grpo_practice.cli.terminal.progress_view import progress
    from grpo_practice.cli.terminal.reports_view import show_eval, show_transcripts
    from grpo_practice.forecast.estimate import Forecast
    from grpo_practice.forecast.remaining_calls import forecast
    from grpo_practice.pilot import run_pilot
    from grpo_practice.reports.run_reports import EvalReport

    flags = {
        "exp_id": exp_id,
        "data.dataset": dataset,
        "agent.model.model_provider.base_url": base_url,
        "pass_k": pass_k,
        "concurrency": concurrency,
    }
    request = EvalRequest(
        config=config,
        agent=agent,
        model=model,
        verify=verify,
        sets=set_ or [],
        values=given(flags),
        caps=caps(max_cost, max_tokens, max_requests),
        restart_step=restart_step,
        again=again,
        limit=limit,
        rejudge=rejudge,
        run=run,
    )
    report: EvalReport | Forecast
    with working_store(db, dry_run=dry_run, pilot=pilot) as store:
        with progress(json=json) as emit:
            job = prepare_eval(Session(store, emit, as_typed(), verbose), request)
            if dry_run:
                report = forecast(job)
            elif pilot is not None:
                report = run_until_stopped(job.session, run_pilot(job, pilot))
            else:
                report = run_until_stopped(job.session, run_eval(job))
        if show and not json and not isinstance(report, Forecast):
            show_transcripts(store, report, limit or 3)
    if json:
        print_json(report.document())
    elif isinstance(report, Forecast):
        show_forecast(report)
    else:
        show_eval(report)
