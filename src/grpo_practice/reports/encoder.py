"""Convert reports to JSON with one rule for all of them.

A dataclass becomes an object with one key per field. A dataclass that shows only some fields, or
also properties, lists the attributes to show in a class variable `in_document`; for classes that
are not reports, `shown` holds this list. In such a list, `rollout.slot` puts the attribute `slot`
of `rollout` under the key `slot`.
"""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

MICRO, DOLLARS = "_micro", "_usd"
"""Suffixes of amounts of money: stored in micro-dollars, shown in dollars."""


@cache
def shown() -> Mapping[type, Sequence[str]]:
    """Return the shown attributes of classes in lower layers that do not show all their fields."""
    # Imported here, because error reports import this module, and `--help` must not wait for the
    # store.
    from grpo_practice.core.stats.paired import Difference
    from grpo_practice.core.types import Experience, Sample
    from grpo_practice.store.records import DatasetRow, StepRow

    return {
        Difference: (
            *("mean", "se", "ci95", "p", "n", "clusters", "effective_clusters", "up", "down"),
            *("equal", "missing", "worst", "best"),
        ),
        StepRow: (
            *("plan.step", "plan.epoch", "status", "library", "groups", "rollouts"),
            "stats",
        ),
        DatasetRow: ("name", "revision", "sha256", "n", "origin", "created_at"),
        Experience: ("id", "text"),
        Sample: ("question", "answer", "source", "level", "cluster", "meta"),
    }


def json_object(value: object) -> dict[str, Any]:
    """Return the shown attributes of a dataclass as a JSON object."""
    kind = type(value)
    names: Sequence[str] | None = getattr(kind, "in_document", None) or shown().get(kind)
    if names is None:
        assert is_dataclass(value)
        names = [field.name for field in fields(value)]
    found = dict[str, Any]()
    for name in names:
        held: Any = value
        for part in name.split("."):
            # A missing optional part makes all of its attributes null.
            held = None if held is None else getattr(held, part)
        key = name.rpartition(".")[2]
        # A name ends with its unit: money is stored in whole millionths, so that sums are exact.
        if key.endswith(MICRO):
            key, held = key.removesuffix(MICRO) + DOLLARS, _dollars(held)
        elif isinstance(held, float) and (key == "seconds" or key.endswith("_s")):
            held = round(held, 3)
        found[key] = json_value(held)
    return found


def json_value(value: object) -> Any:
    """Return a value of a report as JSON; NaN and infinities become null.

    A library or branch becomes its id; paths and hashes become strings.

    Raises:
        TypeError: The value cannot be represented in JSON.
    """
    match value:
        case None | bool() | int() | str():
            return value
        # JSON has no NaN and no infinity, and other parsers refuse what Python writes for them.
        case float():
            return value if math.isfinite(value) else None
        case bytes():
            return value.hex()
        case Mapping():
            return {_key(key): json_value(inner) for key, inner in value.items()}
        # Sorted, because the order of a set of strings differs in each process.
        case Set():
            return sorted(map(json_value, value))
        # Must follow str and bytes, which are sequences, too.
        case Sequence():
            return [json_value(inner) for inner in value]
        case _:
            return _of_an_object(value)


def _of_an_object(value: object) -> Any:
    from grpo_practice.core.types import Library
    from grpo_practice.store.records import Branch

    match value:
        case Library():
            return f"L{value.id}" if value.id else None
        case Branch():
            return value.id
        case Path():
            return str(value)
        case _ if is_dataclass(value):
            return json_object(value)
        case _:
            raise TypeError(
                f"a report holds a value of type {type(value).__name__},"
                " which JSON cannot represent"
            )


def _dollars(micro: Any) -> Any:
    if isinstance(micro, Mapping):
        return {key: _dollars(part) for key, part in micro.items()}
    return None if micro is None else micro / 1e6


def _key(key: object) -> str:
    if not isinstance(key, str | int):
        raise TypeError(f"a report has the key {key!r}, which JSON cannot represent")
    return str(key)
