"""`data download`: datasets of the hub."""

from pathlib import Path
from typing import Annotated

import typer

from grpo_practice.cli.options import DbOption, JsonOption, open_store
from grpo_practice.cli.stored_rows import Added
from grpo_practice.cli.terminal.formatting import note


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
        str | None, typer.Option(help="What configs and commands call it (default: NAME).")
    ] = None,
    split: Annotated[str | None, typer.Option(help="Another split, or one file.")] = None,
    revision: Annotated[
        str | None, typer.Option(help="A branch, tag or commit (default: the newest).")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Keep the first N rows.")] = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Shuffle with this seed (default: the published order; hf://: none)."),
    ] = None,
    map_: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="ROLE=COLUMN", help="As `data upload` has it; for hf://."),
    ] = None,
    shape: Annotated[str | None, typer.Option(help="As `data upload` has it; for hf://.")] = None,
    dedup: Annotated[
        bool, typer.Option("--dedup", help="Keep the first of rows with the same question.")
    ] = False,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave bad rows out.")] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="The name may hold other rows now.")
    ] = False,
    verify: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="As `data upload` has it."),
    ] = None,
    db: DbOption = None,
    json: JsonOption = False,
) -> None:
    """Fetch a dataset of the Hugging Face Hub.

    HF_ENDPOINT, HF_TOKEN, HF_HOME and HF_HUB_OFFLINE are honoured; no code of it is ever run.

    Example: grpo-practice data download AIME24
    """
    from grpo_practice.cli.data import mapped
    from grpo_practice.cli.datasets import check_name
    from grpo_practice.data.download import Wanted, defaults
    from grpo_practice.data.download import download as fetch
    from grpo_practice.verify.resolve import resolve

    mapping = mapped(map_ or [])
    wanted = Wanted(what, split, revision, limit, seed, mapping, shape, dedup, skip_bad)
    usual = defaults(wanted)
    name, verify = name or usual.name, verify or usual.verify
    check_name(name)
    if verify is not None:
        resolve(verify, {}, None, Path.cwd())  # before anything is fetched
    found = fetch(wanted, tell=note)
    with open_store(db) as store:
        row, new = store.add_dataset(name, found.samples, origin=found.origin, replace=replace)
    told = Added(row, new, found.samples, found.notes, found.skipped)
    told.tell(verify, schema="grpo-practice.download/1", json=json, origin=found.origin)
