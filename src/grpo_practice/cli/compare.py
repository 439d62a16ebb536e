"""`runs compare`: compare runs on the same questions."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from grpo_practice.cli.completion import run_names
from grpo_practice.cli.options import DbOption, JsonOption, workspace
from grpo_practice.cli.terminal.formatting import print_json
from grpo_practice.core.errors import ConfigError

if TYPE_CHECKING:
    from grpo_practice.reports.comparison import ComparisonReport

Required = Literal["better", "worse"]


def compare(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="A B [C …]",
            help="Evaluations, the baseline first; a practice run stands for that of its last"
            " library.",
            autocompletion=run_names,
        ),
    ],
    detect: Annotated[
        float,
        typer.Option(metavar="POINTS", help="Say how many questions would find this difference."),
    ] = 5.0,
    show: Annotated[
        int,
        typer.Option(
            "--show",
            min=0,
            max=1_000,
            metavar="N",
            help="Show the answers to the N that moved most.",
        ),
    ] = 0,
    arms: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Of one experiment: base, practised, trained, trained+practised, as eval --arms"
            " has played them.",
        ),
    ] = None,
    require: Annotated[
        Required | None,
        typer.Option(metavar="better|worse", help="Exit with 1 unless this is the verdict."),
    ] = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Compare runs with the first one, question by question.

    Example: grpo-practice runs compare math/eval math
    """
    if arms is not None:
        if len(runs) != 1:
            raise ConfigError("--arms compares within one experiment", hint="name that alone")
        names = [name.strip() for name in arms.split(",")]
        _show(workspace(db).compare_arms(runs[0], names), json=json)
        return
    if len(runs) < 2:
        raise ConfigError("one run is compared with nothing", hint="grpo-practice runs list")
    if not 0 < detect <= 100:
        raise ConfigError(f"--detect {detect:g}: points are above 0 and at most 100")
    report = workspace(db).compare(*runs, detect=detect / 100, require=require, answers=show)
    _show(report, json=json)
    if not report.required:
        raise typer.Exit(1)


def _show(report: "ComparisonReport", *, json: bool) -> None:
    if json:
        print_json(report.document())
    else:
        from grpo_practice.cli.terminal.comparison_view import show_comparison

        show_comparison(report)
