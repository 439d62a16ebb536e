"""`practice`: play, compare, distil, merge; step by step until the plan is done."""

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
from grpo_practice.cli.terminal.formatting import print_json, say_restarted

if TYPE_CHECKING:
    from grpo_practice.workspace import PracticeOptions


def practice(
    config: ConfigOption = None,
    exp_id: Annotated[str | None, typer.Option(help="Name of the experiment.")] = None,
    dataset: Annotated[
        str | None, typer.Option(autocompletion=dataset_names, help="Dataset to practise on.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the data.")] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Samples per step.")] = None,
    grpo_n: Annotated[int | None, typer.Option(min=2, help="Rollouts per sample.")] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, help="Rollouts in flight at once.")
    ] = None,
    truncate: Annotated[int | None, typer.Option(min=1, help="Use this many samples only.")] = None,
    start_from: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RUN[:STEP]|FILE",
            autocompletion=run_names,
            help="Start from that run's library, or from experiences in a YAML or JSON file.",
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
    """Practise an agent: learn experiences from what its better attempts did differently.

    Running the command again continues where it stopped; nothing answered is paid for twice.
    Without --config the latest practice run is continued; where there is none, the practice.yaml
    of this folder is used.

    Example: grpo-practice practice --config math.yaml
    """
    from grpo_practice.cli.terminal.forecast_view import show_forecast
    from grpo_practice.cli.terminal.progress_view import progress
    from grpo_practice.cli.terminal.reports_view import show_practice

    flags = {
        "exp_id": exp_id,
        "data.practice_dataset_name": dataset,
        "practice.epochs": epochs,
        "practice.batch_size": batch_size,
        "practice.grpo_n": grpo_n,
        "practice.rollout_concurrency": concurrency,
        "practice.rollout_data_truncate": truncate,
    }
    ws, forecast = workspace(db), forecast_only(dry_run=dry_run, pilot=pilot)
    with progress(json=json) as emit:
        options: PracticeOptions = {
            "start": start_from or None,
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
        if forecast:
            left = ws.forecast_practice(config, pilot=pilot, **options)
        else:
            report = ws.practise(config, **options)
    if json:
        print_json(left.document() if forecast else report.document())
    elif forecast:
        show_forecast(left)
    else:
        show_practice(report)
        say_restarted(restart_step)
    if not forecast and report.why_failed:
        raise typer.Exit(1)
