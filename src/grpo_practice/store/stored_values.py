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


def _number(
    text: str,
    kind: Callable[[str], float] = float,
    least: float = -sys.float_info.max,
    most: float = sys.float_info.max,
) -> float:
    if not least <= (value := kind(text)) <= most:
        raise ValueError(f"{text} is not a number that this program stores here")
    return value


_READ = json.JSONDecoder(parse_constant=_number, parse_float=_number).decode
_READ_NUMBERS = json.JSONDecoder(
    parse_constant=_number,
    parse_int=partial(_number, kind=int, least=0, most=MOST),
    parse_float=partial(_number, least=0, most=MOST),
).decode


def _types() -> dict[str, tuple["TypeAdapter[Any]", Callable[[str], Any]]]:
    """Return JSON column → the type of its values, and the reader of its numbers."""
    from pydantic import StringConstraints, TypeAdapter  # takes 0.1 s

    free: dict[str, Any] = {
        "answer": Answer,
        "domains": list[str],
        "identity": dict[str, Any],
        "left_out": list[str],
        "meta": dict[str, Any],
        "prompts": dict[str, Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]],
        "spec": dict[str, Any],
    }
    counting: dict[str, Any] = {
        "from_ops": list[int],
        "parts": list[Part],
        "plan": get_type_hints(PlannedStep)["slots"],
        "stats": StepStats,
        "sums": Sums,
    }
    return {name: (TypeAdapter(kind), _READ) for name, kind in free.items()} | {
        name: (TypeAdapter(kind), _READ_NUMBERS) for name, kind in counting.items()
    }


def value_faults(db: sqlite3.Connection) -> Iterator[str | None]:
    """Yield None or a fault for each text stored as a time or as JSON."""
    types = _types()
    for table, column, declared, _ in our_columns(db):
        if declared == "TEXT" and (column in types or column.endswith("_at")):
            rows = db.execute(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL")
            for (stored,) in rows:
                try:
                    if column in types:
                        kind, read = types[column]
                        read(stored)
                        kind.validate_json(stored, strict=True)
                    else:
                        datetime.fromisoformat(stored)
                    yield None
                except (ValueError, RecursionError):
                    yield f"{table}.{column} cannot be read: {brief(stored, 40)}"


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
        """SELECT (scored > 0) = (mean_reward NOTNULL) AND scored <= planned
             AND coalesce(mean_reward, 0) BETWEEN 0 AND 1 FROM groups"""
    )
    for (right,) in rows:
        yield None if right else "the numbers of a group do not go together"


def label_faults(db: sqlite3.Connection) -> Iterator[str | None]:
    """Yield None or a fault for the keys and the labels of each run."""
    for row in db.execute("SELECT run_id, arm, arm_change, tags, note FROM runs"):
        run, fault = brief(row["run_id"], 80), None
        try:
            check_labels(RunLabels(row[1], row[2], row[3].split(), row[4]))
        except ConfigError as e:
            fault = f"the labels of run {run} are not allowed: {e}"
        yield fault
    rows = db.execute(
        """SELECT run_id, kind, identity,
             kind <> 'recorded' AND b.dataset_id + b.verifier_id + b.k IS NULL AS lacks
             FROM branches b JOIN runs USING (run_id)"""
    )
    for row in rows:
        wrong = key_faults(json.loads(row["identity"]), row["kind"])
        wrong += ["its dataset, verify function or k is missing"] * row["lacks"]
        fault = f"the branch of run {row['run_id']} cannot be read: {', '.join(wrong)}"
        yield fault if wrong else None
