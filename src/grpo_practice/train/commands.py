"""`train`: train weights with the questions and the verify function of practice."""

from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from grpo_practice.cli.options import (
    DbOption,
    JsonOption,
    TrustHostOption,
    TrustOption,
    trusting,
    workspace,
)
from grpo_practice.cli.request_options import takes_request
from grpo_practice.cli.terminal.formatting import print_json, reward, say, say_next, say_restarted
from grpo_practice.cli.terminal.tables import show_summary, table
from grpo_practice.core.errors import ConfigError
from grpo_practice.run.requests.base import keywords
from grpo_practice.train.requests import TrainRequest, TuneRequest

if TYPE_CHECKING:
    from grpo_practice.train.tune_report import TuneReport


@takes_request(TuneRequest)
def train(
    request: TuneRequest,
    action: Annotated[
        Literal["tune"] | None, typer.Argument(help="Search for better settings, by trials.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Measure one step, discard it, and show the required resources."
        ),
    ] = False,
    trust: TrustOption = None,
    trust_host: TrustHostOption = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Train a model's weights by GRPO, with the questions and scores of practice.

    Running the command again resumes at the last checkpoint. Without --config, the latest training
    run is resumed, or else practice.yaml in this folder is used. `train tune` trains with several
    settings from `train.tune.space` and tests the best settings once. The search uses either
    separate trials or a population, in which poor members copy the weights of good ones.

    Example: grpo-practice train --config math.yaml --model ./my-model
    """
    from grpo_practice.cli.terminal.progress_view import progress

    searches = _searches(action, request.trials, request.population, dry_run=dry_run)
    ws = workspace(db)
    with progress(json=json) as emit:
        request = replace(request, env=trusting(trust, trust_host), on_event=emit)
        if searches:
            found = ws.tune(**keywords(request))
        elif dry_run:
            needed = ws.forecast_training(**keywords(request, TrainRequest))
        else:
            report = ws.train(**keywords(request, TrainRequest))
    if searches:
        print_json(found.document()) if json else _show_tuning(found)
    elif dry_run:
        print_json(needed.document()) if json else show_summary(needed)
    elif report is not None:
        if json:
            print_json(report.document())
            return
        show_summary(report)
        say_next(f"grpo-practice runs show {quote(report.run)}")
        say_restarted(request.restart_step)


def _searches(
    action: str | None, trials: int | None, population: int | None, *, dry_run: bool
) -> bool:
    """Return whether the command is a search.

    Raises:
        ConfigError: `tune` is given without `--trials` and `--population`, or with both; or one of
            them is given without `tune`.
    """
    given = {"--trials": trials, "--population": population}
    given = {name: count for name, count in given.items() if count is not None}
    if action is not None and not given:
        raise ConfigError(
            "train tune needs a number of trials", hint="grpo-practice train tune --trials 8"
        )
    if len(given) > 1:
        raise ConfigError(
            "a search uses trials or a population, not both", hint="leave one of the two out"
        )
    for name, count in given.items():
        if action is None:
            raise ConfigError(
                f"{name} requires tune, which starts a search",
                hint=f"grpo-practice train tune {name} {count}",
            )
    if dry_run and action is not None:
        raise ConfigError(
            "--dry-run cannot measure a search, only a single training run",
            hint=f"leave tune and {' '.join(given)} out",
        )
    return bool(given)


def _show_tuning(report: "TuneReport") -> None:
    """Print a row for each trial, then the best trial with its scores and their meaning."""
    from grpo_practice.train.tune_report import setting_text

    keys = list(dict.fromkeys(key for trial in report.trials for key in trial.values))
    population = any(trial.phases for trial in report.trials)
    own = ["member", "state", "weights of"] if population else ["trial", "state"]
    table(
        [*own, *keys, "steps", "selection"],
        [
            (
                str(trial.number),
                trial.state,
                *([trial.source or "own"] if population else []),
                *(setting_text(trial.values.get(key)) for key in keys),
                str(trial.steps),
                reward(trial.score),
            )
            for trial in report.trials
        ],
        right=["steps", "selection"],
    )
    show_summary(report)
    if report.best is not None:
        say(report.note)
        say_next(f"grpo-practice export-agent --run {quote(report.best.run)}")
