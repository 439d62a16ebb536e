"""A dataset file, as samples and a few sentences on what was found in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grpo_practice.canonical import canon, clean_json, text_sha
from grpo_practice.data.formats import Row, at, rows
from grpo_practice.data.shapes import PLAIN, Columns, Form, find_columns, form_of, gold, to_sample
from grpo_practice.errors import DataError
from grpo_practice.types import Answer, Sample

SHOWN = 5
"""Places named in one note."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What a dataset file holds."""

    samples: list[Sample]
    """In the file's order; at least one."""
    notes: list[str]
    """Sentences for the person who brought the file, the reading of its columns first."""
    skipped: int
    """Bad rows left out; always 0 without `skip_bad`."""


def read_samples(
    path: Path,
    *,
    mapping: Mapping[str, str] | None = None,
    dedup: bool = False,
    delimiter: str | None = None,
    skip_bad: bool = False,
) -> ReadResult:
    """Every row of the file as a sample; either all of them, or an error.

    Args:
        path: A .jsonl, .ndjson, .json or .csv file in UTF-8.
        mapping: Column per role (`question`, `answer`, `source`, `level`, `cluster`, `meta.KEY`),
            where the names in the file do not say it.
        dedup: Keep only the first of several rows with the same question, spaces folded.
        delimiter: Of a CSV file; None guesses it from the first line.
        skip_bad: Leave bad rows out, and say so, instead of refusing the file. A fault of the
            whole file (its encoding, say) still refuses it.

    Raises:
        DataError: The file, or a row of it, cannot be used; names file and line.
        ConfigError: `mapping` or `delimiter` does not fit the file.
    """
    reader = _Reader(path, mapping or {})
    samples: list[Sample] = []
    for row in rows(path, delimiter=delimiter):
        try:
            place, sample = reader.sample(row)
        except DataError as e:
            if not skip_bad:
                raise
            reader.bad.append(e)
            continue
        if not reader.repeats(place, sample) or not dedup:
            samples.append(sample)
    if not samples:
        first = reader.bad[0] if reader.bad else None
        why = f"; the first bad one: {first}" if first else ""
        raise DataError(f"{path}: no row to use{why}", hint=first.hint if first else None)
    return ReadResult(samples, reader.notes(dedup), len(reader.bad))


@dataclass(slots=True)
class _Reader:
    """Reads one file's rows, and remembers what a person should be told."""

    path: Path
    mapping: Mapping[str, str]
    columns: Columns | None = None
    """From the first row in which they can be told."""
    form: Form | None = None
    """From the first answer."""
    first: dict[bytes, tuple[str, Answer]] = field(default_factory=dict)
    """Place and answer of each question, by the hash of its text with spaces folded."""
    read: int = 0
    bad: list[DataError] = field(default_factory=list)
    # Places, for the notes:
    unanswered: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)

    def sample(self, row: Row | DataError) -> tuple[str, Sample]:
        """The row's place and sample, or a DataError that says where."""
        if isinstance(row, DataError):
            raise row
        try:
            return row.place, self._sample(row)
        except DataError as e:
            raise at(self.path, row.place, str(e), hint=e.hint) from e
        except RecursionError as e:
            raise at(self.path, row.place, "the row is nested too deeply") from e

    def _sample(self, row: Row) -> Sample:
        fields = clean_json(row.fields)
        if self.columns is None:
            self.columns = find_columns(list(fields), self.mapping)
        answer = gold(fields, self.columns)
        if self.form is None and isinstance(answer, str):
            self.form = form_of(answer, self.columns.role["answer"])
        sample = to_sample(fields, self.columns, self.form or PLAIN)
        self.read += 1
        if sample.answer is None:
            self.unanswered.append(row.place)
        if fields != row.fields:
            self.repaired.append(row.place)
        return sample

    def repeats(self, place: str, sample: Sample) -> bool:
        """True when an earlier row has the same question; else this one is remembered."""
        key = text_sha(" ".join(sample.question.split()))
        if key not in self.first:
            self.first[key] = (place, sample.answer)
            return False
        earlier, answer = self.first[key]
        self.repeated.append(place)
        if canon(answer) != canon(sample.answer):
            self.conflicts.append(
                f"line {place} asks what line {earlier} asks, with another answer"
            )
        return True

    def notes(self, dedup: bool) -> list[str]:
        """What was found, one sentence each."""
        assert self.columns is not None  # a sample was made
        role, form = self.columns.role, self.form or PLAIN
        notes = [f"the question is in {role['question']!r}"]
        if len(self.unanswered) < self.read:
            notes[0] += f", the answer in {role['answer']!r}, {form.name}"
        left = "left out" if dedup else "kept (--dedup leaves them out)"
        for places, what in (
            (self.unanswered, "without an answer"),
            (self.repaired, "with broken characters, replaced by U+FFFD"),
            (self.repeated, f"with the question of an earlier row, {left}"),
        ):
            if places:
                notes.append(f"{len(places)} of {self.read} rows {what}: line {_some(places)}")
        if self.conflicts:
            notes.append(f"{len(self.conflicts)} of them contradict it: {_some(self.conflicts)}")
        if self.bad:
            notes.append(f"{len(self.bad)} bad rows left out: {_some(list(map(str, self.bad)))}")
        return notes


def _some(found: Sequence[str]) -> str:
    more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more
