"""`train`: the same questions and verify function, with weights that change."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from grpo_practice.cli.cap_options import (
    MaxCostOption,
    MaxRequestsOption,
    MaxTokensOption,
    given,
)
from grpo_practice.cli.completion import dataset_names
from grpo_practice.cli.options import (
    AgainOption,
    ConfigOption,
    DbOption,
    JsonOption,
    RestartOption,
    SetOption,
    TrustHostOption,
    TrustOption,
    VerboseOption,
    trusting,
    workspace,
)
from grpo_practice.cli.terminal.formatting import print_json, say_restarted
from grpo_practice.errors import ConfigError

if TYPE_CHECKING:
    from grpo_practice.workspace import TrainOptions


def train(
    action: Annotated[
        Literal["tune"] | None, typer.Argument(help="Search for better settings, by trials.")
    ] = None,
    config: ConfigOption = None,
    exp_id: Annotated[str | None, typer.Option(help="Name of the experiment.")] = None,
    dataset: Annotated[
        str | None, typer.Option(autocompletion=dataset_names, help="Dataset to train on.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Folder of the base model, or its name on the hub.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of the run.")] = None,
    max_cost: MaxCostOption = None,
    max_tokens: MaxTokensOption = None,
    max_requests: MaxRequestsOption = None,
    trials: Annotated[
        int | None, typer.Option(min=1, help="With tune: trials in all, those there are included.")
    ] = None,
    population: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="With tune: members that take over each other's weights, in place of trials.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Measure a step, keep nothing of it, and say what is needed."
        ),
    ] = False,
    restart_step: RestartOption = None,
    again: AgainOption = False,
    trust: TrustOption = None,
    trust_host: TrustHostOption = None,
    set_: SetOption = None,
    verbose: VerboseOption = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Train a model's weights by GRPO, on the questions and with the scores of practice.

    Running the command again goes on at the last checkpoint. Without --config the latest training
    run is continued; where there is none, the practice.yaml of this folder is used. `train tune`
    trains under other settings of `train.tune.space`, and tests the best of them once: by trials
    of their own, or by a population, whose bad members take over the weights of good ones.

    Example: grpo-practice train --config math.yaml --model ./my-model
    """
    from grpo_practice.cli.terminal.progress_view import progress
    from grpo_practice.cli.terminal.training_view import (
        show_training,
        show_training_forecast,
        show_tuning,
    )

    searches = _searches(action, trials, population, dry_run=dry_run)
    flags = {
        "exp_id": exp_id,
        "data.practice_dataset_name": dataset,
        "train.model": model,
        "train.steps": steps,
    }
    ws = workspace(db)
    with progress(json=json) as emit:
        options: TrainOptions = {
            "sets": set_ or [],
            "overrides": given(flags),
            "max_cost": max_cost,
            "max_tokens": max_tokens,
            "max_requests": max_requests,
            "restart_step": restart_step,
            "again": again,
            "env": trusting(trust, trust_host),
            "verbose": verbose,
            "on_event": emit,
        }
        if searches:
            found = ws.tune(config, trials=trials, population=population, **options)
        elif dry_run:
            needed = ws.forecast_training(config, **options)
        else:
            report = ws.train(config, **options)
    if searches:
        print_json(found.document()) if json else show_tuning(found)
    elif dry_run:
        print_json(needed.document()) if json else show_training_forecast(needed)
    elif report is not None:
        print_json(report.document()) if json else show_training(report)
        if not json:
            say_restarted(restart_step)


def _searches(
    action: str | None, trials: int | None, population: int | None, *, dry_run: bool
) -> bool:
    """Return whether a search is meant.

    Raises:
        ConfigError: `tune` comes without `--trials` and `--population`, or with both; or one of
            these without it.
    """
    given = {"--trials": trials, "--population": population}
    given = {name: count for name, count in given.items() if count is not None}
    if action is not None and not given:
        raise ConfigError(
            "train tune: how many trials?", hint="grpo-practice train tune --trials 8"
        )
    if len(given) > 1:
        raise ConfigError(
            "a search is by trials or by a population", hint="leave one of the two out"
        )
    for name, count in given.items():
        if action is None:
            raise ConfigError(
                f"{name} is for a search", hint=f"grpo-practice train tune {name} {count}"
            )
    if dry_run and action is not None:
        raise ConfigError(
            "--dry-run measures one training, not a search",
            hint=f"leave tune and {' '.join(given)} out",
        )
    return bool(given)
