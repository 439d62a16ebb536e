"""Options for the caps of a run, and for its forecast."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from grpo_practice.errors import ConfigError

MaxCostOption = Annotated[
    float | None,
    typer.Option("--max-cost", metavar="USD", min=0, help="Pause before the run costs more."),
]
MaxTokensOption = Annotated[
    int | None,
    typer.Option("--max-tokens", metavar="N", min=0, help="Pause before it takes more, in + out."),
]
MaxRequestsOption = Annotated[
    int | None,
    typer.Option("--max-requests", metavar="N", min=0, help="Pause before it sends more."),
]
DryRunOption = Annotated[
    bool,
    typer.Option("--dry-run", help="Say what is left to do and to pay; ask and write nothing."),
]
PilotOption = Annotated[
    int | None,
    typer.Option("--pilot", metavar="N", min=1, help="Play N questions, keep them, and forecast."),
]


def given(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the flags that were given; `--dataset "$UNSET"` gives none."""
    return {key: value for key, value in flags.items() if value not in (None, "")}


def forecast_only(*, dry_run: bool, pilot: int | None) -> bool:
    """Return True when the command is to forecast a run, in place of completing it.

    Raises:
        ConfigError: A dry run was to play something.
    """
    if dry_run and pilot is not None:
        raise ConfigError(
            "--dry-run asks nothing and --pilot plays: give one of them",
            hint="--pilot prints the forecast too, when it has played",
        )
    return dry_run or pilot is not None
