"""A dataset of the hub, or of the catalogue, as samples with their origin."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from random import Random
from typing import TypedDict

from grpo_practice.data import parquet
from grpo_practice.data.catalog import CATALOG, SEED, Entry, plain
from grpo_practice.data.formats import FileSource, rows
from grpo_practice.data.golds import Gold, Select
from grpo_practice.data.hub import Ref, Snapshot, open_snapshot, parse_ref
from grpo_practice.data.hub_layout import files_of
from grpo_practice.data.read import ReadResult, read_rows
from grpo_practice.data.text_lines import Row
from grpo_practice.errors import ConfigError, DataError
from grpo_practice.types import Sample


@dataclass(frozen=True, slots=True)
class DownloadRequest:
    """A dataset to download, and how much of it."""

    what: str
    """A name of the catalogue, or `hf://owner/name[:config][@split]`."""
    split: str | None = None
    revision: str | None = None
    """A branch, a tag or a commit; None is the newest."""
    limit: int | None = None
    """Rows that are kept, from the beginning of the order."""
    seed: int | None = None
    """Seed of the order; None is the published one, and for `hf://` the file's."""
    mapping: Mapping[str, str] = field(default_factory=dict)
    """Columns by role, for `hf://` as for a file; so are the shape, the template and the rest."""
    shape: str | None = None
    template: str | None = None
    gold: Gold | None = None
    select: Select | None = None
    dedup: bool = False
    skip_bad: bool = False


@dataclass(frozen=True, slots=True)
class DownloadResult:
    """Samples of a download."""

    samples: list[Sample]
    notes: list[str]
    skipped: int
    """Bad rows left out."""
    origin: str
    """`hf://owner/name@commit/split`."""


@dataclass(frozen=True, slots=True)
class Defaults:
    """Settings where the user gives none."""

    name: str
    verify: str | None
    """The verify function that the answers are for; None where the answers have to tell."""


def defaults(request: DownloadRequest) -> Defaults:
    """Return a name and a verify function for the dataset; nothing is fetched.

    Raises:
        ConfigError: There is no such name.
    """
    entry = CATALOG.get(request.what)
    if entry is None:
        ref = _ref(request, None)
        parts = (ref.repo.partition("/")[2], ref.config, ref.split)
        text = "-".join(part.replace("/", "-") for part in parts if part)
        allowed = (c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in text)
        return Defaults("".join(allowed)[:100], None)
    return Defaults(request.what, entry.verify)


def download(request: DownloadRequest, *, tell: Callable[[str], None]) -> DownloadResult:
    """Download the rows as samples, pinned to a commit.

    `tell` is told each file before it is fetched.

    Raises:
        ConfigError: There is no such name, or an extra is missing.
        DataError: The hub has it not or does not give it, or its rows cannot be used.
    """
    entry = CATALOG.get(request.what)
    ref = _ref(request, entry)
    snapshot = open_snapshot(ref.repo, request.revision)
    split, files = files_of(ref, snapshot.sizes, snapshot.readme)
    found = _rows(snapshot, files, entry.columns if entry else None, tell)
    if entry is not None:
        made, notes = _published(request, entry, found)
    else:
        made, notes = _as_they_are(request, snapshot.repo, found)
    if not snapshot.reached:
        notes.append("the hub was not asked or did not answer: this is the newest of the cache")
    if request.limit is not None and len(made.samples) > request.limit:
        notes.append(f"the first {request.limit} of {len(made.samples)} rows kept")
    if entry is None and files[0].endswith(".parquet"):
        left = parquet.left_out(snapshot.fetch(files[0]))
        notes += [f"columns left out: {', '.join(left)}"] if left else []
    return DownloadResult(
        samples=made.samples[: request.limit],
        notes=notes,
        skipped=made.skipped,
        origin=f"hf://{snapshot.repo}@{snapshot.sha}/{split}",
    )


def _ref(request: DownloadRequest, entry: Entry | None) -> Ref:
    if entry is not None:
        return replace(entry.ref, split=request.split or entry.ref.split)
    if not request.what.startswith("hf://"):
        folded = {name.casefold(): name for name in CATALOG}
        close = get_close_matches(request.what.casefold(), folded, n=1)
        names = f"the catalogue has {', '.join(CATALOG)}; any other: hf://owner/name@split"
        meant = f"did you mean {folded[close[0]]}? " if close else ""
        raise ConfigError(f"there is no dataset {request.what!r} to download", hint=meant + names)
    ref = parse_ref(request.what)
    if request.split and ref.split and request.split != ref.split:
        raise ConfigError(f"--split {request.split}: {request.what} names another", hint="drop one")
    return replace(ref, split=request.split or ref.split)


def _published(
    request: DownloadRequest, entry: Entry, found: Iterator[Row | DataError]
) -> tuple[ReadResult, list[str]]:
    if request.mapping or any(_as_rows(request).values()):
        what = "--map and --shape are for hf:// only (as --template, --gold, --select)"
        raise ConfigError(f"{what}: {request.what} is read as it was published")
    ready, notes = entry.prepare(found, Random(SEED if request.seed is None else request.seed))
    made = read_rows(
        ready,
        Path(entry.ref.repo),
        mapping={"question": "question", "answer": "answer"},
        shape="columns",
        dedup=request.dedup,
        skip_bad=request.skip_bad,
    )
    # The first note says which columns were read, which is settled here.
    samples = [replace(sample, source=request.what) for sample in made.samples]
    if request.seed is not None and entry.prepare is plain:  # the others have used it
        Random(request.seed).shuffle(samples)
    return replace(made, samples=samples), [*notes, *made.notes[1:]]


class _AsRows(TypedDict):
    shape: str | None
    template: str | None
    gold: Gold | None
    select: Select | None


def _as_rows(request: DownloadRequest) -> _AsRows:
    return {
        "shape": request.shape,
        "template": request.template,
        "gold": request.gold,
        "select": request.select,
    }


def _as_they_are(
    request: DownloadRequest, repo: str, found: Iterator[Row | DataError]
) -> tuple[ReadResult, list[str]]:
    limit = sys.maxsize if request.limit is None else min(request.limit, sys.maxsize)
    some = request.dedup or request.skip_bad or request.seed is not None
    # Files behind the last row that is request are never fetched.
    taken = found if some else islice(found, limit)
    made = read_rows(
        taken,
        Path(repo),
        mapping=request.mapping,
        dedup=request.dedup,
        skip_bad=request.skip_bad,
        **_as_rows(request),
    )
    if request.seed is not None:
        Random(request.seed).shuffle(made.samples)
    return made, made.notes


def _rows(
    snapshot: Snapshot,
    files: Sequence[str],
    columns: Sequence[str] | None,
    tell: Callable[[str], None],
) -> Iterator[Row | DataError]:
    """Yield the rows of the files; each file is fetched when its turn comes."""
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
            # Files of one object a line are often called `.json`.
            whole = begins.partition(b"\n")[0].strip() == b"{"  # one object over many lines
            lines = path.suffix == ".json" and begins.startswith(b"{") and not whole
            found = rows(FileSource(path, format="jsonl" if lines else None))
        for row in found:
            if isinstance(row, Row) and len(files) > 1:
                yield Row(f"{row.place} of {file}", row.fields)
            else:
                yield row
