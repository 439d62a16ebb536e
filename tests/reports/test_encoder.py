"""The one rule by which reports become JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from grpo_practice.core.types import Experience, Library
from grpo_practice.reports.base import Report
from grpo_practice.reports.encoder import json_value


@dataclass(frozen=True)
class Part:
    """A part of a report."""

    path: Path
    sha256: bytes
    cost_micro: int | None
    seconds: float
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Made(Report):
    """A report with a derived key, and one of a part."""

    schema: ClassVar = "grpo-practice.made/1"
    in_document: ClassVar = ("n", "part.path", "missing.sha256", "total")

    n: Mapping[int, float]
    part: Part
    missing: Part | None = None

    @property
    def total(self) -> float:
        """The sum."""
        return sum(self.n.values())


PART = Part(Path("a/b"), b"\x01\xff", 1_500_000, 1.23456)


def test_a_report_shows_what_it_names_between_its_schema_and_its_ends() -> None:
    assert Made({1: 0.5}, PART).document() == {
        "schema": "grpo-practice.made/1",
        "n": {"1": 0.5},
        "path": "a/b",
        "sha256": None,
        "total": 0.5,
        "next": None,
        "exit": 0,
    }


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (PART, {"path": "a/b", "sha256": "01ff", "cost_usd": 1.5, "seconds": 1.235, "notes": []}),
        ([float("nan"), float("-inf"), 0.1], [None, None, 0.1]),
        ({"b", "a"}, ["a", "b"]),
        (Library((Experience(3, "Units: name them."),), id=7), "L7"),
        (Library(), None),
        (Experience(3, "Units: name them."), {"id": "E3", "text": "Units: name them."}),
    ],
)
def test_a_value_has_one_form(value: object, shown: object) -> None:
    assert json_value(value) == shown


def test_what_has_no_form_is_refused() -> None:
    for value in (object(), {(1, 2): "x"}):
        with pytest.raises(TypeError, match="JSON cannot represent"):
            json_value(value)
