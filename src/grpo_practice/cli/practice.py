"""`practice`: play, compare, distil, merge; step by step until the plan is done."""

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


def practice(
    config: ConfigOption = None,
    exp_id: Annotated[str | None, typer.Option(help="Name of the experiment.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset to practise on.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the data.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Samples per step.")] = None,
    grpo_n: Annotated[int | None, typer.Option(min=2, help="Rollouts per sample.")] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Rollouts in flight at once.")
    ] = None,
    truncate: Annotated[int | None, typer.Option(min=1, help="Use this many samples only.")] = None,
    start_from: Annotated[
        str | None,
        typer.Option("--from", metavar="RUN[:STEP]", help="Start from that run's library."),
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
    """Practise an agent: learn experiences from what its better attempts did differently.

    Running the command again continues where it stopped; nothing answered is paid for twice.
    Without --config the latest practice run is continued.

    Example: grpo-practice practice --config math.yaml
    """
    from grpo_practice.app.practice_run import prepare_practice, run_practice
    from grpo_practice.app.request import PracticeRequest
    from grpo_practice.app.session import Session
    from grpo_practice.app.shutdown import run_until_stopped
    from grpo_practice.cli.terminal.progress_view import progress
    from grpo_practice.cli.terminal.reports_view import show_practice
    from grpo_practice.forecast.estimate import Forecast
    from grpo_practice.forecast.remaining_calls import forecast
    from grpo_practice.pilot import run_pilot
    from grpo_practice.reports.run_reports import PracticeReport

    flags = {
        "exp_id": exp_id,
        "data.practice_dataset_name": dataset,
        "practice.epochs": epochs,
        "practice.batch_size": batch_size,
        "practice.grpo_n": grpo_n,
        "practice.rollout_concurrency": concurrency,
        "practice.rollout_data_truncate": truncate,
    }
    request = PracticeRequest(
        config=config,
        sets=set_ or [],
        values=given(flags),
        caps=caps(max_cost, max_tokens, max_requests),
        restart_step=restart_step,
        again=again,
        start=start_from,
    )
    report: PracticeReport | Forecast
    with (
        working_store(db, dry_run=dry_run, pilot=pilot) as store,
        progress(json=json) as emit,
    ):
        job = prepare_practice(Session(store, emit, as_typed(), verbose), request)
        if dry_run:
            report = forecast(job)
        elif pilot is not None:
            report = run_until_stopped(job.session, run_pilot(job, pilot))
        else:
            report = run_until_stopped(job.session, run_practice(job))
    if json:
        print_json(report.document())
    elif isinstance(report, Forecast):
        show_forecast(report)
    else:
        show_practice(report)
    if not isinstance(report, Forecast) and report.why_failed:
        raise typer.Exit(1)
