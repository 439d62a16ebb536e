"""`runs compare`: compare runs on the same questions."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from grpo_practice.cli.options import DbOption, JsonOption, run_names, workspace
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
            help="Evaluations, baseline first; a practice run stands for the evaluation of its last"
            " library.",
            autocompletion=run_names,
        ),
    ],
    detect: Annotated[
        float,
        typer.Option(
            metavar="POINTS", help="Show how many questions are needed to detect this difference."
        ),
    ] = 5.0,
    show: Annotated[
        int,
        typer.Option(
            "--show",
            min=0,
            max=1_000,
            metavar="N",
            help="Show the answers to the N questions that changed most.",
        ),
    ] = 0,
    arms: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,…",
            help="Arms of one experiment, played by eval --arms: base, practised, trained,"
            " trained+practised.",
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
            raise ConfigError(
                "--arms compares the arms of one experiment, so it needs exactly one name",
                hint="name only that experiment",
            )
        names = [name.strip() for name in arms.split(",")]
        _show(workspace(db).compare_arms(runs[0], names), json=json)
        return
    if len(runs) < 2:
        raise ConfigError("a comparison needs at least two runs", hint="grpo-practice runs list")
    # Checked here because Typer has no open intervals; 0 would need infinitely many questions.
    if not 0 < detect <= 100:
        raise ConfigError(f"--detect {detect:g}: must be above 0 and at most 100 points")
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
