"""`export-agent`, `export-data` and `runs export`: write an agent or rollouts to files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol

import typer

from grpo_practice.cli.options import (
    DbOption,
    ForceOption,
    JsonOption,
    OutputOption,
    on_database,
    run_names,
    workspace,
    written_file,
)
from grpo_practice.cli.runs import RunArgument
from grpo_practice.cli.terminal.formatting import count, note, note_next, print_json
from grpo_practice.core.errors import ConfigError
from grpo_practice.export.render import FORMATS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grpo_practice import Workspace
    from grpo_practice.export.training_data import DataOptions


class WritesWeights(Protocol):
    """Function that writes the weights of a training run, and prints the written paths."""

    def __call__(
        self,
        ws: "Workspace",
        run: str,
        step: str,
        output: Path | None,
        *,
        whole: bool,
        force: bool,
        json: bool,
    ) -> None:
        """Write them; raise ConfigError if that cannot be done."""
        ...


WRITERS_OF_WEIGHTS = list[WritesWeights]()
"""Writer of the slice that trains, put here by `main.py`; empty without that slice."""


def export_agent(
    run: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            autocompletion=run_names,
            help="Run of the agent (default: the latest practice run).",
        ),
    ] = None,
    step: Annotated[
        str, typer.Option(metavar="last|best|N", help="Experiences after this step.")
    ] = "last",
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="|".join(FORMATS),
            autocompletion=lambda: list(FORMATS),
            help="`eval --agent` reads yaml (default: by the file name).",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="PATH", help="Output path (default and `-`: stdout)."
        ),
    ] = None,
    merge: Annotated[
        bool,
        typer.Option(
            "--merge", help="For a training run: write the whole model, not only the adapter."
        ),
    ] = False,
    force: ForceOption = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Write the agent with its experiences to a file or a folder.

    The prompt is byte for byte the prompt that was measured. A training run is exported as a folder
    with the adapter, or with the whole model if --merge is given, and the agent's file.

    Example: grpo-practice export-agent --run math --step last -o agent.yaml
    """
    if output == Path("-"):
        output = None
    ws = workspace(db)
    if run is not None and ws.is_training(run):
        _export_weights(ws, run, step, output, format_=format_, merge=merge, force=force, json=json)
        return
    if merge:
        raise _no_weights(ws, run)
    exported = ws.export(run, step, format=format_, output=output, force=force)
    if json:
        print_json(exported.document())
        return
    if output is None:
        sys.stdout.write(exported.text)
        return
    note(f"wrote {output}")
    for when in exported.measure:
        note(f"the score {when} has not been measured")
    if exported.call:
        note(f"next, in the program that started the run: {exported.call}")
    elif exported.next_command:
        note_next(exported.next_command)
    if exported.measure and exported.renew_command:
        note(f"then, to add the scores to the file: {on_database(exported.renew_command)}")


def _export_weights(
    ws: "Workspace",
    run: str,
    step: str,
    output: Path | None,
    *,
    format_: str | None,
    merge: bool,
    force: bool,
    json: bool,
) -> None:
    if format_ is not None:
        raise ConfigError(f"{run} is exported as a folder", hint="remove --format")
    for write in WRITERS_OF_WEIGHTS:
        write(ws, run, step, output, whole=merge, force=force, json=json)


def _no_weights(ws: "Workspace", run: str | None) -> ConfigError:
    if run is not None:
        ws.run(run)  # raises if the run does not exist
    return ConfigError(
        "--merge works only for a training run: other runs have no weights",
        hint="name one with --run: grpo-practice runs list",
    )


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
