"""`data`: datasets, from files to names."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpo_practice.cli import datasets
from grpo_practice.cli.datasets import NameArgument, check_name, document, usable
from grpo_practice.cli.download import download
from grpo_practice.cli.options import (
    PROGRAM,
    DbOption,
    JsonOption,
    YesOption,
    existing_store,
    open_store,
)
from grpo_practice.cli.stored_rows import Added
from grpo_practice.cli.terminal.formatting import confirm, count, print_json, say
from grpo_practice.cli.terminal.tables import facts, table
from grpo_practice.errors import ConfigError, DataError
from grpo_practice.text import brief

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grpo_practice.data import ReadResult
    from grpo_practice.types import Sample

app = typer.Typer(no_args_is_help=True, help="Datasets: from files to names.")

QUESTION, ANSWER = 80, 40
"""Characters of a cell."""


@app.command()
def upload(
    name: Annotated[str, typer.Option(help="What configs and commands call it.")],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", help="JSON lines, JSON, CSV, TSV or parquet; `-` is what is piped in."
        ),
    ] = None,
    from_run: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="No file: what `serve --record` kept under this name."),
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="ROLE=COLUMN",
            help="Which column is question, answer, source, level, cluster, meta.X; repeatable.",
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            help="alpaca, sharegpt, chat, evals, trl, preference, verl, columns; else as it looks."
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", help="jsonl, json, csv, tsv or parquet (default: as the name ends)."
        ),
    ] = None,
    dedup: Annotated[
        bool, typer.Option("--dedup", help="Keep the first of rows with the same question.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="The name may hold other rows now.")
    ] = False,
    append: Annotated[
        bool, typer.Option("--append", help="Add the rows to those the name holds.")
    ] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad rows out.")] = False,
    verify: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Check that this function can use the answers (default: what they look made for).",
        ),
    ] = None,
    delimiter: Annotated[str | None, typer.Option(help="Of a CSV file (default: a guess).")] = None,
    answers_missing: Annotated[
        bool, typer.Option("--no-answers", help="There are none, and a judge will score.")
    ] = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Store a file of questions and answers under a name.

    What was found in it is said before anything is paid for.

    Example: grpo-practice data upload train.csv --name train --map question=problem
    """
    from grpo_practice.data import FileSource, read_samples
    from grpo_practice.data.read import joined
    from grpo_practice.verify.resolve import resolve

    check_name(name)
    if file is not None and from_run is not None:
        raise ConfigError("a FILE and --from-run exclude each other", hint="leave one out")
    of_files = (map_, shape, format_, delimiter, skip_bad, answers_missing)
    if from_run is not None and any(of_files):
        raise ConfigError(
            "--map, --shape, --format, --delimiter, --skip-bad and --no-answers are for a FILE",
            hint="leave them out: a recorded run says itself what is what",
        )
    if replace and append:
        raise ConfigError("--replace and --append exclude each other", hint="leave one out")
    if verify is not None:
        resolve(verify, {}, None, Path.cwd())  # before anything is stored
    mapping = mapped(map_ or [])
    if file is None:
        found, origin = _recorded(db, from_run, dedup=dedup), f"run {from_run}"
    else:
        source = FileSource(file, format_, delimiter)
        found = read_samples(source, mapping=mapping, shape=shape, dedup=dedup, skip_bad=skip_bad)
        _check_answers(found, source.name, missing=answers_missing)
        origin = source.origin
    from grpo_practice.store import datasets as stored

    with open_store(db) as store:
        at = store.read(stored.get, name) if append else None
        held = [] if at is None else store.read(stored.samples, at.id)
        samples, notes = joined(held, found.samples, dedup=dedup)
        row, new = store.add_dataset(name, samples, origin=origin, replace=replace or append)
    told = Added(row, new, samples, [*found.notes, *notes], found.skipped)
    told.tell(verify, schema="grpo-practice.upload/1", json=json)


def _recorded(db: Path | None, run: str | None, *, dedup: bool) -> "ReadResult":
    """The conversations of a recorded run."""
    from grpo_practice.app.recorded_samples import samples_of_run

    if run is None:
        raise ConfigError(
            "there is nothing to upload", hint="name a FILE, or a recorded run with --from-run"
        )
    with existing_store(db) as store:
        return samples_of_run(store, run, dedup=dedup)


def _check_answers(found: "ReadResult", name: str, *, missing: bool) -> None:
    if not missing and all(s.answer is None for s in found.samples):
        raise DataError(
            f"{name}: no row has an answer, so nothing but a judge could score it",
            hint="say which column it is with --map answer=COLUMN, or add --no-answers",
        )


@app.command("list")
def list_(db: DbOption = None, json: JsonOption = False) -> None:
    """List the datasets.

    Example: grpo-practice data list
    """
    from grpo_practice.store.datasets import newest

    with existing_store(db) as store:
        found = store.read(newest)
    if json:
        documents = [document(row) for row in found]
        print_json({"schema": "grpo-practice.datasets/1", "datasets": documents, "exit": 0})
        return
    table(
        ["dataset", "rows", "revision", "uploaded", "from"],
        [(d.name, str(d.n), str(d.revision), d.created_at[:10], d.origin) for d in found],
        right=["rows", "revision"],
    )
    command = f"data show {found[0].name}" if found else "data upload FILE --name NAME"
    say(f"next: {PROGRAM} {command}")


@app.command()
def show(
    name: NameArgument,
    rows: Annotated[int, typer.Option(min=0, max=1_000_000, help="How many.")] = 5,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Show a dataset and its first rows.

    Example: grpo-practice data show train --rows 3
    """
    from grpo_practice.store import datasets as stored

    with existing_store(db) as store:
        row = store.read(stored.get, name)
        held = store.read(stored.samples, row.id)
    samples = held[:rows]
    if json:
        documents = [_sample_document(sample) for sample in samples]
        print_json(
            {
                "schema": "grpo-practice.dataset/1",
                "dataset": document(row),
                "rows": documents,
                "exit": 0,
            }
        )
        return
    say(f"{row.name} (revision {row.revision}): {count(row.n, 'row')}", style="bold")
    facts([("sha256", row.sha), ("from", row.origin), ("uploaded", row.created_at)])
    table(
        ["question", "answer", "source", "level"],
        [
            [
                brief(s.question, QUESTION),
                *(brief(cell, ANSWER) for cell in (_answer(s), s.source, s.level or "")),
            ]
            for s in samples
        ],
    )
    say(f"next: {PROGRAM} eval --model MODEL --dataset {name} --verify {usable(held)}")


@app.command()
def delete(name: NameArgument, yes: YesOption = False, db: DbOption = None) -> None:
    """Give a name back; runs keep the rows that they used.

    Example: grpo-practice data delete train --yes
    """
    from grpo_practice.store import datasets as stored

    with existing_store(db) as store:
        row = store.read(stored.get, name)
        confirm(f"Delete dataset {row.name} ({count(row.n, 'row')})?", yes=yes)
        store.hide_dataset(name)
    say(f"deleted {name}; runs keep the rows that they used")
    say(f"next: {PROGRAM} data list")


app.command()(download)
app.command()(datasets.stats)
app.command()(datasets.split)
app.command()(datasets.sample)


def mapped(pairs: "Iterable[str]") -> dict[str, str]:
    """Column per role, from `ROLE=COLUMN` texts."""
    mapping = {}
    for pair in pairs:
        role, equals, column = pair.partition("=")
        if not (role and equals and column):
            raise ConfigError(f"--map {pair!r} is not ROLE=COLUMN", hint="--map question=problem")
        mapping[role] = column
    return mapping


def _answer(sample: "Sample") -> str:
    return "" if sample.answer is None else str(sample.answer)


def _sample_document(sample: "Sample") -> dict[str, Any]:
    return {
        "question": sample.question,
        "answer": sample.answer,
        "source": sample.source,
        "level": sample.level,
        "cluster": sample.cluster,
        "meta": dict(sample.meta),
    }
