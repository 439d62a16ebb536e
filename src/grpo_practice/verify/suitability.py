"""Choice of a built-in verify function for the answers of a dataset."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from grpo_practice.data.stats import kind
from grpo_practice.types import Sample
from grpo_practice.verify.answers import gold_texts
from grpo_practice.verify.builtin import BUILT_INS
from grpo_practice.verify.resolve import VerifyFunction, check_gold, resolve

SHORT = 80
"""Characters of an answer that a right response holds word for word; a longer one is prose."""
WITHOUT_PARAMETERS = tuple(
    name
    for name, built_in in BUILT_INS.items()
    if not any(param.required for param in built_in.params.values())
)
"""Built-in functions that work as they are, in the table's order."""
SAMPLED = 200
"""Answers that a function is tried on before it is named in a next step."""


def best_suited(samples: Sequence[Sample]) -> str:
    """Name the built-in function that most answers look made for; `judge` where there is none."""
    golds = [gold for s in samples for gold in gold_texts(s.answer)]
    kinds = Counter(map(kind, golds))
    if not golds:
        return "judge"
    if 2 * kinds["choice letter"] > len(golds):
        return "choice"
    if 2 * kinds["text"] <= len(golds):
        return "math"
    return "contains" if 2 * sum(len(gold) <= SHORT for gold in golds) > len(golds) else "judge"


def usable(samples: Sequence[Sample], name: str | None = None) -> str:
    """Name a function that can use every answer: `name` (default: the best suited), or another.

    Only about `SAMPLED` answers are tried, spread over the dataset.
    """
    if not all(any(gold.strip() for gold in gold_texts(s.answer)) for s in samples):
        return "judge"  # the only one that needs no answer
    tried = samples[:: max(1, len(samples) // SAMPLED)]
    name = name or best_suited(tried)
    function = by_name(name)
    return name if all(check_gold(function, s) is None for s in tried) else "exact"


def unusable_counts(samples: Sequence[Sample]) -> dict[str, int]:
    """Count, for each function without parameters, the rows whose answers it cannot use."""
    return {name: len(unusable_rows(samples, name)) for name in WITHOUT_PARAMETERS}


def unusable_rows(samples: Sequence[Sample], name: str) -> dict[int, str]:
    """Return why the function cannot use an answer, by row number from 1."""
    function = by_name(name)
    rows = enumerate(samples, 1)
    return {n: reason for n, s in rows if (reason := check_gold(function, s)) is not None}


def by_name(name: str) -> VerifyFunction:
    """Resolve a function named in a command: a built-in, or FILE.py:FUNC of the current folder.

    Raises:
        ConfigError: There is no such function.
    """
    return resolve(name, {}, None, Path.cwd())
