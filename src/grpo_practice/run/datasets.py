"""Operations on datasets: upload, download, list, show, export, split, sample, count, delete."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Unpack

from grpo_practice.config.schema.base import check_name
from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.events import Emit, Notice, silent, tee
from grpo_practice.core.files import write_lines
from grpo_practice.core.types import Answer, Sample
from grpo_practice.data.download import DownloadOptions, defaults, download
from grpo_practice.data.formats import FileSource
from grpo_practice.data.golds import Ask, SeveralRightError, nobody
from grpo_practice.data.read import ReadNotes, join_held, reading_of, stage_file
from grpo_practice.data.split import Part, draw, shares_of, split
from grpo_practice.data.staged_samples import StagedSamples
from grpo_practice.reports.datasets import (
    DatasetList,
    DatasetReport,
    DatasetSample,
    DatasetSplit,
    DeletedDataset,
    ExportedDataset,
    SplitPart,
    StoredDataset,
)
from grpo_practice.run.upload import (
    DatasetLines,
    IfExists,
    Upload,
    UploadOptions,
    families_notes,
    leave_unusable_out,
    stage_python_rows,
    stage_run,
    suited,
)
from grpo_practice.store import Store, datasets
from grpo_practice.store.records import DatasetRow
from grpo_practice.store.store import StoredSamples
from grpo_practice.verify import suitability

PARTS = "train=0.8,test=0.2"
Stratum = Literal["source", "level"]


class Datasets:
    """The datasets of a database.

    Args:
        open_store: Opens the database for one call; with `create`, also creates it if missing.
    """

    def __init__(self, open_store: Callable[..., AbstractContextManager[Store]]) -> None:
        self._store = open_store

    def upload(
        self,
        name: str,
        source: Path | str | Iterable[Sample] | Iterable[Mapping[str, Any] | tuple[str, Answer]],
        *,
        if_exists: IfExists = "fail",
        verify: str | None = None,
        ask: Ask = nobody,
        **options: Unpack[UploadOptions],
    ) -> StoredDataset:
        """Store the rows of a file, or samples from Python, under a name.

        Args:
            name: Name of the dataset in configs and commands.
            source: A file; or samples, mappings, or (question, answer) pairs.
            if_exists: Action if the name already holds other rows.
            verify: Function to check the answers with (default: the best suited).
            ask: Called for `select` if a file needs it; an error is raised if it returns None.
            options: See `UploadOptions`; they do not apply to samples.

        Raises:
            ConfigError: The name, an option or the verify function cannot be used.
            DataError: The rows cannot be used, or the name holds other rows.
        """
        _check(name, verify)
        with StagedSamples() as staged:
            where, origin = name, "Python"
            if isinstance(source, str | Path):
                form, delimiter = options.get("format"), options.get("delimiter")
                columns, rows = options.get("columns", ()), options.get("rows")
                file = FileSource(Path(source), form, delimiter, columns, rows)
                found = _stage(staged, file, options, ask)
                where, origin = file.name, file.origin  # after reading, which reports symlink loops
            else:
                found = stage_python_rows(staged, source, options)
            if not options.get("no_answers") and not staged.answered():
                raise DataError(
                    f"{where}: no row has an answer, so only a judge could score the answers",
                    hint="name the column with --map answer=COLUMN, or add --no-answers",
                )
            if options.get("skip_bad") and not options.get("no_answers"):
                found = leave_unusable_out(staged, found, verify)
            found.notes.extend(
                families_notes(staged, (options.get("mapping") or {}).get("cluster"))
            )
            upload = Upload(name, origin, if_exists, options.get("dedup", False), verify)
            return self._add(upload, staged, found)

    def upload_run(
        self,
        name: str,
        run: str,
        *,
        dedup: bool = False,
        if_exists: IfExists = "fail",
        verify: str | None = None,
    ) -> StoredDataset:
        """Store the conversations of a recorded run as a dataset without answers.

        Raises:
            ConfigError: The run is not a recorded run, or the name or the function cannot be used.
            DataError: The run contains no question, or the name holds other rows.
        """
        _check(name, verify)
        with StagedSamples() as staged:
            with self._store() as store:
                found = stage_run(staged, store, run, dedup=dedup)
            return self._add(Upload(name, f"run {run}", if_exists, dedup, verify), staged, found)

    def _add(self, upload: "Upload", staged: StagedSamples, found: ReadNotes) -> StoredDataset:
        # Open the store only now, so that unreadable rows leave no empty database behind.
        with self._store(create=True) as store:
            held, notes = None, list[str]()
            if upload.if_exists == "append":
                held = store.read(datasets.get, upload.name)
                staged.hold(store.each(datasets.questions, held.id))
                notes = join_held(staged, dedup=upload.dedup)
            row, new = store.add_dataset(
                upload.name,
                staged,
                origin=upload.origin,
                replace=upload.if_exists != "fail",
                after=held,
            )
            return StoredDataset(
                row,
                new,
                upload.origin,
                [*found.notes, *notes],
                found.skipped,
                *suited(store, row, upload.verify),
            )

    def download(
        self,
        what: str,
        name: str | None = None,
        *,
        replace: bool = False,
        verify: str | None = None,
        on_event: Emit = silent,
        **options: Unpack[DownloadOptions],
    ) -> StoredDataset:
        """Store a dataset from the Hugging Face hub or the catalogue, without running its code.

        Args:
            what: A name in the catalogue, or hf://owner/name[:config][@split].
            name: Name of the dataset in configs and commands (default: its own name).
            replace: Whether to replace other rows under this name.
            verify: Function to check the answers with (default: from the catalogue).
            on_event: Receives a notice before each file is fetched.
            options: See `DownloadOptions`.

        Raises:
            ConfigError: The dataset does not exist, an extra is missing, or an option is wrong.
            DataError: The hub denies access, the rows cannot be used, or the name holds other rows.
        """
        usual = defaults(what, options)
        name, verify = name or usual.name, verify or usual.verify
        _check(name, verify)
        found = download(what, options, tell=lambda text: tee(on_event)(Notice(text)))
        # Open the store only now, so that a failed download leaves no empty database behind.
        with self._store(create=True) as store:
            row, new = store.add_dataset(name, found.samples, origin=found.origin, replace=replace)
            return StoredDataset(
                row,
                new,
                found.origin,
                found.notes,
                found.skipped,
                *suited(store, row, verify),
            )

    def list(self) -> DatasetList:
        """Return the newest revision of every dataset."""
        with self._store() as store:
            return DatasetList(store.read(datasets.newest))

    def show(self, name: str, rows: int = 5) -> DatasetReport:
        """Return a dataset and its first rows; raise DataError if there is no such dataset."""
        with self._store() as store:
            dataset = store.read(datasets.get, name)
            first = store.read(datasets.samples, dataset.id, most=rows)
            return DatasetReport(dataset, first, _usable(store, dataset))

    def lines(self, name: str) -> Iterator[str]:
        """Yield a dataset's rows as JSON lines, as `export` writes them, reading each on demand.

        Raises:
            DataError: The dataset does not exist.
        """
        with self._store() as store:
            yield from DatasetLines(store, store.read(datasets.get, name))

    def export(self, name: str, path: str | Path, *, force: bool = False) -> ExportedDataset:
        """Write a dataset to a JSON Lines file, which `upload` reads back as the same dataset.

        Raises:
            DataError: The dataset does not exist.
            ConfigError: The file exists and `force` is not set, or it cannot be written.
        """
        with self._store() as store:
            dataset = store.read(datasets.get, name)
            lines = DatasetLines(store, dataset)
            write_lines(Path(path), lines, force=force)
        return ExportedDataset(dataset, Path(path), lines.answered, lines.changed, lines.several)

    def row(self, name: str) -> DatasetRow:
        """Return a dataset's name, revision and size; raise DataError if it does not exist."""
        with self._store() as store:
            return store.read(datasets.get, name)

    def delete(self, name: str) -> DeletedDataset:
        """Delete a dataset's name; runs keep the rows that they used."""
        with self._store() as store:
            dataset = store.read(datasets.get, name)
            store.hide_dataset(name)
        return DeletedDataset(dataset)

    def split(
        self,
        name: str,
        into: str | Mapping[str, float] = PARTS,
        *,
        seed: int = 0,
        by: Stratum | None = None,
        if_exists: Literal["fail", "replace", "keep"] = "fail",
    ) -> DatasetSplit:
        """Divide a dataset into datasets NAME-PART that share no question.

        Args:
            name: Name of the dataset.
            into: Part → share; the shares add up to 1.
            seed: Seed of the random split.
            by: Field (source or level); rows with each of its values are divided in these shares.
            if_exists: `keep` leaves questions in their current parts and assigns only new ones.

        Raises:
            ConfigError: The parts or shares are invalid.
            DataError: The dataset does not exist, or a part would be empty or holds other rows.
        """
        parts = {f"{name}-{part}": share for part, share in shares_of(into).items()}
        for part in parts:
            check_name(part, "a dataset")
        with self._store() as store:
            samples = StoredSamples(store, store.read(datasets.get, name))
            known = {part: store.read(datasets.find, part) for part in parts}
            held = {part: StoredSamples(store, row) for part, row in known.items() if row}
            divided = split(
                samples,
                parts,
                seed=seed,
                stratum=lambda s: _stratum(s, by),
                kept=held if if_exists == "keep" else None,
            )
            origin = f"split of {name} (revision {samples.row.revision}, seed {seed})"
            made = store.add_datasets(divided, origin=origin, replace=if_exists != "fail")
            counts = {
                part: Counter(_stratum(s, by) or "(none)" for s in rows) if by else Counter[str]()
                for part, rows in divided.items()
            }
            return DatasetSplit(
                samples.row,
                seed,
                by,
                [SplitPart(row, parts[row.name], new, counts[row.name]) for row, new in made],
                _usable(store, made[-1][0]),  # by default `test`, the part to evaluate on
            )

    def sample(
        self, name: str, n: int, new: str, *, seed: int = 0, replace: bool = False
    ) -> DatasetSample:
        """Store `n` rows of a dataset as `new`; a larger sample with the same seed includes them.

        Raises:
            ConfigError: The new name cannot be used.
            DataError: The dataset does not exist or has fewer rows, or the new name holds other
                rows.
        """
        check_name(new, "a dataset")
        if new == name:
            raise ConfigError(f"--name {new} is the dataset itself", hint=f"--name {name}-{n}")
        with self._store() as store:
            source = store.read(datasets.get, name)
            drawn = draw(store.each(datasets.hashes, source.id), n, seed=seed)
            origin = f"sample of {name} (revision {source.revision}, seed {seed})"
            rows = Part(StoredSamples(store, source), drawn)
            made, fresh = store.add_dataset(new, rows, origin=origin, replace=replace)
            return DatasetSample(made, source, seed, fresh, _usable(store, made))


def _stage(staged: StagedSamples, file: FileSource, options: UploadOptions, ask: Ask) -> ReadNotes:
    """Read a file; read it again if its answers need a decision by the user."""
    try:
        return stage_file(staged, file, **reading_of(options))
    except SeveralRightError as e:
        if (said := ask(str(e))) is None:
            raise
    staged.clear()  # the rows so far were read without this decision
    return stage_file(staged, file, **reading_of({**options, "select": said}))


def _check(name: str, verify: str | None) -> None:
    """Raise ConfigError for an invalid name or function before reading or storing anything."""
    check_name(name, "a dataset")
    if verify is not None:
        suitability.by_name(verify)


def _usable(store: Store, row: DatasetRow) -> str:
    """Return the name of a verify function that can use every answer, judging from a sample."""
    return suitability.usable(store.read(datasets.golds_at, row.id, suitability.spread(row.n)))


def _stratum(sample: Sample, by: Stratum | None) -> str:
    # Use "" if there is no value: strata are assigned in the order of these texts, so a different
    # text would change the split for a given seed.
    return (getattr(sample, by) if by else None) or ""
