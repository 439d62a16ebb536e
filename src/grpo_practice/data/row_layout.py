"""Layout of one file's rows (its shape, or its columns), and a row as a sample."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grpo_practice.data.answers import Form, gold, is_scalar, read_as
from grpo_practice.data.chat_format import ChatQuestion, is_conversation
from grpo_practice.data.columns import Columns, find_columns, guess, has, value_at
from grpo_practice.data.published_shapes import SHAPES, Parts, Shape, text_or_turns
from grpo_practice.errors import ConfigError, DataError
from grpo_practice.types import Sample

COLUMNS = "columns"
"""The shape of a file that has a column for the question."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of a file's rows."""

    columns: Columns
    """Columns of the roles that the shape does not give."""
    shape: Shape | None = None
    """Shape of the rows; None: the columns say all."""
    named: frozenset[str] = field(init=False)
    """Columns that have a role, or a key of meta."""

    def __post_init__(self) -> None:
        named = frozenset((*self.columns.role.values(), *self.columns.meta.values()))
        object.__setattr__(self, "named", named)

    @property
    def answer(self) -> str:
        """Name of the answer's column."""
        return self.columns.role.get("answer", "the answer")

    def parts(self, fields: Mapping[str, Any]) -> Parts:
        """Take a row apart.

        Raises:
            DataError: It has no question, or something in it is no text.
        """
        if self.shape is None:
            value = value_at(fields, self.columns.role.get("answer", ""))
            found = _question_at(fields, self.columns.role["question"])
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
        raise DataError(f"the question ({column!r}) is {kind}")
    if not value.strip():
        raise DataError(f"the question ({column!r}) is empty")
    return ChatQuestion(value, None, None, several=False)


def find_layout(
    first: Mapping[str, Any], mapping: Mapping[str, str], name: str | None = None
) -> Layout:
    """Decide how a file is read, from its first row.

    A mapping for the question rules every shape out; `name` is the shape that the user named.

    Raises:
        ConfigError: There is no such shape, or the mapping does not fit.
        DataError: It cannot be told; the hint says how to choose.
    """
    if name is not None and name not in (COLUMNS, *SHAPES):
        raise ConfigError(f"--shape {name}: there are {', '.join((*SHAPES, COLUMNS))}")
    if name is not None and name in SHAPES and "question" in mapping:
        raise ConfigError(
            f"--shape {name} and --map question both say which the question is",
            hint="leave one out",
        )
    shape = None if name is None else SHAPES.get(name)
    if name is None and "question" not in mapping:
        shape = _shape_of(first, mapping)
    if shape is None:
        return Layout(find_columns(first, mapping))
    given = {"question"}
    parts = shape.read(first)
    rest = [c for c in first if c not in parts.used and c not in mapping.values()]
    if "answer" not in mapping and (parts.answer is not None or guess("answer", rest) is None):
        given.add("answer")
    # Columns that the shape uses up are no choice, unless the user points into them.
    tops = set(mapping.values()) | {c.split(".")[0] for c in mapping.values()}
    left = {c: v for c, v in first.items() if c not in parts.used or c in tops}
    return Layout(find_columns(left, mapping, given=given), shape)


def _shape_of(first: Mapping[str, Any], mapping: Mapping[str, str]) -> Shape | None:
    """Return the one shape that the first row has; None when it has none of them."""
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
            f"the answer may be that of {shape.title} or {answer!r}",
            hint=f"say which with --shape {name} or --map answer={answer}",
        )
    return shape


def _ambiguous(what: str, fitting: list[str]) -> DataError:
    options = " or ".join(f"--shape {name}" for name in (*fitting, COLUMNS))
    return DataError(f"the columns may be {what}", hint=f"say which with {options}")


def to_sample(fields: Mapping[str, Any], layout: Layout, parts: Parts, form: Form) -> Sample:
    """Make the row a sample; the question's text stays as it is, braces, spaces and all.

    Values that no role takes go to meta, and so do a system message as `system` and, as `solution`,
    what stood around the answer. `parts` are those of the row.

    Raises:
        DataError: A field is missing or of the wrong kind, or the answer is of another form than
            `form`; the message does not say where.
    """
    answer, solution = gold(parts.answer), ""
    if isinstance(answer, str):
        answer, solution = read_as(form, answer, layout.answer)
    return Sample(
        question=parts.question.question,
        answer=answer,
        source=_label(fields, layout.columns, "source") or "",
        level=_label(fields, layout.columns, "level"),
        cluster=_label(fields, layout.columns, "cluster"),
        meta=_meta(fields, layout.columns, parts, solution),
    )


def _label(fields: Mapping[str, Any], columns: Columns, role: str) -> str | None:
    column = columns.role.get(role, "")
    value = value_at(fields, column)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if not is_scalar(value):
        raise DataError(
            f"the {role} ({column!r}) is of type {type(value).__name__}, not a text or a number",
            hint=f"--map meta.{column}={column} keeps it as it is, in meta",
        )
    return str(value)


def _meta(
    fields: Mapping[str, Any], columns: Columns, parts: Parts, solution: str
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
    if solution:
        pairs.append(("solution", solution))
    meta = dict(pairs)
    if len(meta) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise DataError(
            f"meta would have {twice!r} twice", hint=f"rename one: --map meta.OTHER={twice}"
        )
    return meta
