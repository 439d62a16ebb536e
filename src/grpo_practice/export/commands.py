"""`export-data`, `runs export` and `skill`: write files for other programs."""

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from grpo_practice.cli.options import (
    PROGRAM,
    DbOption,
    ForceOption,
    JsonOption,
    OutputOption,
    workspace,
    written_file,
)
from grpo_practice.cli.runs import RunArgument
from grpo_practice.cli.terminal.formatting import (
    ask,
    count,
    file_size,
    note,
    note_next,
    print_json,
    say,
)
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.text import is_data_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from grpo_practice.export.training_data import DataOptions

SHOWN = 8
"""Maximum number of runs that a line names."""
DATABASES = (".db", ".sqlite", ".sqlite3")
"""Endings of database files."""


def export_rows(
    run: RunArgument,
    format_: Annotated[
        Literal["csv", "jsonl", "db"] | None,
        typer.Option(
            "--format",
            help="csv is for spreadsheets, jsonl is exact, db is a database with the whole run"
            " (default: by the file name).",
        ),
    ] = None,
    output: OutputOption = None,
    force: ForceOption = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Write the rollouts of a run, or the run as a database.

    Rollouts are written one per row, with question, answer, reward, tokens and cost. A file whose
    name ends in .db or .sqlite gets the run with its evaluations, questions and paid
    answers; take it in elsewhere with runs import.

    Example: grpo-practice runs export math -o math.db
    """
    path = written_file(output, json=json)
    if format_ == "db" or (format_ is None and path and path.suffix.lower() in DATABASES):
        _export_run(run, path or Path("-"), force=force, db=db, json=json)
        return
    if path is None:
        from grpo_practice.export.rows import row_lines

        _print(row_lines(workspace(db).rows(run), format_ or "jsonl"))
        return
    written = workspace(db).export_rows(run, path, format=format_, force=force)
    if json:
        print_json(written.document())
        return
    note(f"wrote {path}: {count(written.rows, 'rollout')}")


def _export_run(run: str, path: Path, *, force: bool, db: Path | None, json: bool) -> None:
    written = workspace(db).export_run(run, path, force=force)
    if json:
        print_json(written.document())
        return
    say(f"wrote {path} ({file_size(written.bytes)}): {_some(written.runs)}")
    if written.left:
        say(f"not copied: the checkpoints of training runs, in {written.left}")
    note_next(written.next_command)


def _check_database(file: Path) -> None:
    if is_data_file(str(file)):
        raise ConfigError(
            f"{file} is a file of questions, not a database with runs",
            hint=f"{PROGRAM} data upload {quote(str(file))}",
        )


def import_runs(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", dir_okay=False, help="A database, such as math.db.")
    ],
    run: Annotated[
        list[str] | None,
        typer.Option(metavar="RUN", help="Take in only this run and what it needs; repeatable."),
    ] = None,
    name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Name of the experiment here.")
    ] = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Take in the runs of another database.

    The file may come from runs export or from db backup. Runs that are here already are not taken
    in again. Runs of other people start no programs, read no files and get none of your keys until
    you trust their file.

    Example: grpo-practice runs import math.db
    """
    from grpo_practice.store.transfer import NameClashError

    _check_database(file)
    ws, runs, names = workspace(db), run or [], dict[str, str]()
    while True:
        try:
            made = ws.import_runs(file, runs, names=name or names)
            break
        except NameClashError as e:
            for exp_id, free in e.free.items():
                asked = f"{exp_id} is the name of another run here. Import it as"
                given = None if name else ask(asked, free)
                if given is None:
                    raise
                names[exp_id] = given
    if json:
        print_json(made.document())
        return
    if made.runs:
        say(f"imported {count(len(made.runs), 'run')}: {_some([*made.runs.values()])}")
    if made.known:
        say(f"already here: {_some([*made.known.values()])}")
    for dataset in made.hidden:
        note(f"note: {dataset} has other rows here; the imported runs keep their own")
    if made.untrusted:
        note(
            "note: they start no programs and get none of your keys until you trust their settings;"
            f" read them in the page that {PROGRAM} report {quote(made.untrusted[0])} writes, then:"
            f" {PROGRAM} trust {quote(str(file))}"
        )
    note_next(made.next_command)


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


def skill(
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="FOLDER", help="Folder, which must be called grpo-practice."
        ),
    ] = Path("skills/grpo-practice"),
    force: ForceOption = False,
    json: JsonOption = False,
) -> None:
    """Write the Agent Skill with which a coding agent uses this program for you.

    Claude Code looks for skills in .claude/skills; Codex, Gemini CLI and Cursor look in
    .agents/skills; Copilot looks in both. Each of these folders is in your project, or in your home
    folder for all projects.

    Example: grpo-practice skill -o .claude/skills/grpo-practice
    """
    from grpo_practice.export.own_skill import write_skill

    written = write_skill(output, force=force)
    if json:
        print_json(written.document())
        return
    for path in written.files:
        say(f"wrote {path}")
    if written.next_command:
        say("agents look in .agents/skills or, as Claude Code does, in .claude/skills")
        say(f"next: {written.next_command}")
    else:
        say("then begin a new session of your coding agent")


def _some(names: "Sequence[str]") -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _print(lines: "Iterable[str]") -> None:
    for line in lines:
        sys.stdout.write(line)
