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
    import os

    from grpo_practice.app.caps import admission
    from grpo_practice.app.clients import load_client
    from grpo_practice.app.configs import EvalFlags, eval_target, quoted, rejudge_target
    from grpo_practice.app.evaluation_run import prepare_eval
    from grpo_practice.app.session import Session
    from grpo_practice.app.shutdown import drive
    from grpo_practice.cli.terminal.progress_view import progress
    from grpo_practice.cli.terminal.reports_view import show_eval, show_transcripts
    from grpo_practice.config import read_environment
    from grpo_practice.events import Notice
    from grpo_practice.forecast import remaining_calls
    from grpo_practice.forecast.estimate import Forecast

    flags = {
        "exp_id": quoted(exp_id) if exp_id else None,
        "data.dataset": quoted(dataset) if dataset else None,
        "agent.model.model_provider.base_url": quoted(base_url) if base_url else None,
        "pass_k": pass_k,
        "concurrency": concurrency,
    }
    overrides = [*(set_ or []), *(f"{k}={v}" for k, v in flags.items() if v is not None)]
    wanted = EvalFlags(agent, model, verify)
    allowed = caps(max_cost, max_tokens, max_requests)
    if not (dry_run or rejudge):
        load_client()
    with working_store(db, dry_run=dry_run, pilot=pilot) as store:
        with progress(json=json) as emit:
            env = read_environment(os.environ)
            if rejudge:
                chosen = rejudge_target(store, config, run, wanted, overrides, env)
            else:
                chosen = eval_target(store, config, wanted, overrides, env)
            for text in [*chosen.notices, *(chosen.ignored if verbose else [])]:
                emit(Notice(text))
            door = admission(store, chosen.target.name, chosen.config, allowed, as_typed())
            session = Session(store, emit, as_typed(), restart_step, again, door)
            job = prepare_eval(session, chosen, limit=limit)
            report = drive(
                session, remaining_calls.evaluate(session, job, dry_run=dry_run, pilot=pilot)
            )
        if show and not json and not isinstance(report, Forecast):
            show_transcripts(store, report, limit or 3)
    if json:
        print_json(report.document())
    elif isinstance(report, Forecast):
        show_forecast(report)
    else:
        show_eval(report)
