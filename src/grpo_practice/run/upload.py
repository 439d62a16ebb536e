"""Rows of datasets: uploaded from a file, Python or a recorded run, and exported as JSON lines."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from grpo_practice.core.calls import Message, Reply
from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.foreign_text import respell
from grpo_practice.core.text import count
from grpo_practice.core.types import Sample
from grpo_practice.data.answers import PLAIN
from grpo_practice.data.golds import GoldMapping, SeveralRightError
from grpo_practice.data.read import Reading, ReadNotes, reading_of, stage_rows
from grpo_practice.data.row_layout import find_layout, to_sample
from grpo_practice.data.staged_samples import StagedSamples
from grpo_practice.data.text_lines import Row
from grpo_practice.run.served_agent import ServedAgent
from grpo_practice.store import Store, branches, datasets, recorded_runs
from grpo_practice.store.queries import runs
from grpo_practice.store.recorded_runs import SYSTEM, Conversation
from grpo_practice.store.records import DatasetRow
from grpo_practice.verify import suitability

NAMED = 5
"""Maximum number of rows named in a note."""
BEGINNING = 40
"""Number of identical initial characters that suggest a family of questions; no two questions of
GSM8K share so many.
"""
FAMILIES, SHARE = 5, 0.2
"""Minimum number of shared beginnings, and minimum share of rows that have one, for a note about
families.
"""
IfExists = Literal["fail", "replace", "append"]
"""Action if the name holds other rows: raise an error, store a new revision, or add the rows."""


class UploadOptions(Reading, total=False):
    """Options for reading rows from a source; each may be omitted.

    With `skip_bad`, rows whose answer the verify function cannot use are left out, too.
    """

    format: str | None
    """Format of a file; None derives it from the file's suffix."""
    delimiter: str | None
    """Delimiter of a CSV file; None detects it."""
    columns: Sequence[str]
    """Column names for a CSV file whose first line is already a row."""
    rows: str | None
    """Key of the list that holds the rows, if a JSON file is one object."""
    no_answers: bool
    """Whether answers are optional because a judge will score."""


@dataclass(frozen=True, slots=True)
class Upload:
    """Parameters of an upload."""

    name: str
    origin: str
    if_exists: IfExists
    dedup: bool
    verify: str | None


def stage_python_rows(
    staged: StagedSamples, source: Iterable[Any], options: UploadOptions
) -> ReadNotes:
    """Read samples or other rows one by one, because they may not all fit into memory."""
    rest = iter(source)
    first = next(rest, None)
    if not isinstance(first, Sample):
        rows = () if first is None else chain([first], rest)
        fields = (Row(f"row {n}", _fields(n, row)) for n, row in enumerate(rows, 1))
        return stage_rows(staged, fields, Path("rows"), **reading_of(options))
    for sample in chain([first], rest):
        if not isinstance(sample, Sample):
            _fields(1, first)  # raises DataError, because samples must not be mixed with rows
        staged.add(sample)
    left = staged.leave_repeats_out() if options.get("dedup") else 0
    return ReadNotes([f"{left} with the question of an earlier one left out"] if left else [], 0)


def _fields(n: int, row: object) -> dict[str, Any]:
    match row:
        case Mapping():
            return dict(row)
        case (str() as question, answer):
            return {"question": question, "answer": answer}
        case _:
            raise DataError(
                f"row {n}: {type(row).__name__} is not a row",
                hint="pass only Samples, or mappings and (question, answer) pairs",
            )


def leave_unusable_out(staged: StagedSamples, read: ReadNotes, verify: str | None) -> ReadNotes:
    """Remove the rows that the function cannot use, with a note; raise DataError if none remain."""
    verify = verify or suitability.best_suited(staged)
    unusable = suitability.unusable_rows(staged, verify)
    if not unusable:
        return read
    if len(unusable) == len(staged):
        raise DataError(
            f"verify {verify} cannot use any answer: {next(iter(unusable.values()))}",
            hint="choose another verify function with --verify NAME",
        )
    places = staged.leave_out(unusable)
    named = [
        f"row {place.removeprefix('row ')}: {why}"
        for place, why in zip(places, unusable.values(), strict=True)
    ]
    more = f"; and {len(named) - NAMED} more" if len(named) > NAMED else ""
    note = f"{count(len(named), 'row')} left out: {'; '.join(named[:NAMED])}{more}"
    return ReadNotes([*read.notes, note], read.skipped + len(named))


def families_notes(staged: StagedSamples, column: str | None) -> list[str]:
    """Return notes if questions lack a cluster, whose column is given, or seem to form families."""
    if column is not None and (empty := staged.unclustered()):
        return [
            f"{empty:,} of {len(staged):,} rows have nothing in {column!r}, and so no cluster:"
            " a split may put related questions into different parts"
        ]
    alike, beginnings = staged.alike(BEGINNING)
    if beginnings < FAMILIES or alike < SHARE * len(staged):
        return []
    return [
        f"{alike:,} of {len(staged):,} questions begin like others ({beginnings:,} beginnings): if"
        " these belong together, name their family in a column `cluster` (--map cluster=COLUMN),"
        " since a verdict treats the rest as independent"
    ]


def suited(store: Store, row: DatasetRow, verify: str | None) -> tuple[str, dict[int, str], str]:
    """Return a verify function, the answers it cannot use, and a suitable function."""
    verify = verify or suitability.best_suited(store.each(datasets.golds, row.id))
    # Each pass reads the answers again, because those of a large dataset do not fit into memory.
    unusable = suitability.unusable_rows(store.each(datasets.golds, row.id), verify)
    if suitability.few(len(unusable), row.n):
        return verify, unusable, verify
    refused = [n - 1 for n in unusable]
    golds = store.each(datasets.golds, row.id)
    if not all(suitability.has_gold(gold) for n, gold in enumerate(golds, 1) if n in unusable):
        return verify, unusable, "judge"
    tried = [refused[n] for n in suitability.spread(len(refused))]
    return (
        verify,
        unusable,
        suitability.usable(store.read(datasets.golds_at, row.id, tried), verify),
    )


def stage_run(staged: StagedSamples, store: Store, run: str, *, dedup: bool) -> ReadNotes:
    """Add one sample for each conversation of a recorded run, in the order they began.

    The question is the text of the first user message. There is no answer, because the right answer
    is unknown. The sample's meta contains the whole conversation and its last reply. With `dedup`,
    only the first of several equal questions is kept, ignoring differences in spaces.

    Raises:
        ConfigError: The run is not a recorded run.
        DataError: The run contains no question.
    """
    row = store.read(runs.named, run)
    run = row.name
    if row.kind != "recorded" or row.head_branch is None:
        raise ConfigError(
            f"{run} is a run of kind {row.kind}, so its questions are already a dataset",
            hint="--from-run takes a run of `serve --record`; `data list` lists datasets",
        )
    branch = store.read(branches.load, row.head_branch)
    # Without a model, since the agent is only needed to take its own prompt out of the messages.
    agent = ServedAgent(run, "", branch.prompts[SYSTEM])
    silent = 0
    for talk in store.each(recorded_runs.conversations, branch.id):
        sample = _sample(run, talk, agent)
        if sample is None:
            silent += 1
        else:
            staged.add(sample)
    if not staged:
        raise DataError(
            f"{run} contains no question: no answered request has text from the user",
            hint=f"grpo-practice runs show {quote(run)}",
        )
    repeated = staged.leave_repeats_out() if dedup else sum(1 for _ in staged.repeats())
    return ReadNotes(_notes(len(staged), repeated, silent, dedup=dedup), silent)


def _notes(n: int, repeated: int, silent: int, *, dedup: bool) -> list[str]:
    notes = [
        f"{n} of its conversations became questions: the first user message is the question, and"
        " meta has the rest",
        "no answers: the agent's own last reply, in meta.response, was never scored",
    ]
    if repeated:
        left = "left out" if dedup else "kept (--dedup leaves them out)"
        notes.append(f"{repeated} with the question of an earlier one, {left}")
    if silent:
        notes.append(f"{silent} without text from the user left out")
    return notes


def _sample(run: str, talk: Conversation, agent: ServedAgent) -> Sample | None:
    """Return the conversation as a sample; None if it contains no text from the user."""
    messages = agent.theirs(talk.messages)
    texts = (_text(m) for m in messages if m.get("role") == "user")
    question = next((text for text in texts if text.strip()), None)
    if question is None:
        return None
    meta: dict[str, Any] = {"conversation": messages, "response": _text(messages[-1])}
    return Sample(question, source=run, meta=meta)


def _text(message: Message) -> str:
    return Reply(message).content


class DatasetLines:
    """The lines of a dataset, read one by one, with observations about the rows so far.

    Attributes:
        changed: Number of rows that an upload would read as a different sample.
        answered: Whether any row has an answer.
        several: Whether any row names several options, any one of which is right.
    """

    def __init__(self, store: Store, dataset: DatasetRow) -> None:
        self._store, self._dataset = store, dataset
        self.changed = 0
        self.answered = self.several = False

    def __iter__(self) -> Iterator[str]:
        for sample in self._store.each(datasets.each, self._dataset.id):
            self.answered = self.answered or sample.answer is not None
            self.several = self.several or _names_several(sample)
            row = _row(sample)
            self.changed += not _is_read_back(row, sample)
            # Escape C1 controls and bidi marks, which JSON allows, because the reader may be a
            # terminal.
            text = json.dumps(row, ensure_ascii=False)
            yield respell(text, lambda char: json.dumps(char)[1:-1]) + "\n"


def _row(sample: Sample) -> dict[str, object]:
    """Return the row with the column names that an upload expects."""
    more = {
        "source": sample.source,
        "level": sample.level,
        "cluster": sample.cluster,
        "meta": dict(sample.meta),
    }
    given = {name: value for name, value in more.items() if value}
    return {"question": sample.question, "answer": sample.answer, **given}


def _names_several(sample: Sample) -> bool:
    """Return whether an upload would ask the user how to interpret several right options."""
    try:
        GoldMapping().read(sample.answer, None)
    except SeveralRightError:
        return True
    return False


def _is_read_back(row: dict[str, object], sample: Sample) -> bool:
    """Return whether an upload reads the row as the same sample; samples from Python may differ."""
    try:
        layout = find_layout(row, {})
        return to_sample(row, layout, layout.parts(row), PLAIN).sha == sample.sha
    except DataError:
        return False
