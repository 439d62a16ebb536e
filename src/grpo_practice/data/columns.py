"""Assign the columns of a file to roles such as question and answer."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from string import ascii_uppercase
from typing import Any

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.data.cells import from_cell

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
        frozenset({"answers"}),
    ),
    "source": (frozenset({"source"}), frozenset({"data_source"})),
    "level": (frozenset({"level"}),),
    "cluster": (frozenset({"cluster"}),),
}
"""Column names recognised for each role, ignoring case.

Names in the same set have equal rank. A later set is used only if no column matches an earlier
one: a row with `answer` and `solution` has its answer in `answer` and the worked solution in
`solution`.
"""

MAP_HINT = "say which with --map {role}=COLUMN"
LONG_NAME = 60
"""Length above which a text is assumed not to be a column name."""
SHOWN, CHARS = 20, 60
"""Number of columns that a message lists, and number of characters shown of each."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of a file, by role."""

    role: Mapping[str, str]
    """Column for each role. A role that the first row lacks maps to its own name, so that a field
    that appears only in later rows is still read.
    """
    meta: Mapping[str, str]
    """Column for each key of meta, as given by `--map meta.KEY=COLUMN`. Other keys keep their
    names.
    """


def find_columns(
    first: Mapping[str, Any], mapping: Mapping[str, str], *, given: Collection[str] = ()
) -> Columns:
    """Assign columns to roles, based on the first row.

    Args:
        first: The first row.
        mapping: Choices of the user, which override every guess: `question`, `answer`, `source`,
            `level`, `cluster` or `meta.KEY` → a column, or `a.b` for key `b` of the object in
            column `a` (`a.0`: the first element of a list).
        given: Roles that need no column.

    Raises:
        ConfigError: The mapping names an unknown role or a missing column.
        DataError: No column matches the question, several match it, or several match the answer.
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
        lacking, way = "the question", MAP_HINT.format(role="question")
        if "answer" in wanted and not has(first, role.get("answer", "")):
            lacking, way = "the question or the answer", f"{way} --map answer=COLUMN"
        problem = f"no column for {lacking}: the first row has {there}"
        if names := names_for(first):
            raise DataError(
                f"{problem}, and the header looks like a row",
                hint=f"if these are column names, {way}; if the file has no header: {names}",
            )
        raise DataError(problem, hint=f"{way}, or choose the format of the rows with --shape NAME")
    meta = {key.removeprefix("meta."): c for key, c in mapping.items() if key not in ROLES}
    return Columns(role, meta)


def _check(key: str, column: str, first: Mapping[str, Any]) -> None:
    if key not in ROLES and not (key.startswith("meta.") and key != "meta."):
        known = ", ".join((*ROLES, "meta.KEY"))
        raise ConfigError(f"--map {key}={column}: {key!r} is not one of {known}")
    if not has(first, column):
        raise ConfigError(
            f"--map {key}={column}: the first row has no {column!r}",
            hint=f"it has {listed_columns(first)}",
        )


def value_at(fields: Mapping[str, Any], column: str) -> Any:
    """Return the row's value in a column; None if it is missing.

    Unless a column has exactly that name, `a.b` means key `b` of the object in column `a`, and
    `a.0` the first element of the list in column `a`. The object or list may be encoded as text.
    """
    found = _find(fields, column)
    return found[0] if found else None


def has(fields: Mapping[str, Any], column: str) -> bool:
    """Return whether the row has a value in the column, even if the value is null."""
    return _find(fields, column) is not None


def _find(fields: Mapping[str, Any], column: str) -> tuple[Any] | None:
    # Try the exact name first: a column name may itself contain dots.
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
    """Suggest `--columns …` if the column names, or those in `among`, look like a row of values."""
    # A row with a number or a list comes from JSON, which names every key.
    table = 2 <= len(first) <= SHOWN and all(isinstance(value, str) for value in first.values())
    return naming(list(first)) if table and looks_like_row(among or first) else None


def naming(cells: Sequence[str]) -> str:
    """Suggest column names for a file whose first line is a data row with these cells."""
    names = ["question", *map(str, range(2, len(cells))), "answer"]
    if len(cells) > 3 and len(cells[-1].strip()) == 1 and cells[-1].strip().isalpha():
        # The last cell is one letter, so the cells between it and the question are options.
        names[1:-1] = ascii_uppercase[: len(cells) - 2]
    return f"--columns {','.join(names)}"


def looks_like_row(names: Collection[str]) -> bool:
    """Return whether the names look like values rather than column names."""
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
    """List the column names, shortened for use in a message."""
    named = [repr(column) for column in islice(columns, SHOWN)]
    shown = [name if len(name) <= CHARS else f"{name[:CHARS]}…" for name in named]
    more = len(columns) - len(shown)
    return ", ".join(shown) + (f", and {more:,} more" if more else "")


def guess(role: str, columns: Collection[str]) -> str | None:
    """Find the column whose name matches the role; return None if no column matches.

    Raises:
        DataError: More than one column matches.
    """
    for names in ALIASES[role]:
        found = [c for c in columns if c.strip().casefold() in names]
        if len(found) > 1:
            both = " and ".join(map(repr, found))
            raise DataError(f"{both} may both be the {role}", hint=MAP_HINT.format(role=role))
        if found:
            return found[0]
    return None
