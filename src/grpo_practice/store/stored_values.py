"""Checks of values whose columns hold more than SQLite checks: times, JSON and labels."""

import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.text import brief
from grpo_practice.core.types import Answer, PlannedStep
from grpo_practice.store.distillation import HARMLESS, Distillation
from grpo_practice.store.identity import key_faults
from grpo_practice.store.records import Part
from grpo_practice.store.run_labels import RunLabels, check_labels
from grpo_practice.store.step_totals import Sums
from grpo_practice.store.typed_rows import our_columns

if TYPE_CHECKING:
    from pydantic import TypeAdapter

MOST = 10**15
"""Bound of numbers in JSON that this program counts: no sum of 64-bit numbers overflows."""


@dataclass(frozen=True, slots=True)
class StepStats:
    """Keys of a step's stats that are read; a step that is not closed may have `pauses` only."""

    planned: int | None = None
    scored: int | None = None
    failed: int | None = None
    correct: int | None = None
    outcomes: dict[str, int] = field(default_factory=dict)
    groups: dict[str, int] = field(default_factory=dict)
    informative: int | None = None
    alike: int = 0
    mean_reward: float | None = None
    experiences: int | None = None
    quarantined: int | None = None
    merge_failed: str | None = None
    distillation: Distillation | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    ranks: int = 1
    pauses: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError for numbers that cannot go together."""
        counts = self.distillation or Distillation()
        losing = {*counts.refused, *counts.quarantined} - HARMLESS
        if (self.scored is not None and self.planned is None) or (counts.lost and not losing):
            raise ValueError("these numbers cannot go together")


def _reader(least: float, most: float, *, ints: bool) -> Callable[[str], object]:
    """Return a function that raises ValueError for JSON with a number outside these bounds."""

    def number(text: str) -> float:
        if not least <= float(text) <= most:
            raise ValueError(text)
        return 0.0

    whole = number if ints else int
    return json.JSONDecoder(parse_int=whole, parse_float=number, parse_constant=number).decode


def _checks() -> dict[str, Callable[[str], object]]:
    """Return JSON column → a function that raises ValueError for a text of the wrong shape."""
    from pydantic import Field, StringConstraints, TypeAdapter  # takes 0.1 s

    finite = _reader(-sys.float_info.max, sys.float_info.max, ints=False)
    counts = _reader(0, MOST, ints=True)
    sha = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
    kinds: dict[str, tuple[Any, Callable[[str], object]]] = {
        **dict.fromkeys(("identity", "meta", "spec"), (dict[str, Any], finite)),
        **dict.fromkeys(("domains", "left_out"), (list[str], finite)),
        "answer": (Answer, finite),
        "prompts": (dict[str, sha], finite),
        "messages": (Annotated[list[dict[str, Any]], Field(min_length=1)], finite),
        "from_ops": (list[int], counts),
        "parts": (list[Part], counts),
        "plan": (get_type_hints(PlannedStep)["slots"], counts),
        "stats": (StepStats, counts),
        "sums": (Sums, counts),
    }

    def check(of: "TypeAdapter[Any]", read: Callable[[str], object], text: str) -> None:
        read(text)
        of.validate_json(text, strict=True)

    return {name: partial(check, TypeAdapter(of), read) for name, (of, read) in kinds.items()}


def value_faults(db: sqlite3.Connection) -> Iterator[str | None]:
    """Yield None or a fault for each text stored as a time or as JSON."""
    checks = _checks()
    for table, column, declared, _ in our_columns(db):
        check = datetime.fromisoformat if column.endswith("_at") else checks.get(column)
        if check is None or declared != "TEXT":
            continue
        for (text,) in db.execute(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL"):
            try:
                check(text)
                yield None
            except (ValueError, RecursionError):
                yield f"{table}.{column} cannot be read: {brief(text, 40)}"


def number_faults(db: sqlite3.Connection) -> Iterator[str | None]:
    """Yield None or a fault for each column of ids and counts, and for each group.

    A sum of larger numbers would overflow, and a negative count could make a divisor 0.
    """
    for table, column, declared, _ in our_columns(db):
        if declared == "INTEGER" and column not in ("seed", "exit_code"):
            least = -1 if column in ("slot", "attempt") or column.endswith("step") else 0
            where = f"WHERE {column} NOT BETWEEN {least} AND {MOST}"
            found = db.execute(f"SELECT {column} FROM {table} {where} LIMIT 1").fetchone()
            yield f"{table}.{column} cannot be {found[0]}" if found else None
    rows = db.execute(
        """SELECT iif((scored > 0) = (mean_reward NOTNULL) AND scored <= planned
             AND coalesce(mean_reward, 0) BETWEEN 0 AND 1, NULL,
             'the numbers of a group do not go together') FROM groups"""
    )
    yield from (fault for (fault,) in rows)


def label_faults(db: sqlite3.Connection) -> Iterator[str | None]:
    """Yield None or a fault for the keys and the labels of each run."""
    labels = db.execute("SELECT run_id, arm, arm_change, tags, note FROM runs")
    for run, arm, arm_change, tags, note in labels:
        try:
            check_labels(RunLabels(arm, arm_change, tags.split(), note))
            yield None
        except ConfigError as e:
            yield f"the labels of run {brief(run, 80)} are not allowed: {e}"
    rows = db.execute(
        """SELECT run_id, kind, identity,
             kind <> 'recorded' AND b.dataset_id + b.verifier_id + b.k IS NULL AS lacks
             FROM branches b JOIN runs USING (run_id)"""
    )
    for row in rows:
        wrong = key_faults(json.loads(row["identity"]), row["kind"])
        wrong += ["its dataset, verify function or k is missing"] * row["lacks"]
        where = f"the branch of run {row['run_id']} cannot be read: "
        yield where + ", ".join(wrong) if wrong else None
