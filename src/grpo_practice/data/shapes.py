"""A row's fields, as a sample: which column is which, and where in its column the answer stands."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from grpo_practice.errors import ConfigError, DataError
from grpo_practice.types import Answer, Sample

ROLES = ("question", "answer", "source", "level", "cluster")

ALIASES: Mapping[str, tuple[frozenset[str], ...]] = {
    "question": (frozenset({"question", "problem", "prompt", "query", "input"}),),
    "answer": (
        frozenset(
            {"answer", "gold", "target", "label", "ground_truth", "final_answer"}
            | {"expected_answer", "correct_answer"}
        ),
        frozenset({"solution"}),
    ),
    "source": (frozenset({"source"}),),
    "level": (frozenset({"level"}),),
    "cluster": (frozenset({"cluster"}),),
}
"""Names a role's column goes by, in any case. Of two names in one set neither is preferred; a
later set counts only where the earlier ones have none (a row with `answer` and `solution` has its
answer apart from the worked solution)."""

MAP_HINT = "say which with --map {role}=COLUMN"
SHOWN, CHARS = 20, 60
"""Columns a message names, and the characters it shows of each."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column of a file is which."""

    role: Mapping[str, str]
    """Column per role. A role without a column in the first row has its own name, so that a
    field which only later rows carry is still read."""
    meta: Mapping[str, str]
    """Column per key of meta, as `--map meta.KEY=COLUMN` said. Others keep their own name."""


def find_columns(first: Collection[str], mapping: Mapping[str, str]) -> Columns:
    """Which column is which, from the columns of the first row.

    Args:
        first: The first row's columns.
        mapping: What the user said: `question`, `answer`, `source`, `level`, `cluster` or
            `meta.KEY` to a column; it wins over every guess.

    Raises:
        ConfigError: The mapping names no role, or a column that is not there.
        DataError: No column, or more than one, may be the question; or more than one the answer.
    """
    for key, column in mapping.items():
        if key not in ROLES and not (key.startswith("meta.") and key != "meta."):
            known = ", ".join((*ROLES, "meta.KEY"))
            raise ConfigError(f"--map {key}={column}: {key!r} is none of {known}")
        if column not in first:
            raise ConfigError(
                f"--map {key}={column}: the first row has no {column!r}",
                hint=f"it has {_listed(first)}",
            )
    taken = set(mapping.values())
    free = [c for c in first if c not in taken]
    role = {r: mapping.get(r) or _guess(r, free) for r in ROLES}
    role = {r: c for r, c in role.items() if r in mapping or c not in taken}
    if role.get("question") not in first:
        has = _listed(first) or "no columns"
        raise DataError(
            f"no column for the question: the first row has {has}",
            hint=MAP_HINT.format(role="question"),
        )
    meta = {key.removeprefix("meta."): c for key, c in mapping.items() if key not in ROLES}
    return Columns(role, meta)


def _listed(columns: Collection[str]) -> str:
    named = [repr(column) for column in islice(columns, SHOWN)]
    shown = [name if len(name) <= CHARS else f"{name[:CHARS]}…" for name in named]
    more = len(columns) - len(shown)
    return ", ".join(shown) + (f", and {more:,} more" if more else "")


def _guess(role: str, columns: Collection[str]) -> str:
    for names in ALIASES[role]:
        found = [c for c in columns if c.strip().casefold() in names]
        if len(found) > 1:
            both = " and ".join(map(repr, found))
            raise DataError(f"{both} may both be the {role}", hint=MAP_HINT.format(role=role))
        if found:
            return found[0]
    return role


@dataclass(frozen=True, slots=True)
class Form:
    """Where in its column's text the answer stands."""

    name: str
    """`the answer stands …`."""
    read: Callable[[str], tuple[str, str] | None]
    """(answer, worked solution), or None where the text is not of this form."""


def _hashes(text: str) -> tuple[str, str] | None:
    solution, _, last = text.rstrip().rpartition("\n")
    value = last.strip().removeprefix("####")
    if value == last.strip() or not value.strip():
        return None
    return value.strip(), solution


def _boxed(text: str) -> tuple[str, str] | None:
    start = max(text.rfind("\\boxed"), text.rfind("\\fbox"))
    if start < 0:
        return None
    value = _braced(text[start:].removeprefix("\\boxed").removeprefix("\\fbox")).strip()
    return (value, text) if value else None


def _braced(text: str) -> str:
    """What the brace at the start encloses; up to a `$` where TeX needs no brace; '' if open."""
    if not text.lstrip().startswith("{"):
        return text.partition("$")[0]
    text = text.lstrip()
    depth, escaped = 0, False
    for i, character in enumerate(text):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character in "{}":
            depth += 1 if character == "{" else -1
            if depth == 0:
                return text[1:i]
    return ""


AFTER_HASHES = Form("after '####' on the last line", _hashes)
IN_BOX = Form("in the last \\boxed{…}", _boxed)
PLAIN = Form("as it is", lambda text: (text, ""))


def form_of(text: str, column: str) -> Form:
    """The form of an answer's text: GSM8K's, MATH's (in a column `solution` only), or plain."""
    if _hashes(text):
        return AFTER_HASHES
    if column.strip().casefold() == "solution" and _boxed(text):
        return IN_BOX
    return PLAIN


def gold(fields: Mapping[str, Any], columns: Columns) -> Answer:
    """The answer's column, checked: a scalar, a list of alternatives, or None where it is empty.

    Raises:
        DataError: It is an object, or a list that is empty or holds more than scalars.
    """
    value = fields.get(columns.role.get("answer", ""))
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            return value if value.strip() else None
        case list() if value and all(_scalar(v) for v in value):
            return value
        case list():
            raise DataError("the answer is a list, but not of one or more texts or numbers")
        case _:
            raise DataError("the answer is an object, not a text, a number, or a list of these")


def _scalar(value: object) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and value.strip() != "")


def to_sample(fields: Mapping[str, Any], columns: Columns, form: Form) -> Sample:
    """The row as a sample. The question's text stays as it is, braces, spaces and all.

    What no role takes goes to meta, and so does, as `solution`, what stood around the answer.

    Raises:
        DataError: A field is missing or of the wrong kind, or the answer is of another form than
            `form`; the message does not say where.
    """
    column = columns.role["question"]
    question = fields.get(column)
    if not isinstance(question, str):
        kind = "missing" if question is None else f"of type {type(question).__name__}, not text"
        raise DataError(f"the question ({column!r}) is {kind}")
    if not question.strip():
        raise DataError(f"the question ({column!r}) is empty")
    answer, solution = gold(fields, columns), ""
    if isinstance(answer, str):
        answer, solution = _read(answer, columns.role["answer"], form)
    return Sample(
        question=question,
        answer=answer,
        source=_label(fields, columns, "source") or "",
        level=_label(fields, columns, "level"),
        cluster=_label(fields, columns, "cluster"),
        meta=_meta(fields, columns, solution),
    )


def _read(text: str, column: str, form: Form) -> tuple[str, str]:
    found = form_of(text, column)
    read = form.read(text)
    if found is not form or read is None:
        raise DataError(f"the answer stands {found.name}, but in the first row {form.name}")
    return read


def _label(fields: Mapping[str, Any], columns: Columns, role: str) -> str | None:
    column = columns.role.get(role, "")
    value = fields.get(column)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if not _scalar(value):
        raise DataError(
            f"the {role} ({column!r}) is of type {type(value).__name__}, not a text or a number",
            hint=f"--map meta.{column}={column} keeps it as it is, in meta",
        )
    return str(value)


def _meta(fields: Mapping[str, Any], columns: Columns, solution: str) -> dict[str, Any]:
    used = {*columns.role.values(), *columns.meta.values()}
    pairs = [(key, fields[column]) for key, column in columns.meta.items() if column in fields]
    for column, value in fields.items():
        if column in used:
            continue
        if column == "meta" and isinstance(value, dict):
            pairs.extend(value.items())
        else:
            pairs.append((column, value))
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
