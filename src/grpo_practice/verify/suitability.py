"""Choice of a built-in verify function for the answers of a dataset."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from grpo_practice.config.schema.runs import PracticeSettings
from grpo_practice.data.stats import kind
from grpo_practice.types import Gold, Sample
from grpo_practice.verify.answers import gold_texts
from grpo_practice.verify.builtin import BUILT_INS
from grpo_practice.verify.resolve import VerifyFunction, check_gold, resolve

SHORT, WORDS = 80, 5
"""Characters and words of an answer that a right response holds word for word; more is prose."""
WITHOUT_PARAMETERS = tuple(
    name
    for name, built_in in BUILT_INS.items()
    if not any(param.required for param in built_in.params.values())
)
"""Built-in functions that work as they are, in the table's order."""
LEFT_OUT: float = PracticeSettings.model_fields["max_failed_share"].default
"""Most of the answers that a run with the default settings leaves out."""
SAMPLED = 200
"""Answers that a function is tried on before it is named in a next step."""


def best_suited(golds: Iterable[Gold | Sample]) -> str:
    """Name the built-in function that most answers look made for; `judge` where there is none."""
    kinds, short = Counter[str](), 0
    for gold in golds:
        for text in gold_texts(gold.answer):
            kinds[kind(text)] += 1
            short += len(text) <= SHORT and len(text.split()) <= WORDS and "。" not in text
    total = kinds.total()
    if not total:
        return "judge"
    if 2 * (kinds["choice letter"] + kinds["choice letters"]) > total:
        return "choice"
    if 2 * kinds["text"] <= total:
        return "math"
    return "contains" if 2 * short > total else "judge"


def usable(golds: Sequence[Gold | Sample], name: str | None = None) -> str:
    """Name a function that a run can use: `name` (default: the best suited), or another.

    A run leaves out the few answers that it cannot use. Only about `SAMPLED` answers are tried,
    spread over the dataset.
    """
    tried = [golds[n] for n in spread(len(golds))]
    name = name or best_suited(tried)
    function = by_name(name)
    if few(sum(check_gold(function, gold) is not None for gold in tried), len(tried)):
        return name
    # The judge is the only one that needs no answer.
    return "exact" if all(has_gold(gold) for gold in tried) else "judge"


def few(unusable: int, n: int) -> bool:
    """Return whether a run with the default settings goes on without so many of n answers."""
    return unusable <= LEFT_OUT * n


def spread(n: int) -> range:
    """Return the positions of the rows that are tried, of so many."""
    return range(0, n, max(1, n // SAMPLED))


def has_gold(gold: Gold | Sample) -> bool:
    """Return whether there is an answer that is not blank."""
    return any(text.strip() for text in gold_texts(gold.answer))


def unusable_counts(golds: Iterable[Gold | Sample]) -> dict[str, int]:
    """Count, for each function without parameters, the rows whose answers it cannot use."""
    functions = {name: by_name(name) for name in WITHOUT_PARAMETERS}
    counts = dict.fromkeys(functions, 0)
    for gold in golds:
        for name, function in functions.items():
            counts[name] += check_gold(function, gold) is not None
    return counts


def unusable_rows(golds: Iterable[Gold | Sample], name: str) -> dict[int, str]:
    """Return why the function cannot use an answer, by row number from 1."""
    function, found, last = by_name(name), dict[int, str](), ""
    for n, gold in enumerate(golds, 1):
        if reason := check_gold(function, gold):
            # One text for equal reasons in a row: there may be a million of them.
            last = last if reason == last else reason
            found[n] = last
    return found


def by_name(name: str) -> VerifyFunction:
    """Resolve a function named in a command: a built-in, or FILE.py:FUNC of the current folder.

    Raises:
        ConfigError: There is no such function.
    """
    return resolve(name, {}, None, Path.cwd())
