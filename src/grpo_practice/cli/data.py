"""`data`: datasets, from files to names."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpo_practice.cli.common import (
    PROGRAM,
    DbOption,
    JsonOption,
    YesOption,
    confirm,
    count,
    existing_store,
    open_store,
    print_json,
    say,
)
from grpo_practice.cli.tables import facts, table
from grpo_practice.errors import ConfigError, DataError
from grpo_practice.text import brief

if TYPE_CHECKING:
    from collections.abc import Iterable

    from grpo_practice.store.records import DatasetRow
    from grpo_practice.types import Sample

app = typer.Typer(no_args_is_help=True, help="Datasets: from files to names.")

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As `data list` says.")]
SHOWN = 5
"""Unusable answers that are named."""
QUESTION, ANSWER = 80, 40
"""Characters of a cell."""


@app.command()
def upload(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON lines, JSON or CSV.")],
    name: Annotated[str, typer.Option(help="What configs and commands call it.")],
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="ROLE=COLUMN",
            help="Which column is question, answer, source, level, cluster, meta.X; repeatable.",
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
        str, typer.Option(metavar="NAME", help="Check that this function can use the answers.")
    ] = "math",
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
    from grpo_practice.data import read_samples
    from grpo_practice.verify.resolve import check_gold, resolve

    _check_name(name)
    if replace and append:
        raise ConfigError("--replace and --append exclude each other", hint="leave one out")
    function = resolve(verify, {}, None, Path.cwd())
    mapping = _mapping(map_ or [])
    found = read_samples(file, mapping=mapping, dedup=dedup, delimiter=delimiter, skip_bad=skip_bad)
    if not answers_missing and all(s.answer is None for s in found.samples):
        raise DataError(
            f"{file}: no row has an answer, so nothing but a judge could score it",
            hint="say which column it is with --map answer=COLUMN, or add --no-answers",
        )
    with open_store(db) as store:
        samples = [*store.samples(store.dataset(name).id)] if append else []
        samples += found.samples
        row, new = store.add_dataset(
            name, samples, origin=str(file.resolve()), replace=replace or append
        )
    why = {n: reason for n, s in enumerate(samples, 1) if (reason := check_gold(function, s))}
    if json:
        unusable = [{"row": n, "reason": reason} for n, reason in why.items()]
        print_json(
            {
                "schema": "grpo-practice.upload/1",
                "dataset": _document(row),
                "new": new,
                "notes": found.notes,
                "skipped": found.skipped,
                "verify": {"name": verify, "unusable": unusable},
                "exit": 0,
            }
        )
        return
    held = "" if new else ", as before"
    say(f"{name} (revision {row.revision}) holds {count(row.n, 'row')}{held}", style="bold")
    for text in found.notes:
        say(f"  {text}")
    say(f"  {_golds(why, row.n, verify)}")
    say(f"next: {PROGRAM} eval --model MODEL --dataset {name} --verify {verify}")


@app.command("list")
def list_(db: DbOption = None, json: JsonOption = False) -> None:
    """List the datasets.

    Example: grpo-practice data list
    """
    from grpo_practice.store import datasets

    with existing_store(db) as store:
        found = store.read(datasets.newest)
    if json:
        documents = [_document(row) for row in found]
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
    from itertools import islice

    with existing_store(db) as store:
        row = store.dataset(name)
        samples = list(islice(store.samples(row.id), rows))
    if json:
        documents = [_sample_document(sample) for sample in samples]
        print_json(
            {
                "schema": "grpo-practice.dataset/1",
                "dataset": _document(row),
                "rows": documents,
                "exit": 0,
            }
        )
        return
    say(f"{row.name} (revision {row.revision}): {count(row.n, 'row')}", style="bold")
    facts([("sha256", row.sha), ("from", row.origin), ("uploaded", row.created_at)])
    table(
        ["question", "answer", "source"],
        [
            (brief(s.question, QUESTION), brief(_answer(s), ANSWER), brief(s.source, ANSWER))
            for s in samples
        ],
    )
    say(f"next: {PROGRAM} eval --model MODEL --dataset {name} --verify math")


@app.command()
def delete(name: NameArgument, yes: YesOption = False, db: DbOption = None) -> None:
    """Give a name back; runs keep the rows that they used.

    Example: grpo-practice data delete train --yes
    """
    with existing_store(db) as store:
        row = store.dataset(name)
        confirm(f"Delete dataset {row.name} ({count(row.n, 'row')})?", yes=yes)
        store.hide_dataset(name)
    say(f"deleted {name}; runs keep the rows that they used")
    say(f"next: {PROGRAM} data list")


def _check_name(name: str) -> None:
    from grpo_practice.config.base import NAME

    if not re.fullmatch(NAME[1:-1], name):
        raise ConfigError(
            f"{name!r} cannot be the name of a dataset",
            hint="letters, digits, `.`, `_`, `-`; 1 to 100, not starting with . or -",
        )


def _mapping(pairs: "Iterable[str]") -> dict[str, str]:
    mapping = {}
    for pair in pairs:
        role, equals, column = pair.partition("=")
        if not (role and equals and column):
            raise ConfigError(f"--map {pair!r} is not ROLE=COLUMN", hint="--map question=problem")
        mapping[role] = column
    return mapping


def _golds(why: dict[int, str], rows: int, verify: str) -> str:
    """What the verify function thinks of the answers, in a sentence."""
    if not why:
        return f"verify {verify} can use every answer"
    named = "; ".join(f"row {n}: {reason}" for n, reason in list(why.items())[:SHOWN])
    more = f"; and {len(why) - SHOWN} more" if len(why) > SHOWN else ""
    return (
        f"verify {verify} cannot use {len(why)} of {rows} answers: {named}{more}"
        " (another function may: --verify NAME)"
    )


def _answer(sample: "Sample") -> str:
    return "" if sample.answer is None else str(sample.answer)


def _document(row: "DatasetRow") -> dict[str, Any]:
    return {
        "name": row.name,
        "revision": row.revision,
        "sha256": row.sha,
        "n": row.n,
        "origin": row.origin,
        "created_at": row.created_at,
    }


def _sample_document(sample: "Sample") -> dict[str, Any]:
    return {
        "question": sample.question,
        "answer": sample.answer,
        "source": sample.source,
        "level": sample.level,
        "cluster": sample.cluster,
        "meta": dict(sample.meta),
    }
