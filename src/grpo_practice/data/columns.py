"""Columns of a file, by role."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from string import ascii_uppercase
from typing import Any

from grpo_practice.data.cells import from_cell
from grpo_practice.errors import ConfigError, DataError

ROLES = ("question", "answer", "source", "level", "cluster")

ALIASES: Mapping[str, tuple[frozenset[str], ...]] = {
    "question": (
        frozenset({"question", "problem", "prompt", "query", "input"}),
        frozenset({"question_stem"}),
    ),
    "answer": (
        frozenset(
            {"answer", "gold", "target", "label", "ground_truth", "final_answer"}
            | {"expected_answer", "correct_answer"}
        ),
        frozenset({"answerkey"}),
        frozenset({"solution"}),
    ),
    "source": (frozenset({"source"}), frozenset({"data_source"})),
    "level": (frozenset({"level"}),),
    "cluster": (frozenset({"cluster"}),),
}
"""Names a role's column goes by, in any case. Two names in one set are equals; a
later set counts only where the earlier ones have none (a row with `answer` and `solution` has its
answer apart from the worked solution)."""

MAP_HINT = "say which with --map {role}=COLUMN"
LONG_NAME = 60
"""Characters that no name of a column has."""
SHOWN, CHARS = 20, 60
"""Columns a message names, and the characters it shows of each."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of a file, by role."""

    role: Mapping[str, str]
    """Column per role. A role without a column in the first row has its own name, so that a
    field which only later rows carry is still read."""
    meta: Mapping[str, str]
    """Column per key of meta, as `--map meta.KEY=COLUMN` said. Others keep their own name."""


def find_columns(
    first: Mapping[str, Any], mapping: Mapping[str, str], *, given: Collection[str] = ()
) -> Columns:
    """Decide which column is which, from the columns of the first row.

    Args:
        first: The first row.
        mapping: What the user said: `question`, `answer`, `source`, `level`, `cluster` or
            `meta.KEY` to a column, or to `a.b` for what is called `b` in the object `a` (`a.0`:
            the first of a list); it wins over every guess.
        given: Roles that need no column.

    Raises:
        ConfigError: The mapping names no role, or a column that is not there.
        DataError: No column, or more than one, may be the question; or more than one the answer.
    """
    for key, column in mapping.items():
        _check(key, column, first)
    taken = set(mapping.values())
    free = [c for c in first if c not in taken]
    wanted = [r for r in ROLES if r in mapping or r not in given]
    role = {r: mapping.get(r) or guess(r, free) or r for r in wanted}
    role = {r: c for r, c in role.items() if r in mapping or c not in taken}
    if "question" in wanted and not has(first, role.get("question", "")):
        there = listed_columns(first) or "no columns"
        problem, way = f"the first row has {there}", MAP_HINT.format(role="question")
        if names := names_for(first):
            raise DataError(
                f"no column for the question: {problem}: the line of names looks like a row",
                hint=f"if it is a row: {names}; if it is not: {way}",
            )
        raise DataError(
            f"no column for the question: {problem}",
            hint=f"{way}, or what the rows are with --shape NAME",
        )
    meta = {key.removeprefix("meta."): c for key, c in mapping.items() if key not in ROLES}
    return Columns(role, meta)


def _check(key: str, column: str, first: Mapping[str, Any]) -> None:
    if key not in ROLES and not (key.startswith("meta.") and key != "meta."):
        known = ", ".join((*ROLES, "meta.KEY"))
        raise ConfigError(f"--map {key}={column}: {key!r} is none of {known}")
    if not has(first, column):
        raise ConfigError(
            f"--map {key}={column}: the first row has no {column!r}",
            hint=f"it has {listed_columns(first)}",
        )


def value_at(fields: Mapping[str, Any], column: str) -> Any:
    """Return the row's value there; None when it has none.

    `a.b` is `b` in the object `a`, and `a.0` the first of the list `a`, where no column is called
    that; an object or a list may be packed into text.
    """
    found = _find(fields, column)
    return found[0] if found else None


def has(fields: Mapping[str, Any], column: str) -> bool:
    """Return whether the row has a value there, if only null."""
    return _find(fields, column) is not None


def _find(fields: Mapping[str, Any], column: str) -> tuple[Any] | None:
    if column in fields:
        return (fields[column],)
    head, dot, rest = column.partition(".")
    return _inside(from_cell(fields.get(head)), rest) if dot else None


def _inside(value: object, path: str) -> tuple[Any] | None:
    if isinstance(value, dict):
        return _find(value, path)
    head, dot, rest = path.partition(".")
    if not isinstance(value, list) or not head.isdecimal() or int(head) >= len(value):
        return None
    inner = value[int(head)]
    return _inside(from_cell(inner), rest) if dot else (inner,)


def names_for(first: Mapping[str, Any], among: Collection[str] | None = None) -> str | None:
    """Return how to name a table's columns whose names (or those `among` them) look like values."""
    table = 2 <= len(first) <= SHOWN and all(isinstance(value, str) for value in first.values())
    return naming(list(first)) if table and looks_like_row(among or first) else None


def naming(cells: Sequence[str]) -> str:
    """Return how to name the columns of a file whose first line, these cells, is a row."""
    names = ["question", *map(str, range(2, len(cells))), "answer"]
    if len(cells) > 3 and len(cells[-1].strip()) == 1 and cells[-1].strip().isalpha():
        names[1:-1] = ascii_uppercase[: len(cells) - 2]  # options, and the letter of the right one
    return f"--columns {','.join(names)}"


def looks_like_row(names: Collection[str]) -> bool:
    """Return whether these are values rather than names of columns."""
    return any(
        len(name) > LONG_NAME or name.endswith(("?", ".", "!")) or _is_number(name)
        for name in names
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def listed_columns(columns: Collection[str]) -> str:
    """List the names, as far as a message has room for them."""
    named = [repr(column) for column in islice(columns, SHOWN)]
    shown = [name if len(name) <= CHARS else f"{name[:CHARS]}…" for name in named]
    more = len(columns) - len(shown)
    return ", ".join(shown) + (f", and {more:,} more" if more else "")


def guess(role: str, columns: Collection[str]) -> str | None:
    """Return the column that goes by a name of this role; None when none does.

    Raises:
        DataError: More than one does.
    """
    for names in ALIASES[role]:
        found = [c for c in columns if c.strip().casefold() in names]
        if len(found) > 1:
            both = " and ".join(map(repr, found))
            raise DataError(f"{both} may both be the {role}", hint=MAP_HINT.format(role=role))
        if found:
            return found[0]
    return None
