"""`data`: store files of questions as named datasets."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import typer

from grpo_practice.cli.options import (
    PROGRAM,
    DbOption,
    ForceOption,
    JsonOption,
    OutputOption,
    YesOption,
    dataset_names,
    run_names,
    workspace,
    written_file,
)
from grpo_practice.cli.terminal import datasets_view as view
from grpo_practice.cli.terminal.formatting import confirm, count, print_json, say, say_next, tell
from grpo_practice.core.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Upload, download and split datasets.")

NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="NAME", autocompletion=dataset_names, help="Dataset name, as in `data list`."
    ),
]
SeedOption = Annotated[int, typer.Option(help="Seed of the random choice.")]
DedupOption = Annotated[
    bool, typer.Option("--dedup", help="Of rows with the same question, keep only the first.")
]
SkipBadOption = Annotated[bool, typer.Option("--skip-bad", help="Skip bad rows.")]
TemplateOption = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Question template with slots {question}, {passage}, {options}, {system}, {COLUMN};"
        " \\n is a line break (default: the slots that have values in the file).",
    ),
]
GoldOption = Annotated[
    Literal["letter", "index", "number", "text"] | None,
    typer.Option(
        help="Format of the answers to questions with options; index starts at 0,"
        " number at 1 (default: detected)."
    ),
]
SelectOption = Annotated[
    Literal["any", "all"] | None,
    typer.Option(help="Whether any one of several right options is enough, or all are required."),
]
ReplaceOption = Annotated[
    bool, typer.Option("--replace", help="Replace the rows stored under this name.")
]
ReplacePartsOption = Annotated[
    bool, typer.Option("--replace", help="Replace the rows stored under these names.")
]


@app.command()
def upload(
    name: Annotated[str, typer.Option(help="Name of the dataset in configs and commands.")],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="JSON lines, JSON, CSV, TSV or parquet; `-` is stdin."),
    ] = None,
    from_run: Annotated[
        str | None,
        typer.Option(
            metavar="RUN",
            autocompletion=run_names,
            help="Run recorded by `serve --record`, to upload instead of a file.",
        ),
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option(
            "--map",
            metavar="ROLE=COLUMN",
            help="Column for question, answer, source, level, cluster, passage, options or meta.X;"
            " repeatable.",
        ),
    ] = None,
    template: TemplateOption = None,
    gold: GoldOption = None,
    select: SelectOption = None,
    shape: Annotated[
        str | None,
        typer.Option(
            help="alpaca, chat, evals, trl, preference, verl, columns (default: detected)."
        ),
    ] = None,
    format_: Annotated[
        str | None,
        typer.Option(
            "--format", help="jsonl, json, csv, tsv or parquet (default: by the file name)."
        ),
    ] = None,
    dedup: DedupOption = False,
    replace: ReplaceOption = False,
    append: Annotated[
        bool, typer.Option("--append", help="Add the rows to the existing ones.")
    ] = False,
    skip_bad: SkipBadOption = False,
    verify: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Check that this function can use the answers (default: detected).",
        ),
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option(help="Delimiter of a CSV file (default: detected).")
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="NAME,…", help="Column names of a CSV file without a header line."),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="Key of the rows in a JSON file that is one object."),
    ] = None,
    no_answers: Annotated[
        bool,
        typer.Option(
            "--no-answers", help="Accept rows without answers; a judge will score the responses."
        ),
    ] = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Store a file of questions and answers as a dataset.

    Problems in the file are reported now, before a run costs anything.

    Example: grpo-practice data upload train.csv --name train --map question=problem
    """
    if file is not None and from_run is not None:
        raise ConfigError("FILE and --from-run cannot be used together", hint="leave one out")
    reading = (map_, template, gold, select, shape, format_, delimiter, columns, rows)
    if from_run is not None and any((*reading, skip_bad, no_answers)):
        raise ConfigError(
            "--skip-bad, --no-answers and options for reading rows need a FILE",
            hint="leave them out, because the format of a recorded run is known",
        )
    if replace and append:
        raise ConfigError("--replace and --append cannot be used together", hint="leave one out")
    if_exists: Literal["fail", "replace", "append"] = "append" if append else "fail"
    if_exists = "replace" if replace else if_exists
    datasets = workspace(db).datasets
    if file is not None:
        stored = datasets.upload(
            name,
            file,
            if_exists=if_exists,
            verify=verify,
            ask=view.ask_select,
            mapping=_mapping(map_ or []),
            template=_template(template),
            gold=gold,
            select=select,
            shape=shape,
            format=format_,
            delimiter=delimiter,
            columns=[name.strip() for name in columns.split(",")] if columns else (),
            rows=rows,
            dedup=dedup,
            skip_bad=skip_bad,
            no_answers=no_answers,
        )
    elif from_run is not None:
        stored = datasets.upload_run(
            name, from_run, dedup=dedup, if_exists=if_exists, verify=verify
        )
    else:
        raise ConfigError(
            "there is nothing to upload", hint="name a FILE, or a recorded run with --from-run"
        )
    print_json(stored.document()) if json else view.stored(stored)


@app.command("list")
def list_(db: DbOption = None, json: JsonOption = False) -> None:
    """List the datasets.

    Example: grpo-practice data list
    """
    listed = workspace(db).datasets.list()
    print_json(listed.document()) if json else view.listed(listed)


@app.command()
def show(
    name: NameArgument,
    rows: Annotated[int, typer.Option(min=0, max=1_000_000, help="Number of rows.")] = 5,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Show a dataset and its first rows.

    Example: grpo-practice data show train --rows 3
    """
    report = workspace(db).datasets.show(name, rows)
    print_json(report.document()) if json else view.dataset(report)


@app.command()
def export(
    name: NameArgument,
    output: OutputOption = None,
    force: ForceOption = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Write a dataset as JSON lines.

    `data upload` restores the same dataset from the file, in this or in another database.

    Example: grpo-practice data export mine -o mine.jsonl
    """
    datasets = workspace(db).datasets
    path = written_file(output, json=json)
    if path is None:
        for line in datasets.lines(name):
            sys.stdout.write(line)
        return
    written = datasets.export(name, path, force=force)
    print_json(written.document()) if json else view.exported(written)


@app.command()
def delete(
    name: NameArgument, yes: YesOption = False, db: DbOption = None, json: JsonOption = False
) -> None:
    """Delete a dataset; runs keep the rows that they used.

    Example: grpo-practice data delete train --yes
    """
    datasets = workspace(db).datasets
    # Look up the name first, so that a wrong name causes an error before the user is asked.
    row = datasets.row(name)
    confirm(f"Delete dataset {row.name} ({count(row.n, 'row')})?", yes=yes)
    deleted = datasets.delete(name)
    if json:
        print_json(deleted.document())
        return
    say(f"deleted {name}; runs keep the rows that they used")
    say_next(f"{PROGRAM} data list")


@app.command()
def download(
    what: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="AIME24, AIME25, DAPO-Math-17k, AFM_web_RL, WebWalkerQA, or"
            " hf://owner/name[:config][@split].",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Option(help="Name of the dataset in configs and commands (default: NAME)."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split to download, or a single file.")] = None,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit (default: the latest).")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Keep the first N rows.")] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            help="Seed for shuffling (default: the published order; hf://: not shuffled)."
        ),
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="ROLE=COLUMN", help="As for `data upload`; only for hf://."),
    ] = None,
    template: TemplateOption = None,
    gold: GoldOption = None,
    select: SelectOption = None,
    shape: Annotated[str | None, typer.Option(help="As for `data upload`; only for hf://.")] = None,
    dedup: DedupOption = False,
    skip_bad: SkipBadOption = False,
    replace: ReplaceOption = False,
    verify: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="As for `data upload`."),
    ] = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Download a dataset from the Hugging Face Hub.

    HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE are respected. Code from the dataset is never
    run.

    Example: grpo-practice data download AIME24
    """
    stored = workspace(db).datasets.download(
        what,
        name,
        replace=replace,
        verify=verify,
        on_event=tell,
        split=split,
        revision=revision,
        limit=limit,
        seed=seed,
        mapping=_mapping(map_ or []),
        template=_template(template),
        gold=gold,
        select=select,
        shape=shape,
        dedup=dedup,
        skip_bad=skip_bad,
    )
    print_json(stored.document()) if json else view.stored(stored)


@app.command()
def split(
    name: NameArgument,
    into: Annotated[
        str, typer.Option(metavar="PART=SHARE,…", help="Parts and their shares, which add up to 1.")
    ] = "train=0.8,test=0.2",
    seed: SeedOption = 0,
    by: Annotated[
        Literal["source", "level"] | None,
        typer.Option(help="Apply these shares to each source or level separately."),
    ] = None,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep", help="Keep existing questions in their parts; distribute only new questions."
        ),
    ] = False,
    replace: ReplacePartsOption = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Split a dataset into parts that share no questions.

    The parts are called NAME-train, NAME-test and so on. Questions that differ only in case and
    spaces, or that share a cluster, go into the same part.

    Example: grpo-practice data split mine --into train=0.8,test=0.2
    """
    if_exists: Literal["fail", "replace", "keep"] = "replace" if replace else "fail"
    divided = workspace(db).datasets.split(
        name, into, seed=seed, by=by, if_exists="keep" if keep else if_exists
    )
    print_json(divided.document()) if json else view.split(divided)


@app.command()
def sample(
    name: NameArgument,
    n: Annotated[int, typer.Option("-n", min=1, help="Number of rows.")],
    new: Annotated[str, typer.Option("--name", metavar="NEW", help="Name of the sample.")],
    seed: SeedOption = 0,
    replace: ReplacePartsOption = False,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Draw a random sample of a dataset as a new dataset.

    With the same seed, a larger sample contains the smaller one.

    Example: grpo-practice data sample mine -n 100 --name mine-100
    """
    drawn = workspace(db).datasets.sample(name, n, new, seed=seed, replace=replace)
    print_json(drawn.document()) if json else view.sample(drawn)


def _mapping(pairs: Iterable[str]) -> dict[str, str]:
    mapping = {}
    for pair in pairs:
        role, equals, column = pair.partition("=")
        if not (role and equals and column):
            raise ConfigError(f"--map {pair!r} is not ROLE=COLUMN", hint="--map question=problem")
        mapping[role] = column
    return mapping


def _template(text: str | None) -> str | None:
    return None if text is None else text.replace("\\n", "\n")
