"""The question template: which columns form the question, and how they are arranged.

A slot is a placeholder in the template. `{question}` is the question found by the layout,
`{passage}` the text before it, `{options}` the lettered options and `{system}` the system
message; any other name refers to a column.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from string import Formatter
from typing import Any

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.data.cells import from_cell
from grpo_practice.data.choice_options import Options, meant_as_options, options_in, options_of
from grpo_practice.data.columns import has, listed_columns, value_at

SLOTS = ("passage", "options")
"""Slots that are filled from columns, as roles are."""
PASSAGES = frozenset({"passage", "context", "body", "article"})
"""Names, ignoring case, of columns that contain a passage the question is about."""
OPTIONS = frozenset({"options", "choices"})
BLANK = "\n\n"
"""Separator of paragraphs."""

_Part = tuple[str, str | None]
"""Literal text, and the slot after it."""


@dataclass(frozen=True, slots=True)
class QuestionTemplate:
    """A text with slots."""

    text: str
    passage: tuple[str, ...] = ()
    """Columns of the passage."""
    options: tuple[str, ...] = ()
    """The column that contains all options, or one column per option."""

    @property
    def slots(self) -> frozenset[str]:
        """Names of the slots."""
        return frozenset(slot for parts in _paragraphs(self.text) for _, slot in parts if slot)

    @property
    def columns(self) -> frozenset[str]:
        """Columns that the question uses, in addition to the question's own column."""
        own = self.slots - {"question", *SLOTS}
        passage = self.passage if "passage" in self.slots else ()
        return frozenset((*own, *passage, *self.options))

    def options_in(self, fields: Mapping[str, Any]) -> Options | None:
        """Read the row's options; return None if it has no options.

        Raises:
            DataError: The column of the options contains something else.
        """
        if not self.options:
            return None
        if len(self.options) > 1:
            found, value = options_of(fields, self.options), None
            if found is None and any(fields.get(column) for column in self.options):
                raise DataError(
                    f"the options ({', '.join(self.options)}) must be at least two, without gaps"
                )
            return found
        (column,) = self.options
        value = value_at(fields, column)
        if value is None or value in ("", []):
            return None
        if (found := options_in(value)) is None:
            raise DataError(
                f"the options ({column!r}) are not 2 to 26 texts; a list in a cell must be written"
                " as in JSON or Python, not as NumPy does (save it with .tolist())",
                hint=f"--template '{{question}}' --map meta.{column}={column} leaves them out",
            )
        return found

    def fill(
        self, fields: Mapping[str, Any], options: Options | None, question: str, system: str | None
    ) -> str:
        """Build the question of a row; omit paragraphs whose slots are all empty."""
        known = {
            "question": question,
            "system": system,
            "passage": BLANK.join(filter(None, (spelt(fields, c) for c in self.passage))),
            "options": str(options) if options else None,
        }
        made = []
        for paragraph in _paragraphs(self.text):
            values = [slot and (known.get(slot) or spelt(fields, slot)) for _, slot in paragraph]
            if any(values) or not any(slot for _, slot in paragraph):
                pairs = zip((text for text, _ in paragraph), values, strict=True)
                made.append("".join(text + (value or "") for text, value in pairs))
        return BLANK.join(made)


def spelt(fields: Mapping[str, Any], column: str) -> str:
    """Format a row's value as text: one paragraph per string in a list; '' if there is no value."""
    value = value_at(fields, column)
    if isinstance(value, str):
        found = from_cell(value)
        value = found if _texts(found) else value
    if _texts(value):
        return BLANK.join(value)
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


@lru_cache(maxsize=8)  # every row of a file fills the same template
def _paragraphs(template: str) -> tuple[tuple[_Part, ...], ...]:
    return tuple(tuple(part[:2] for part in _parsed(text)) for text in template.split(BLANK))


def _parsed(text: str) -> list[tuple[str, str | None, str | None, str | None]]:
    try:
        return list(Formatter().parse(text))
    except ValueError as e:
        raise ConfigError(
            f"--template: {e}", hint="write a slot as {question}, and a literal brace as {{ or }}"
        ) from e


def slot_columns(
    first: Mapping[str, Any], mapping: Mapping[str, str], *, guessed: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of the passage and of the options, based on the first row.

    The mapping takes precedence; columns that it lacks are recognised by name if `guessed` is true.

    Raises:
        ConfigError: The mapping names a missing column.
        DataError: More than one column may contain the options.
    """
    taken = {column for key, column in mapping.items() if key not in SLOTS}
    free = {c: v for c, v in first.items() if c not in taken} if guessed else {}
    mapped = {slot: _mapped(slot, mapping[slot], first) for slot in SLOTS if slot in mapping}
    passage = mapped.get("passage") or tuple(
        column
        for column, value in free.items()
        if column.strip().casefold() in PASSAGES
        and (value is None or isinstance(value, str) or _texts(value))
    )
    options = mapped.get("options") or _guessed_options(free)
    return passage, tuple(options)


def _mapped(slot: str, named: str, first: Mapping[str, Any]) -> tuple[str, ...]:
    # Try the whole text first, because a column name may contain a comma.
    columns = (named,) if has(first, named) else tuple(part.strip() for part in named.split(","))
    for column in columns:
        if not has(first, column):
            raise ConfigError(
                f"--map {slot}={named}: the first row has no {column!r}",
                hint=f"it has {listed_columns(first)}",
            )
    if slot == "options" and len(columns) > 1 and any("." in c for c in columns):
        raise ConfigError(f"--map options={named}: a list of columns must not contain paths (a.b)")
    return columns


def _guessed_options(free: Mapping[str, Any]) -> Sequence[str]:
    named = [
        column
        for column, value in free.items()
        if column.strip().casefold() in OPTIONS and (value is None or meant_as_options(value))
    ]
    if len(named) > 1:
        both = " and ".join(map(repr, named))
        raise DataError(f"{both} may both be the options", hint="say which: --map options=COLUMN")
    letters = []
    for letter in "ABCDEFGHIJ":
        if not isinstance(free.get(letter), str | int | float):
            break
        letters.append(letter)
    return named or (letters if len(letters) > 1 else ())


def template_of(
    first: Mapping[str, Any],
    columns: tuple[tuple[str, ...], tuple[str, ...]],
    given: str | None,
    *,
    question: str | None,
    system: bool,
) -> QuestionTemplate:
    """Return the given template, or build one with a paragraph for each slot that the file fills.

    Args:
        first: The first row.
        columns: Columns of the passage, and columns of the options.
        given: Text of the template; None builds one.
        question: Question of the first row; None if the template has to produce it.
        system: Whether the system message is part of the question.

    Raises:
        ConfigError: The text refers to something that is neither a slot nor a column.
    """
    passage, options = columns
    if given is not None:
        template = QuestionTemplate(given, passage, options)
        _check(template, first)
        return template
    found = QuestionTemplate("", passage, options).options_in(first) if options else None
    # Some datasets repeat the options or the passage inside the question: do not add them twice.
    there = found is not None and question is not None and found.stand_in(question)
    read = [text for column in passage if (text := spelt(first, column).strip())]
    if read and question is not None and all(text in question for text in read):
        passage = ()
    slots = [
        *(["{system}"] if system else []),
        *(["{passage}"] if passage else []),
        "{question}",
        *(["{options}"] if options and not there else []),
    ]
    return QuestionTemplate(BLANK.join(slots), passage, options)


def _check(template: QuestionTemplate, first: Mapping[str, Any]) -> None:
    for text in template.text.split(BLANK):
        for _, slot, spec, conversion in _parsed(text):
            filled = slot in ("question", "system") or (
                slot in SLOTS and getattr(template, str(slot))
            )
            if slot is not None and (spec or conversion or not (filled or has(first, slot))):
                what = re.sub(r"\s+", " ", slot)
                raise ConfigError(
                    f"--template: {{{what}}} is neither a slot nor a column",
                    hint="slots are {question}, {passage}, {options}, {system};"
                    f" columns are {listed_columns(first)}",
                )
    if not template.slots:
        raise ConfigError("--template has no slot: every row would ask the same question")
