"""Figures of a dataset: lengths, kinds of answers, questions that come again."""

import re
from array import array
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from grpo_practice.canonical import canon
from grpo_practice.data.distinct import folded
from grpo_practice.text import CHARS_PER_TOKEN
from grpo_practice.types import Answer, Samples

SHORT = 80
"""Characters of a line of mathematics; a longer one is prose."""

_INTEGER = re.compile(r"[-+]?(\d+|\d{1,3}(,\d{3})+)")
_DECIMAL = re.compile(r"[-+]?(\d+|\d{1,3}(,\d{3})+)?(\.\d+)?([eE][-+]?\d+)?\s*%?")
_CHOICE = re.compile(r"\(?[A-Ja-j][).]?")
_CHOICES = re.compile(r"[A-J](, [A-J])+")
_SIGNS = re.compile(r"\\[A-Za-z]+|[\d=^_/*+<>|√π∞±\u00d7·≤≥{}]")
_WORD = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{3,}")
_NAMES = frozenset({"sqrt", "sin", "cos", "tan", "log", "exp", "frac", "max", "min", "mod", "inf"})


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lengths of texts."""

    shortest: int
    median: int
    p95: int
    longest: int


@dataclass(frozen=True, slots=True)
class Stats:
    """Figures of a dataset."""

    rows: int
    question_chars: Lengths
    question_tokens: Lengths
    """Estimates; every model counts its own."""
    answer_chars: Lengths | None
    """Lengths; None where no row has an answer."""
    answers: dict[str, int]
    """Kind → rows, the commonest first."""
    questions: int
    """Different ones, case and spaces folded."""
    repeated: int
    """Rows whose question an earlier row has, letter by letter."""
    repeated_folded: int
    """The same, case and spaces folded: these are among them."""
    contradicted: int
    """Questions with two different answers."""
    sources: dict[str, int]
    levels: dict[str, int]
    clusters: int
    """Different ones that are named."""


def stats(samples: Samples) -> Stats:
    """Count what there is in a dataset of at least one sample."""
    import numpy as np

    counters = [Counter[Any]() for _ in range(6)]
    question_chars, question_tokens, answer_chars, kinds, sources, levels = counters
    # Hashes, not texts: the dataset may be more than the memory holds.
    exact, alike, clusters, asked, given = (array("q") for _ in range(5))
    for sample in samples:
        text, answer = sample.question, sample.answer
        exact.append(hash(text))
        alike.append(hash(folded(text)))
        question_chars[len(text)] += 1
        question_tokens[-(-len(text.encode()) // CHARS_PER_TOKEN)] += 1
        kinds[kind(answer)] += 1
        if answer is not None:
            parts = answer if isinstance(answer, list) else [answer]
            answer_chars[len(" ".join(map(str, parts)))] += 1
            asked.append(alike[-1])
            given.append(hash(canon(answer)))
        if sample.source:
            sources[sample.source] += 1
        if sample.level is not None:
            levels[sample.level] += 1
        if sample.cluster is not None:
            clusters.append(hash(sample.cluster))
    questions = len(np.unique(alike))
    _, answers = np.unique(np.unique(np.array([asked, given]), axis=1)[0], return_counts=True)
    return Stats(
        rows=len(exact),
        question_chars=_lengths(question_chars),
        question_tokens=_lengths(question_tokens),
        answer_chars=_lengths(answer_chars) if answer_chars else None,
        answers=_ordered(kinds),
        questions=questions,
        repeated=len(exact) - len(np.unique(exact)),
        repeated_folded=len(exact) - questions,
        contradicted=int((answers > 1).sum()),
        sources=_ordered(sources),
        levels=_ordered(levels),
        clusters=len(np.unique(clusters)),
    )


def _ordered(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


def _lengths(counts: Counter[int]) -> Lengths:
    lengths = sorted(counts)
    up_to = list(accumulate(counts[length] for length in lengths))
    last = up_to[-1] - 1
    # The smallest value that so many are not above: a length that is really there.
    median, p95 = (lengths[bisect(up_to, place)] for place in (last // 2, -(-last * 95 // 100)))
    return Lengths(lengths[0], median, p95, lengths[-1])


def kind(answer: Answer) -> str:
    """Name the kind of an answer: `integer`, `choice letter`, `text` and so on."""
    match answer:
        case None:
            return "missing"
        case bool():
            return "truth"
        case list():
            return "list"
        case int():
            return "integer"
        case float():
            return "decimal"
        case str():
            text = answer.strip().strip("$").strip()
            return next(name for name, fits in _KINDS if fits(text))


_KINDS: Sequence[tuple[str, Callable[[str], object]]] = (
    ("integer", _INTEGER.fullmatch),
    ("decimal", lambda text: any(c.isdigit() for c in text) and _DECIMAL.fullmatch(text)),
    ("choice letter", _CHOICE.fullmatch),
    ("choice letters", _CHOICES.fullmatch),
    (
        "expression",
        lambda text: (
            len(text) <= SHORT
            and _SIGNS.search(text)
            and all(word.lower() in _NAMES for word in _WORD.findall(text))
        ),
    ),
    ("text", lambda _: True),
)
