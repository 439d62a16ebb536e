"""The topics of the world in words, as `topics.toml` has them."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Advice:
    """A piece of advice: its short name and what it says to do."""

    name: str
    do: str
    tex: str = ""
    """The same as a formula, as models write it between dollars."""


@dataclass(frozen=True, slots=True)
class Lore:
    """Questions of one topic, and the advice of people about it."""

    wordings: tuple[str, ...]
    """Templates of its questions."""
    when: str
    """Situation, as people say it."""
    right: Advice
    wrong: tuple[Advice, Advice]
    """One for each common slip."""
    program: tuple[str, ...] = ()
    """Expressions of a sum: of its answer, then of each slip."""
    labels: tuple[str, ...] = ()
    """Words of a question that is no sum: its answer, then each slip."""


def _read(entry: Mapping[str, Any]) -> Lore:
    right, first, second = (Advice(*words) for words in (entry["right"], *entry["wrong"]))
    lists = {key: tuple(entry.get(key, ())) for key in ("wordings", "program", "labels")}
    return Lore(when=entry["when"], right=right, wrong=(first, second), **lists)


_TOPICS = tomllib.loads(Path(__file__).with_name("topics.toml").read_text(encoding="utf-8"))
SUMS: Mapping[str, Lore] = {name: _read(entry) for name, entry in _TOPICS["sums"].items()}
LABELS: Mapping[str, Lore] = {name: _read(entry) for name, entry in _TOPICS["labels"].items()}
"""Questions whose answers are words: tickets, premises, tools, rules.

Six labels are the answers of all of them, so that each is shared by many questions. One has to know
which label a situation gets; the advice that helps names it.
"""
LORE: Mapping[str, Lore] = {**SUMS, **LABELS}
