"""Download a dataset from the Hugging Face Hub as samples with a recorded origin."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from random import Random

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.data import parquet
from grpo_practice.data.catalog import CATALOG, SEED, Entry, plain
from grpo_practice.data.formats import FileSource, rows
from grpo_practice.data.hub import Ref, Snapshot, open_snapshot, parse_ref
from grpo_practice.data.hub_layout import files_of
from grpo_practice.data.read import Reading, ReadResult, read_rows, reading_of
from grpo_practice.data.text_lines import Row


class DownloadOptions(Reading, total=False):
    """Options that select part of a dataset and control how its rows are read; all are optional."""

    split: str | None
    revision: str | None
    """Branch, tag or commit; None means the newest."""
    limit: int | None
    """Number of rows to keep, counted from the start of the order."""
    seed: int | None
    """Seed of the order; None means the published order, or for `hf://` the order of the file."""


@dataclass(frozen=True, slots=True)
class DownloadResult(ReadResult):
    """Samples of a download."""

    origin: str
    """Origin in the form `hf://owner/name@commit/split`."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Default settings of a dataset."""

    name: str
    verify: str | None
    """Verify function that suits the answers; None if it must be inferred from the answers."""


def defaults(what: str, options: DownloadOptions) -> Defaults:
    """Return a default name and verify function for the dataset, without fetching anything.

    Raises:
        ConfigError: The catalogue has no dataset with this name.
    """
    entry = CATALOG.get(what)
    if entry is None:
        ref = _ref(what, options, None)
        parts = (ref.repo.partition("/")[2], ref.config, ref.split)
        text = "-".join(part.replace("/", "-") for part in parts if part)
        allowed = (c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text)
        return Defaults("".join(allowed)[:100], None)
    return Defaults(what, entry.verify)


def download(what: str, options: DownloadOptions, *, tell: Callable[[str], None]) -> DownloadResult:
    """Download the rows as samples, pinned to a commit.

    Args:
        what: Name in the catalogue, or `hf://owner/name[:config][@split]`.
        options: Part of the dataset, and how to read its rows.
        tell: Callback that receives a message before each file is fetched.

    Raises:
        ConfigError: The name is unknown, or an optional dependency is missing.
        DataError: The hub lacks or refuses the dataset, or its rows are unusable.
    """
    entry, limit = CATALOG.get(what), options.get("limit")
    ref = _ref(what, options, entry)
    snapshot = open_snapshot(ref.repo, options.get("revision"))
    split, files = files_of(ref, snapshot.sizes, snapshot.readme)
    found = _rows(snapshot, files, entry.columns if entry else None, tell)
    if entry is not None:
        made, notes = _published(what, options, entry, found)
    else:
        made, notes = _as_they_are(options, snapshot.repo, found)
    if not snapshot.reached:
        notes.append(
            "the hub was not asked or did not answer, so this is the newest cached version"
        )
    if limit is not None and len(made.samples) > limit:
        notes.append(f"the first {limit} of {len(made.samples)} rows kept")
    if entry is None and files[0].endswith(".parquet"):
        left = parquet.left_out(snapshot.fetch(files[0]))
        notes += [f"columns left out: {', '.join(left)}"] if left else []
    origin = f"hf://{snapshot.repo}@{snapshot.sha}/{split}"
    return DownloadResult(notes, made.skipped, made.samples[:limit], origin)


def _ref(what: str, options: DownloadOptions, entry: Entry | None) -> Ref:
    split = options.get("split")
    if entry is not None:
        return replace(entry.ref, split=split or entry.ref.split)
    if not what.startswith("hf://"):
        folded = {name.casefold(): name for name in CATALOG}
        close = get_close_matches(what.casefold(), folded, n=1)
        names = f"the catalogue has {', '.join(CATALOG)}; for others use hf://owner/name@split"
        meant = f"did you mean {folded[close[0]]}? " if close else ""
        raise ConfigError(f"there is no dataset {what!r} to download", hint=meant + names)
    ref = parse_ref(what)
    if split and ref.split and split != ref.split:
        raise ConfigError(
            f"--split {split} conflicts with the split named by {what}", hint="name only one"
        )
    return replace(ref, split=split or ref.split)


def _published(
    what: str, options: DownloadOptions, entry: Entry, found: Iterator[Row | DataError]
) -> tuple[ReadResult, list[str]]:
    given = {name for name, value in reading_of(options).items() if value}
    if given - {"dedup", "skip_bad"}:
        only = "--map, --shape, --template, --gold and --select work only with hf://"
        raise ConfigError(f"{only}, because {what} is read as it was published")
    seed = options.get("seed")
    ready, notes = entry.prepare(found, Random(SEED if seed is None else seed))
    made = read_rows(
        ready,
        Path(entry.ref.repo),
        mapping={"question": "question", "answer": "answer"},
        shape="columns",
        dedup=options.get("dedup", False),
        skip_bad=options.get("skip_bad", False),
    )
    # Drop the first note: it describes the columns, which are fixed for the catalogue.
    samples = [replace(sample, source=what) for sample in made.samples]
    # A seed that the user names asks for a shuffle, even where the published order has none.
    if seed is not None and entry.prepare is plain:  # all others have already shuffled with it
        Random(seed).shuffle(samples)
    return replace(made, samples=samples), [*notes, *made.notes[1:]]


def _as_they_are(
    options: DownloadOptions, repo: str, found: Iterator[Row | DataError]
) -> tuple[ReadResult, list[str]]:
    limit, seed = options.get("limit"), options.get("seed")
    some = options.get("dedup") or options.get("skip_bad") or seed is not None
    # Stop early, so that files after the last requested row are never fetched.
    taken = found if some or limit is None else islice(found, min(limit, sys.maxsize))
    made = read_rows(taken, Path(repo), **reading_of(options))
    if seed is not None:
        Random(seed).shuffle(made.samples)
    return made, made.notes


def _rows(
    snapshot: Snapshot,
    files: Sequence[str],
    columns: Sequence[str] | None,
    tell: Callable[[str], None],
) -> Iterator[Row | DataError]:
    """Yield the rows of the files; fetch each file only when its rows are needed."""
    for number, file in enumerate(files, 1):
        of = f" ({number} of {len(files)})" if len(files) > 1 else ""
        size = snapshot.sizes[file]
        shown = f"{size / 1e6:,.1f} MB" if size >= 100_000 else f"{size / 1e3:,.1f} kB"
        tell(f"{snapshot.repo}: {file}, {shown}{of}")
        path = snapshot.fetch(file)
        if file.endswith(".parquet"):
            found = parquet.rows(path, columns=columns)
        else:
            with path.open("rb") as head:
                begins = head.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
            # JSON Lines files are often named `.json`; a first line of only `{` means one object.
            whole = begins.partition(b"\n")[0].strip() == b"{"
            lines = path.suffix == ".json" and begins.startswith(b"{") and not whole
            found = rows(FileSource(path, format="jsonl" if lines else None))
        for row in found:
            if isinstance(row, Row) and len(files) > 1:
                yield Row(f"{row.place} of {file}", row.fields)
            else:
                yield row
