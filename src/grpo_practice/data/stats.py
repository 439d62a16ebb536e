"""Figures of a dataset: lengths, kinds of answers, questions that come again."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from grpo_practice.canonical import canon
from grpo_practice.data.split import folded
from grpo_practice.text import CHARS_PER_TOKEN
from grpo_practice.types import Answer, Sample

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


def stats(samples: Sequence[Sample]) -> Stats:
    """Count what there is in a dataset of at least one sample."""
    texts = [s.question for s in samples]
    answers = [
        len(" ".join(map(str, a)) if isinstance(a, list) else str(a))
        for a in (s.answer for s in samples)
        if a is not None
    ]
    exact, alike = set(texts), set(map(folded, texts))
    given = defaultdict[str, set[bytes]](set)
    for s in samples:
        if s.answer is not None:
            given[folded(s.question)].add(canon(s.answer))
    return Stats(
        rows=len(samples),
        question_chars=_lengths(map(len, texts)),
        question_tokens=_lengths(-(-len(t.encode()) // CHARS_PER_TOKEN) for t in texts),
        answer_chars=_lengths(answers) if answers else None,
        answers=_counted(map(kind, (s.answer for s in samples))),
        questions=len(alike),
        repeated=len(texts) - len(exact),
        repeated_folded=len(texts) - len(alike),
        contradicted=sum(len(different) > 1 for different in given.values()),
        sources=_counted(s.source for s in samples if s.source),
        levels=_counted(s.level for s in samples if s.level is not None),
        clusters=len({s.cluster for s in samples if s.cluster is not None}),
    )


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda pair: (-pair[1], pair[0])))


def _lengths(values: Iterable[int]) -> Lengths:
    found = sorted(values)
    last = len(found) - 1
    # The smallest value that so many are not above: a length that is really there.
    return Lengths(found[0], found[last // 2], found[-(-last * 95 // 100)], found[-1])


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
