"""A dataset file, as samples and a few sentences on what was found in it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from grpo_practice.canonical import canon, clean_json, text_sha
from grpo_practice.data.answers import PLAIN, Form, form_of
from grpo_practice.data.formats import FileSource, Row, format_of, rows
from grpo_practice.data.parquet import left_out
from grpo_practice.data.row_layout import Layout, find_layout, to_sample
from grpo_practice.data.text_lines import at, shown
from grpo_practice.errors import DataError
from grpo_practice.text import count
from grpo_practice.types import Answer, Sample

SHOWN = 5
"""Places named in one note."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    """Content of a dataset file."""

    samples: list[Sample]
    """At least one, in the file's order."""
    notes: list[str]
    """Sentences for the person who brought the file, the reading of its columns first."""
    skipped: int
    """Bad rows left out; always 0 without `skip_bad`."""


def read_samples(
    source: FileSource | Path,
    *,
    mapping: Mapping[str, str] | None = None,
    shape: str | None = None,
    dedup: bool = False,
    skip_bad: bool = False,
) -> ReadResult:
    """Read every row of the file as a sample; either all of them, or an error.

    Args:
        source: A file in one of the known formats, text in UTF-8; `FileSource` says what
            its name does not.
        mapping: Column per role (`question`, `answer`, `source`, `level`, `cluster`, `meta.KEY`),
            where the names in the file do not say it.
        shape: Shape of the rows, one of `SHAPES`; None goes by the columns of the first row.
        dedup: Keep only the first of several rows with the same question, spaces folded.
        skip_bad: Leave bad rows out, and say so, instead of refusing the file. A fault of the
            whole file (its encoding, say) still refuses it.

    Raises:
        DataError: The file, or a row of it, cannot be used; names file and line.
        ConfigError: `mapping`, `shape` or the delimiter does not fit the file.
    """
    source = source if isinstance(source, FileSource) else FileSource(source)
    found = rows(source)
    result = read_rows(
        found, source.path, mapping=mapping, shape=shape, dedup=dedup, skip_bad=skip_bad
    )
    if format_of(source) == "parquet" and (columns := left_out(source.path)):
        result.notes.append(f"columns left out: {_some(columns)}")
    return result


def read_rows(
    found: Iterable[Row | DataError],
    path: Path,
    *,
    mapping: Mapping[str, str] | None = None,
    shape: str | None = None,
    dedup: bool = False,
    skip_bad: bool = False,
) -> ReadResult:
    """Read rows that are not simply those of one file; errors name `path`. See `read_samples`."""
    reader = _RowReader(path, mapping or {}, shape)
    samples: list[Sample] = []
    for row in found:
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
        hint = first.hint if first else None
        raise DataError(f"{shown(path)}: no row to use{why}", hint=hint)
    return ReadResult(samples, reader.notes(dedup), len(reader.bad))


@dataclass(slots=True)
class _RowReader:
    """Reads one file's rows, and remembers what a person should be told."""

    path: Path
    mapping: Mapping[str, str]
    shape: str | None
    layout: Layout | None = None
    """From the first row in which it can be told."""
    form: Form | None = None
    """From the first answer."""
    first: dict[bytes, tuple[str, Answer]] = field(default_factory=dict)
    """Place and answer of each question, by the hash of its text with spaces folded."""
    read: int = 0
    bad: list[DataError] = field(default_factory=list)
    # Places, for the notes:
    unanswered: list[str] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    several: list[str] = field(default_factory=list)
    systems: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)

    def sample(self, row: Row | DataError) -> tuple[str, Sample]:
        """Return the row's place and sample, or raise a DataError that says where."""
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
        if self.layout is None:
            self.layout = find_layout(fields, self.mapping, self.shape)
        parts = self.layout.parts(fields)
        if self.form is None and isinstance(parts.answer, str) and parts.answer.strip():
            self.form = form_of(parts.answer, self.layout.answer)
        sample = to_sample(fields, self.layout, parts, self.form or PLAIN)
        self.read += 1
        if sample.answer is None:
            self.unanswered.append(row.place)
        if fields != row.fields:
            self.repaired.append(row.place)
        if parts.question.several:
            self.several.append(row.place)
        if parts.question.system:
            self.systems.append(row.place)
        return sample

    def repeats(self, place: str, sample: Sample) -> bool:
        """Return whether an earlier row has the same question; remember this one if none has."""
        key = _key(sample)
        if key not in self.first:
            self.first[key] = (place, sample.answer)
            return False
        earlier, answer = self.first[key]
        self.repeated.append(place)
        if canon(answer) != canon(sample.answer):
            self.conflicts.append(
                f"{_places([place])} asks what {_places([earlier])} asks, with another answer"
            )
        return True

    def notes(self, dedup: bool) -> list[str]:
        """Say what was found, one sentence each."""
        notes = [self._layout()]
        left = "left out" if dedup else "kept (--dedup leaves them out)"
        for places, what in (
            (self.several, "whose question has several turns, written as 'User: …' and so on"),
            (self.systems, "with a system message, kept in meta and shown to no agent"),
            (self.unanswered, "without an answer"),
            (self.repaired, "with broken characters, replaced by U+FFFD"),
            (self.repeated, f"with the question of an earlier row, {left}"),
        ):
            if places:
                notes.append(
                    f"{len(places)} of {count(self.read, 'row')} {what}: {_places(places)}"
                )
        if self.conflicts:
            verb = "contradicts" if len(self.conflicts) == 1 else "contradict"
            notes.append(f"{len(self.conflicts)} of them {verb} it: {_some(self.conflicts)}")
        if self.bad:
            bad = count(len(self.bad), "bad row")
            notes.append(f"{bad} left out: {_some(list(map(str, self.bad)))}")
        return notes

    def _layout(self) -> str:
        """Say where the question and the answer are."""
        assert self.layout is not None  # a sample was made
        role, form, shape = self.layout.columns.role, self.form or PLAIN, self.layout.shape
        if shape is not None:
            but = f", but the answer is in {role['answer']!r}" if "answer" in role else ""
            how = f"; the answer's value stands {form.name}" if form is not PLAIN else ""
            return f"read as {shape.title}: {shape.says}{but}{how}"
        note = f"the question is in {role['question']!r}"
        if len(self.unanswered) < self.read:
            note += f", the answer in {role['answer']!r}, {form.name}"
        return note


def joined(
    held: Sequence[Sample], found: Sequence[Sample], *, dedup: bool
) -> tuple[list[Sample], list[str]]:
    """Join the rows that are held and those found, with a note on questions that are in both.

    Held rows come first; `dedup` leaves out what asks the same, spaces folded.
    """
    answers = {_key(s): s.answer for s in held}
    again = [s for s in found if _key(s) in answers]
    if not again:
        return [*held, *found], []
    left = "left out" if dedup else "added again (--dedup leaves them out)"
    note = (
        f"{len(again)} of {count(len(found), 'row')} with a question that is held already, {left}"
    )
    if other := sum(canon(s.answer) != canon(answers[_key(s)]) for s in again):
        note += f"; {other} with another answer"
    new = [s for s in found if not dedup or _key(s) not in answers]
    return [*held, *new], [note]


def _key(sample: Sample) -> bytes:
    """Hash the question; the same for questions that differ in spaces alone."""
    return text_sha(" ".join(sample.question.split()))


def _places(found: Sequence[str]) -> str:
    return _some(found) if found[0].startswith("row ") else f"line {_some(found)}"


def _some(found: Sequence[str]) -> str:
    more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more
