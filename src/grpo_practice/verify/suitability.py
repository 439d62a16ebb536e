"""Choice of a built-in verify function for the answers of a dataset."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from grpo_practice.config.schema.runs import PracticeSettings
from grpo_practice.core.types import Gold, Sample
from grpo_practice.verify.answers import gold_texts
from grpo_practice.verify.resolve import VerifyFunction, check_gold, resolve

SHORT, WORDS = 80, 5
"""Maximum number of characters and words of an answer that a response repeats verbatim; a longer
answer is prose.
"""
LEFT_OUT: float = PracticeSettings.model_fields["max_failed_share"].default
"""Largest share of answers that a run leaves out by default."""
SAMPLED = 200
"""Number of answers on which a function is tried before a next command proposes it."""
_LETTERS = re.compile(r"\(?[A-Ja-j][).]?|[A-J](, [A-J])+")
_SIGNS = re.compile(r"\\[A-Za-z]+|[\d=^_/*+<>|√π∞±\u00d7·≤≥{}]")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_FUNCTIONS = frozenset(
    {"sqrt", "sin", "cos", "tan", "log", "exp", "frac", "max", "min", "mod", "inf"}
)


def best_suited(golds: Iterable[Gold | Sample]) -> str:
    """Return the built-in function that suits most answers; `judge` if there are no answers."""
    kinds, short = Counter[str](), 0
    for gold in golds:
        for text in gold_texts(gold.answer):
            kinds[_kind(text)] += 1
            short += len(text) <= SHORT and len(text.split()) <= WORDS and "。" not in text
    total = kinds.total()
    if not total:
        return "judge"
    if 2 * kinds["choice"] > total:
        return "choice"
    if 2 * kinds["text"] <= total:
        return "math"
    return "contains" if 2 * short > total else "judge"


def _kind(answer: str) -> Literal["choice", "math", "text"]:
    text = answer.strip().strip("$").strip()
    if _LETTERS.fullmatch(text):
        return "choice"
    words = (word.lower() for word in _WORD.findall(text))
    formula = len(text) <= SHORT and _SIGNS.search(text) and _FUNCTIONS.issuperset(words)
    return "math" if formula or text.isdecimal() else "text"


def usable(golds: Sequence[Gold | Sample], name: str | None = None) -> str:
    """Return a function that a run can use: `name` (default: the best suited), or another function.

    A run leaves out a few unusable answers. Only about `SAMPLED` answers are tried, spread over the
    dataset.
    """
    tried = [golds[n] for n in spread(len(golds))]
    name = name or best_suited(tried)
    function = by_name(name)
    if few(sum(check_gold(function, gold) is not None for gold in tried), len(tried)):
        return name
    # Only the judge can score without an answer.
    return "exact" if all(has_gold(gold) for gold in tried) else "judge"


def few(unusable: int, n: int) -> bool:
    """Return whether a default run continues if this many of n answers are unusable."""
    return unusable <= LEFT_OUT * n


def spread(n: int) -> range:
    """Return the positions, among n rows, of the rows that are tried."""
    return range(0, n, max(1, n // SAMPLED))


def has_gold(gold: Gold | Sample) -> bool:
    """Return whether any alternative of the answer is not blank."""
    return any(text.strip() for text in gold_texts(gold.answer))


def unusable_rows(golds: Iterable[Gold | Sample], name: str) -> dict[int, str]:
    """Return row number, from 1, → reason why the function cannot use the row's answer."""
    function, found, last = by_name(name), dict[int, str](), ""
    for n, gold in enumerate(golds, 1):
        if reason := check_gold(function, gold):
            # Share the text of consecutive equal reasons: there may be a million of them.
            last = last if reason == last else reason
            found[n] = last
    return found


def by_name(name: str) -> VerifyFunction:
    """Resolve the function named in a command: a built-in, or FILE.py:FUNC in the current folder.

    Raises:
        ConfigError: The function does not exist.
    """
    return resolve(name, {}, None, Path.cwd())
