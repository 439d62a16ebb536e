"""`experiences effect` and `experiences prune`: measure experiences and remove harmful ones."""

import re
from dataclasses import replace
from typing import Annotated

import typer

from grpo_practice.cli.options import (
    DbOption,
    DryRunOption,
    JsonOption,
    TrustHostOption,
    TrustOption,
    run_names,
    trusting,
    workspace,
)
from grpo_practice.cli.request_options import shown, takes_request
from grpo_practice.cli.terminal.formatting import print_json
from grpo_practice.core.errors import ConfigError
from grpo_practice.effects.request import EffectRequest
from grpo_practice.run.requests.base import keywords

RefArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="REF",
        autocompletion=run_names,
        help="Library: RUN, RUN@BRANCH, RUN:STEP, or L<id> (default: the latest practice run).",
    ),
]
RunOption = Annotated[
    str | None, typer.Option(metavar="RUN", autocompletion=run_names, help="Same as REF.")
]
StepOption = Annotated[str, typer.Option(metavar="last|best|N", help="Library after this step.")]


def library_named(ref: str | None, run: str | None) -> str | None:
    """Return the library named by the argument or by the option.

    Raises:
        ConfigError: Both are given and differ.
    """
    if ref is not None and run is not None and ref != run:
        if re.fullmatch(r"E\d+", ref):
            raise ConfigError(
                f"{ref} is an experience, but all are measured together: leave {ref} out"
            )
        raise ConfigError(f"{ref} and --run {run} name two libraries", hint="keep one of them")
    return ref if run is None else run


@takes_request(EffectRequest)
def effect(
    request: EffectRequest,
    ref: RefArgument = None,
    run: RunOption = None,
    dry_run: DryRunOption = False,
    trust: TrustOption = None,
    trust_host: TrustHostOption = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Measure the effect of each experience.

    Each rollout uses half of the library, so that all experiences are measured together; other
    rollouts use the whole library or no library. Running the command again sends only missing
    requests.

    Example: grpo-practice experiences effect --run math --dataset held-out -k 8
    """
    ws, library = workspace(db), library_named(ref, run)
    with shown(dry_run=dry_run, json=json) as emit:
        env = trusting(trust, trust_host)
        request = replace(request, library=library, env=env, on_event=emit)
        if dry_run:
            forecast = ws.forecast_effects(**keywords(request))
        else:
            report = ws.effects(**keywords(request))
    if json:
        print_json(forecast.document() if dry_run else report.document())
    elif dry_run:
        from grpo_practice.cli.terminal.forecast_view import show_forecast

        show_forecast(forecast)
    else:
        from grpo_practice.effects.view import show_effects

        show_effects(report)


def prune(
    ref: RefArgument = None,
    run: RunOption = None,
    step: StepOption = "last",
    max_tokens: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Keep the best experiences that fit into N tokens."),
    ] = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Make a new library without harmful experiences.

    Run `experiences effect` first to measure them. The practice run keeps its own library. The
    command does not measure whether the new library is better; the suggested next command does.

    Example: grpo-practice experiences prune --run math --max-tokens 400
    """
    named = library_named(ref, run)
    report = workspace(db).prune(named, step=step, max_tokens=max_tokens)
    if json:
        print_json(report.document())
        return
    from grpo_practice.effects.view import show_pruned

    show_pruned(report)
