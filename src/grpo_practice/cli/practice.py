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
    import os

    from grpo_practice.app.caps import admission
    from grpo_practice.app.clients import load_client
    from grpo_practice.app.configs import practice_config, quoted
    from grpo_practice.app.library_refs import library_of
    from grpo_practice.app.practice_run import prepare_practice
    from grpo_practice.app.session import Session
    from grpo_practice.app.shutdown import drive
    from grpo_practice.app.specs import ConfigSource
    from grpo_practice.cli.terminal.progress_view import progress
    from grpo_practice.cli.terminal.reports_view import show_practice
    from grpo_practice.config import read_environment
    from grpo_practice.events import Notice
    from grpo_practice.forecast.estimate import Forecast
    from grpo_practice.forecast.remaining_calls import practise

    flags = {
        "exp_id": quoted(exp_id) if exp_id else None,
        "data.practice_dataset_name": quoted(dataset) if dataset else None,
        "practice.epochs": epochs,
        "practice.batch_size": batch_size,
        "practice.grpo_n": grpo_n,
        "practice.rollout_concurrency": concurrency,
        "practice.rollout_data_truncate": truncate,
    }
    overrides = [*(set_ or []), *(f"{k}={v}" for k, v in flags.items() if v is not None)]
    allowed = caps(max_cost, max_tokens, max_requests)
    if not dry_run:
        load_client()
    with (
        working_store(db, dry_run=dry_run, pilot=pilot) as store,
        progress(json=json) as emit,
    ):
        loaded = practice_config(store, config, overrides, read_environment(os.environ))
        for text in [*loaded.notices, *(loaded.ignored if verbose else [])]:
            emit(Notice(text))
        start = library_of(store, start_from).library if start_from else None
        if restart_step is None:
            restart_step = loaded.config.practice.restart_step
        command = as_typed()
        door = admission(store, loaded.config.exp_id, loaded.config, allowed, command)
        session = Session(store, emit, command, restart_step, again, door)
        job = prepare_practice(
            session, loaded.config, ConfigSource(loaded.text, loaded.base_dir), start=start
        )
        report = drive(session, practise(session, job, dry_run=dry_run, pilot=pilot))
    if json:
        print_json(report.document())
    elif isinstance(report, Forecast):
        show_forecast(report)
    else:
        show_practice(report)
    if not isinstance(report, Forecast) and report.why_failed:
        raise typer.Exit(1)
