"""Read a dataset file into samples, and report what was found in it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict, Unpack, cast

from grpo_practice.core.errors import DataError
from grpo_practice.core.hashing import clean_json
from grpo_practice.core.text import count
from grpo_practice.core.types import Sample
from grpo_practice.data.answers import PLAIN, Form, form_of
from grpo_practice.data.columns import listed_columns, names_for
from grpo_practice.data.formats import FileSource, format_of, rows
from grpo_practice.data.golds import GoldForm, GoldMapping, Select
from grpo_practice.data.parquet import left_out
from grpo_practice.data.row_layout import Layout, find_layout, to_sample
from grpo_practice.data.staged_samples import StagedSamples
from grpo_practice.data.text_lines import Row, at, shown

SHOWN = 5
"""Maximum number of places listed in one note."""
MOST_BESIDE = 1_000
"""Maximum number of unused columns to remember; each row of JSON Lines may have different keys."""


class Reading(TypedDict, total=False):
    """How to read rows as samples; every key is optional."""

    mapping: Mapping[str, str] | None
    """Column for each role (`question`, `answer`, `source`, `level`, `cluster`, `meta.KEY`) whose
    column has no recognised name; comma-separated columns for each slot (`passage`, `options`).
    """
    template: str | None
    """Text of a question with slots in braces; None means passage, question and options."""
    gold: GoldForm | None
    """Form of the answers among options; None infers it from the answers."""
    select: Select | None
    """Meaning of several correct options; None rejects a file that has such answers."""
    shape: str | None
    """Format of the rows, one of `SHAPES`; None infers it from the columns of the first row."""
    dedup: bool
    """Whether to keep only the first of rows whose questions differ at most in whitespace."""
    skip_bad: bool
    """Whether to skip and report bad rows instead of rejecting the file. Faults of the whole file,
    such as its encoding, still cause an error.
    """


def reading_of(options: Mapping[str, object]) -> Reading:
    """Return the subset of the options that controls how rows are read."""
    names = Reading.__annotations__
    return cast("Reading", {name: value for name, value in options.items() if name in names})


@dataclass(frozen=True, slots=True)
class ReadNotes:
    """Findings about a dataset file."""

    notes: list[str]
    """Notes for the person who supplied the file, first the interpretation of its columns."""
    skipped: int
    """Number of bad rows that were skipped; always 0 without `skip_bad`."""


@dataclass(frozen=True, slots=True)
class ReadResult(ReadNotes):
    """Content of a dataset file, in memory."""

    samples: list[Sample]
    """Samples in the file's order; at least one."""


def read_samples(source: FileSource | Path, **reading: Unpack[Reading]) -> ReadResult:
    """Read every row of the file into memory as a sample. See `stage_file`."""
    with StagedSamples() as staged:
        found = stage_file(staged, source, **reading)
        return ReadResult(found.notes, found.skipped, list(staged))


def read_rows(
    found: Iterable[Row | DataError], path: Path, **reading: Unpack[Reading]
) -> ReadResult:
    """Read rows from any source, not just one file, into memory. See `stage_rows`."""
    with StagedSamples() as staged:
        read = stage_rows(staged, found, path, **reading)
        return ReadResult(read.notes, read.skipped, list(staged))


def stage_file(
    staged: StagedSamples, source: FileSource | Path, **reading: Unpack[Reading]
) -> ReadNotes:
    """Read every row of the file as a sample into `staged`, or raise an error.

    Samples keep the file's order; there is at least one. The file must have a known format; text
    must be UTF-8. Use `FileSource` to set anything that the file name does not show.

    Raises:
        DataError: The file or a row is unusable; the message names the file and the line.
        ConfigError: `mapping`, `shape` or the delimiter does not fit the file.
    """
    source = source if isinstance(source, FileSource) else FileSource(source)
    result = stage_rows(staged, rows(source), source.path, **reading)
    if format_of(source) == "parquet" and (columns := left_out(source.path)):
        result.notes.append(f"columns left out: {_some(columns)}")
    return result


def stage_rows(
    staged: StagedSamples, found: Iterable[Row | DataError], path: Path, **reading: Unpack[Reading]
) -> ReadNotes:
    """Read rows from any source into `staged`; errors mention `path`. See `stage_file`."""
    dedup, skip_bad = reading.get("dedup", False), reading.get("skip_bad", False)
    golds = GoldMapping(reading.get("gold"), reading.get("select"))
    shape, template = reading.get("shape"), reading.get("template")
    reader = _RowReader(path, reading.get("mapping") or {}, shape, template, golds)
    for row in found:
        try:
            place, sample = reader.sample(row)
        except DataError as e:
            if not skip_bad:
                raise
            reader.first_bad = reader.first_bad or e
            reader.bad.add(str(e))
            continue
        staged.add(sample, place)
    if not reader.read:
        first = reader.first_bad
        why = f"; the first bad one: {first}" if first else ""
        hint = first.hint if first else None
        raise DataError(f"{shown(path)} has no usable row{why}", hint=hint)
    for repeat in staged.repeats():
        reader.repeated.add(repeat.place)
        if repeat.contradicts:
            place, earlier = (_place([place]) for place in (repeat.place, repeat.earlier))
            reader.conflicts.add(f"{place} repeats the question of {earlier} with another answer")
    if dedup:
        staged.leave_repeats_out()
    return ReadNotes(reader.notes(dedup), reader.bad.n)


@dataclass(slots=True)
class _Counted:
    """Counter of texts for one note; only the first few texts are stored."""

    n: int = 0
    first: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        self.n += 1
        if self.n <= SHOWN:
            self.first.append(text)


@dataclass(slots=True)
class _RowReader:
    """Reads the rows of one file, and collects findings to report to the user."""

    path: Path
    mapping: Mapping[str, str]
    shape: str | None
    template: str | None
    golds: GoldMapping
    layout: Layout | None = None
    """Layout, taken from the first row that determines it."""
    form: Form | None = None
    """Form of the answers, taken from the first answer."""
    read: int = 0
    within: str | None = None
    """Key of the list that contains the rows."""
    names: str | None = None
    """Suggested `--columns` option, if the header line looks like a row."""
    filled: bool = False
    """Whether the template added text to any question."""
    beside: dict[str, None] = field(default_factory=dict)
    """Unused columns, in order of appearance."""
    first_bad: DataError | None = None
    bad: _Counted = field(default_factory=_Counted)
    # Places to mention in the notes:
    unanswered: _Counted = field(default_factory=_Counted)
    lists: _Counted = field(default_factory=_Counted)
    repaired: _Counted = field(default_factory=_Counted)
    several: _Counted = field(default_factory=_Counted)
    systems: _Counted = field(default_factory=_Counted)
    repeated: _Counted = field(default_factory=_Counted)
    conflicts: _Counted = field(default_factory=_Counted)

    def sample(self, row: Row | DataError) -> tuple[str, Sample]:
        """Return the row's place and sample; errors include the place.

        Raises:
            DataError: The row is unusable.
        """
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
            self.layout = find_layout(fields, self.mapping, self.shape, self.template)
            self.within = row.within
            asked = self.layout.columns.role.get("question", "")
            if asked in fields:
                self.names = names_for(fields, [asked])
        parts = self.layout.parts(fields)
        if self.form is None and isinstance(parts.answer, str) and parts.answer.strip():
            self.form = form_of(parts.answer, self.layout.answer)
        sample = to_sample(fields, self.layout, parts, self.form or PLAIN, self.golds)
        self.read += 1
        self.filled |= parts.filled
        if len(self.beside) < MOST_BESIDE:
            self.beside.update(dict.fromkeys(c for c in fields if c not in parts.used))
        if sample.answer is None:
            self.unanswered.add(row.place)
        if isinstance(sample.answer, list) and self.golds.select is None:
            self.lists.add(row.place)
        if fields != row.fields:
            self.repaired.add(row.place)
        if parts.question.several:
            self.several.add(row.place)
        if parts.question.system:
            self.systems.add(row.place)
        return sample

    def notes(self, dedup: bool) -> list[str]:
        """Return the findings, one sentence each."""
        # The layout comes first: `download` drops the first note for datasets of the catalogue.
        notes = [self._layout(), *self._template()]
        if beside := [column for column in self.beside if column != "meta"]:
            notes.append(f"kept in meta, not shown to agents: {listed_columns(beside)}")
        if self.within is not None:
            notes.append(f"the rows are in {self.within!r} (for another list: --rows KEY)")
        if self.names is not None:
            names = self.names
            notes.append(f"the first line was read as column names; if it is a row: {names}")
        left = "left out" if dedup else "kept (--dedup leaves them out)"
        for places, what in (
            (self.several, "whose question has several turns, written as 'User: …' and so on"),
            (self.systems, "with a system message, kept in meta and not shown to agents"),
            (self.unanswered, "without an answer"),
            (self.lists, "with a list of answers, any of which is right"),
            (self.repaired, "with broken characters, replaced by U+FFFD"),
            (self.repeated, f"with the question of an earlier row, {left}"),
        ):
            if places.n:
                where = _place(places.first, places.n)
                notes.append(f"{places.n} of {count(self.read, 'row')} {what}: {where}")
        if n := self.conflicts.n:
            verb = "has" if n == 1 else "have"
            notes.append(f"{n} of them {verb} a different answer: {_some(self.conflicts.first, n)}")
        if n := self.bad.n:
            notes.append(f"{count(n, 'bad row')} left out: {_some(self.bad.first, n)}")
        return notes

    def _template(self) -> list[str]:
        """Describe how the question is laid out, and how multiple-choice answers were read."""
        assert self.layout is not None  # a sample was made
        template, notes = self.layout.template, list[str]()
        if self.filled:
            shown_as = template.text.replace("\n", "\\n")
            slots = [("passage", template.passage), ("options", template.options)]
            filled = [
                f"{slot} is {listed_columns(columns)}"
                for slot, columns in slots
                if columns and slot in template.slots
            ]
            where = f", where {' and '.join(filled)}" if filled else ""
            notes.append(f"the agent is asked '{shown_as}'{where} (to change it: --template)")
        said = self.golds.note(self.layout.answer)
        return [*notes, said] if said else notes

    def _layout(self) -> str:
        """Describe which columns contain the question and the answer."""
        assert self.layout is not None  # a sample was made
        role, form, shape = self.layout.columns.role, self.form or PLAIN, self.layout.shape
        if shape is not None:
            but = f", but the answer is in {role['answer']!r}" if "answer" in role else ""
            how = f"; the answer's value is {form.name}" if form is not PLAIN else ""
            return f"read as {shape.title}: {shape.says}{but}{how}"
        where = f"in {role['question']!r}" if "question" in role else "made by the template"
        note = f"the question is {where}"
        if self.unanswered.n < self.read:
            note += f", the answer in {role['answer']!r} ({form.name})"
        return note


def join_held(staged: StagedSamples, *, dedup: bool) -> list[str]:
    """Return a note on samples whose question is already stored; `dedup` removes these samples."""
    n = len(staged)
    again, contradicting = staged.held_again()
    if not again:
        return []
    left = "left out" if dedup else "added again (--dedup leaves them out)"
    note = f"{again} of {count(n, 'row')} with a question that is already stored, {left}"
    if contradicting:
        note += f"; {contradicting} with another answer"
    if dedup:
        staged.leave_held_out()
    return [note]


def _place(found: Sequence[str], n: int | None = None) -> str:
    some = _some(found, n)
    return some if found[0].startswith("row ") else f"line {some}"


def _some(found: Sequence[str], n: int | None = None) -> str:
    """Join the first few of `n` texts; `found` contains at least those."""
    n = len(found) if n is None else n
    more = f", and {n - SHOWN} more" if n > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more
