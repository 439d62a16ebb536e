"""Layout of a file's rows, by a known format or by columns, and conversion of rows to samples."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.types import Sample
from grpo_practice.data.answers import Form, gold, is_scalar, read_as
from grpo_practice.data.cells import first_repeated
from grpo_practice.data.chat_format import ChatQuestion, is_conversation
from grpo_practice.data.columns import Columns, find_columns, guess, has, value_at
from grpo_practice.data.golds import GoldMapping
from grpo_practice.data.published_shapes import SHAPES, Parts, Shape, text_or_turns
from grpo_practice.data.question_template import SLOTS, QuestionTemplate, slot_columns, template_of

COLUMNS = "columns"
"""Name of the layout in which one column contains the question."""
BARE = QuestionTemplate("{question}")
"""Template of a question that is the unchanged text of one column."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of the rows of one file."""

    columns: Columns
    """Columns of the roles that the shape does not cover."""
    shape: Shape | None = None
    """Format of the rows; None if the columns alone determine the layout."""
    template: QuestionTemplate = BARE
    """Template of the question's text."""
    named: frozenset[str] = field(init=False)
    """Columns that are assigned to a role, a slot of the question, or a key of meta."""

    def __post_init__(self) -> None:
        columns = (*self.columns.role.values(), *self.columns.meta.values(), *self.template.columns)
        object.__setattr__(self, "named", frozenset(columns))

    @property
    def answer(self) -> str:
        """Name of the answer's column."""
        return self.columns.role.get("answer", "the answer")

    def parts(self, fields: Mapping[str, Any]) -> Parts:
        """Split a row into its parts, and lay out its question.

        Raises:
            DataError: The row has no question, or a part of it is not text.
        """
        parts = self._parts(fields)
        if self.template is BARE:
            return parts
        options, asked = self.template.options_in(fields), parts.question
        text = self.template.fill(fields, options, asked.question, asked.system)
        if not text.strip():
            raise DataError("the question is empty: nothing in the row fills the template")
        system = None if "system" in self.template.slots else asked.system
        question = replace(asked, question=text, system=system)
        return replace(parts, question=question, options=options, filled=text != asked.question)

    def _parts(self, fields: Mapping[str, Any]) -> Parts:
        if self.shape is None:
            value = value_at(fields, self.columns.role.get("answer", ""))
            if (column := self.columns.role.get("question")) is None:
                return Parts(ChatQuestion("", None, None, several=False), value, self.named)
            found = _question_at(fields, column)
            extra = {} if found.answer is None else {"response": found.answer}
            return Parts(found, value, self.named, extra)
        parts = self.shape.read(fields)
        if "answer" not in self.columns.role:
            return Parts(parts.question, parts.answer, parts.used | self.named, parts.meta)
        meta = {k: v for k, v in {"response": parts.answer}.items() if v is not None}
        answer = value_at(fields, self.columns.role["answer"])
        return Parts(parts.question, answer, parts.used | self.named, {**parts.meta, **meta})


def _question_at(fields: Mapping[str, Any], column: str) -> ChatQuestion:
    value = value_at(fields, column)
    if isinstance(value, list) and is_conversation(value):
        return text_or_turns(value, column)
    if not isinstance(value, str):
        kind = "missing" if value is None else f"of type {type(value).__name__}, not text"
        way = (
            f"to use one text of it: --map question={column}.0"
            if value and isinstance(value, list)
            else None
        )
        raise DataError(f"the question ({column!r}) is {kind}", hint=way)
    if not value.strip():
        raise DataError(f"the question ({column!r}) is empty")
    return ChatQuestion(value, None, None, several=False)


def find_layout(
    first: Mapping[str, Any],
    mapping: Mapping[str, str],
    name: str | None = None,
    template: str | None = None,
) -> Layout:
    """Determine the layout of a file from its first row.

    Shapes are not tried if the mapping names the question or the template lacks `{question}`.

    Args:
        first: The first row.
        mapping: Columns by role or slot, as chosen by the user.
        name: Shape that the user chose.
        template: Text of the question template that the user chose.

    Raises:
        ConfigError: The shape is unknown, or the mapping or the template does not fit.
        DataError: The layout is ambiguous; the hint explains how to choose.
    """
    if name is not None and name not in (COLUMNS, *SHAPES):
        raise ConfigError(
            f"--shape {name} is not one of {', '.join((*SHAPES, COLUMNS))}",
            hint="chat also reads ShareGPT's conversations",
        )
    if name is not None and name in SHAPES and "question" in mapping:
        raise ConfigError(
            f"--shape {name} and --map question both choose the question",
            hint="remove one of them",
        )
    roles = {key: column for key, column in mapping.items() if key not in SLOTS}
    makes = template is not None and "question" not in QuestionTemplate(template).slots
    shape = None if name is None else SHAPES.get(name)
    if name is None and "question" not in mapping and not makes:
        shape = _shape_of(first, roles)
    # Training formats define the whole question; tables and evals rows may have more columns.
    guessed = shape is None or shape is SHAPES["evals"]
    slots = slot_columns(first, mapping, guessed=guessed)
    pointed = {part for c in roles.values() for part in (c, c.partition(".")[0])}
    rest = {c: v for c, v in first.items() if c not in {*slots[0], *slots[1]} or c in pointed}
    if shape is None:
        layout = Layout(find_columns(rest, roles, given=("question",) if makes else ()))
        question = None if makes else value_at(first, layout.columns.role["question"])
    else:
        layout = _of_shape(rest, roles, shape, shape.read(first))
        question = shape.read(first).question.question
    asked = question if isinstance(question, str) else None
    system = shape is SHAPES["evals"]
    made = template_of(first, slots, template, question=asked, system=system)
    plain = made == BARE
    answer = layout.columns.role.get("answer")
    if answer is not None:
        _check_hidden(answer, made)
    return layout if plain else replace(layout, template=made)


def _check_hidden(answer: str, template: QuestionTemplate) -> None:
    """Raise ConfigError if the question would include the answer, or an object that holds it."""
    passage = template.passage if "passage" in template.slots else ()
    for column in (*sorted(template.slots), *passage):
        if column == answer:
            raise ConfigError(f"--template: {{{answer}}} is the answer, which would be given away")
        if answer.startswith(f"{column}."):
            raise ConfigError(
                f"{column!r} holds the answer ({answer!r}), which would be given away",
                hint=f"name the part of it to ask, as {{{column}.NAME}} in a --template",
            )


def _of_shape(
    first: Mapping[str, Any], mapping: Mapping[str, str], shape: Shape, parts: Parts
) -> Layout:
    given = {"question"}
    rest = [c for c in first if c not in parts.used and c not in mapping.values()]
    if "answer" not in mapping and (parts.answer is not None or guess("answer", rest) is None):
        given.add("answer")
    # Offer no columns that the shape consumes, unless the user's mapping refers to them.
    tops = set(mapping.values()) | {c.split(".")[0] for c in mapping.values()}
    left = {c: v for c, v in first.items() if c not in parts.used or c in tops}
    return Layout(find_columns(left, mapping, given=given), shape)


def _shape_of(first: Mapping[str, Any], mapping: Mapping[str, str]) -> Shape | None:
    """Return the only shape that matches the first row; None if no shape matches."""
    fitting = [name for name, shape in SHAPES.items() if shape.fits(first)]
    if not fitting:
        return None
    if len(fitting) > 1:
        raise _ambiguous(" and ".join(SHAPES[name].title for name in fitting), fitting)
    name, shape = fitting[0], SHAPES[fitting[0]]
    parts = shape.read(first)
    rest = [c for c in first if c not in parts.used and c not in mapping.values()]
    question, answer = guess("question", rest), guess("answer", rest)
    if question is not None:
        raise _ambiguous(f"{shape.title} and a table with the question in {question!r}", fitting)
    if answer is not None and parts.answer is not None and "answer" not in mapping:
        raise DataError(
            f"the answer may come from {shape.title} or from {answer!r}",
            hint=f"choose one with --shape {name} or --map answer={answer}",
        )
    return shape


def _ambiguous(what: str, fitting: list[str]) -> DataError:
    options = " or ".join(f"--shape {name}" for name in (*fitting, COLUMNS))
    return DataError(f"the columns fit {what}", hint=f"choose one with {options}")


def to_sample(
    fields: Mapping[str, Any],
    layout: Layout,
    parts: Parts,
    form: Form,
    golds: GoldMapping | None = None,
) -> Sample:
    """Convert the row to a sample, without changing braces or whitespace in the question's text.

    Values without a role are stored in meta. So are the options (`options`), a system message
    (`system`) and the text around the answer (`solution`).

    Args:
        fields: The row.
        layout: Layout of the file.
        parts: Parts of this row.
        form: Expected form of the answer.
        golds: Reader of multiple-choice answers.

    Raises:
        DataError: A field is missing or has the wrong type, or the answer does not have the form
            `form`; the message does not include the place.
    """
    answer, solution = gold(parts.answer), ""
    if isinstance(answer, str):
        answer, solution = read_as(form, answer, layout.answer)
    if golds is not None:
        answer = golds.read(answer, parts.options)
    # Store this in each row for the `choice` verifier: if A and B are required, `B` is wrong.
    select = "all" if golds is not None and golds.select == "all" else None
    return Sample(
        question=parts.question.question,
        answer=answer,
        source=_label(fields, layout.columns, "source") or "",
        level=_label(fields, layout.columns, "level"),
        cluster=_label(fields, layout.columns, "cluster"),
        meta=_meta(fields, layout.columns, parts, {"solution": solution, "select": select}),
    )


def _label(fields: Mapping[str, Any], columns: Columns, role: str) -> str | None:
    column = columns.role.get(role, "")
    value = value_at(fields, column)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if not is_scalar(value):
        raise DataError(
            f"the {role} ({column!r}) is of type {type(value).__name__}, not a text or a number",
            hint=f"--map meta.{column}={column} keeps it unchanged in meta",
        )
    return str(value)


def _meta(
    fields: Mapping[str, Any], columns: Columns, parts: Parts, more: Mapping[str, str | None]
) -> dict[str, Any]:
    pairs = [
        (key, value_at(fields, column))
        for key, column in columns.meta.items()
        if has(fields, column)
    ]
    for column, value in fields.items():
        if column in parts.used:
            continue
        if column == "meta" and isinstance(value, dict):
            pairs.extend(value.items())
        else:
            pairs.append((column, value))
    pairs.extend(parts.meta.items())
    if parts.question.system:
        pairs.append(("system", parts.question.system))
    if parts.options:
        pairs.append(("options", list(parts.options.texts)))
    pairs.extend((key, value) for key, value in more.items() if value)
    meta = dict(pairs)
    if len(meta) < len(pairs):
        twice = first_repeated([key for key, _ in pairs])
        raise DataError(
            f"meta would contain {twice!r} twice", hint=f"rename one: --map meta.OTHER={twice}"
        )
    return meta
