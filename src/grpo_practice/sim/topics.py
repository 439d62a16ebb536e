"""Texts of the world's topics, loaded from `topics.toml`."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Advice:
    """A piece of advice: a short name and an instruction."""

    name: str
    do: str
    tex: str = ""
    """The instruction as a formula, as models write it between dollar signs."""


@dataclass(frozen=True, slots=True)
class Lore:
    """Questions on one topic, and people's advice about it."""

    wordings: tuple[str, ...]
    """Templates of its questions."""
    when: str
    """Situation in which the advice applies."""
    right: Advice
    wrong: tuple[Advice, Advice]
    """Bad advice, one piece for each common slip."""
    program: tuple[str, ...] = ()
    """Python expressions for a sum: its answer, then each slip."""
    labels: tuple[str, ...] = ()
    """Words that answer a question that is not a sum: the right one, then each slip."""


def _read(entry: Mapping[str, Any]) -> Lore:
    right, first, second = (Advice(*words) for words in (entry["right"], *entry["wrong"]))
    lists = {key: tuple(entry.get(key, ())) for key in ("wordings", "program", "labels")}
    return Lore(when=entry["when"], right=right, wrong=(first, second), **lists)


_TOPICS = tomllib.loads(Path(__file__).with_name("topics.toml").read_text(encoding="utf-8"))
SUMS: Mapping[str, Lore] = {name: _read(entry) for name, entry in _TOPICS["sums"].items()}
LABELS: Mapping[str, Lore] = {name: _read(entry) for name, entry in _TOPICS["labels"].items()}
"""Questions whose answers are words: tickets, premises, tools, rules.

All of them share six labels, so many questions have the same answer. The task is to know which
label belongs to a situation; helpful advice names that label.
"""
LORE: Mapping[str, Lore] = {**SUMS, **LABELS}
