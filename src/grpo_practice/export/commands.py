"""`export-data` and `runs export`: write rollouts to files."""

import sys
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from grpo_practice.cli.options import (
    DbOption,
    ForceOption,
    JsonOption,
    OutputOption,
    workspace,
    written_file,
)
from grpo_practice.cli.runs import RunArgument
from grpo_practice.cli.terminal.formatting import count, note, print_json

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grpo_practice.export.training_data import DataOptions


def export_rows(
    run: RunArgument,
    format_: Annotated[
        Literal["csv", "jsonl"] | None,
        typer.Option(
            "--format", help="csv is for spreadsheets, jsonl is exact (default: by the file name)."
        ),
    ] = None,
    output: OutputOption = None,
    force: ForceOption = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Write the rollouts of a run, one per row.

    Each row has question, answer, reward, tokens and cost.

    Example: grpo-practice runs export math -o math.csv
    """
    path = written_file(output, json=json)
    if path is None:
        from grpo_practice.export.rows import row_lines

        _print(row_lines(workspace(db).rows(run), format_ or "jsonl"))
        return
    written = workspace(db).export_rows(run, path, format=format_, force=force)
    if json:
        print_json(written.document())
        return
    note(f"wrote {path}: {count(written.rows, 'rollout')}")


def export_data(
    run: RunArgument,
    format_: Annotated[
        Literal["sft", "dpo"],
        typer.Option(
            "--format", help="sft: good attempts; dpo: pairs of a better and a worse attempt."
        ),
    ],
    output: OutputOption = None,
    without_library: Annotated[
        bool,
        typer.Option("--without-library", help="Remove the experiences from the prompts."),
    ] = False,
    include_eval: Annotated[
        bool,
        typer.Option("--include-eval", help="Include questions that an evaluation uses."),
    ] = False,
    min_reward: Annotated[
        float | None,
        typer.Option(help="sft: minimum reward of an attempt (default: 1)."),
    ] = None,
    pairs: Annotated[
        int | None, typer.Option(help="dpo: maximum number of pairs per group (default: 1).")
    ] = None,
    force: ForceOption = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Write attempts of a run as training data.

    The output is JSON lines in TRL's conversational formats, for its SFTTrainer and DPOTrainer.

    Example: grpo-practice export-data math --format dpo -o math-dpo.jsonl
    """
    path, opened = written_file(output, json=json), workspace(db)
    options: DataOptions = {
        "without_library": without_library,
        "include_eval": include_eval,
        "min_reward": min_reward,
        "pairs": pairs,
    }
    if path is None:
        from grpo_practice.export.rows import json_line

        _print(map(json_line, opened.training_rows(run, format_, **options)))
        return
    written = opened.export_data(run, format_, path, force=force, **options)
    if json:
        print_json(written.document())
        return
    for why, n in written.left_out.items():
        note(f"left out: {count(n, 'rollout')} ({why})")
    if written.simulated:
        note("simulated: made with a simulated model; a real model learns nothing from it")
    note(f"wrote {path}: {count(written.rows, 'row')}")


def _print(lines: "Iterable[str]") -> None:
    for line in lines:
        sys.stdout.write(line)
