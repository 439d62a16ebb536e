"""The questions of this world (sums and labels), generated from templates and recognised in text.

The same template serves both purposes. Filled with numbers, it is a question; compiled into a
pattern, it finds the question in any prompt.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, Literal

from grpo_practice.core.types import Sample


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


_TEXTS = tomllib.loads(Path(__file__).with_name("topics.toml").read_text(encoding="utf-8"))
SUMS: Mapping[str, Lore] = {name: _read(entry) for name, entry in _TEXTS["sums"].items()}
LABELS: Mapping[str, Lore] = {name: _read(entry) for name, entry in _TEXTS["labels"].items()}
"""Questions whose answers are words: tickets, premises, tools, rules.

All of them share six labels, so many questions have the same answer. The task is to know which
label belongs to a situation; helpful advice names that label.
"""
LORE: Mapping[str, Lore] = {**SUMS, **LABELS}


Task = Literal["math", "labels", "tools", "calls"]
"""Kind of question: sums, words from a short list, or sums that take many turns with a tool."""
Numbers = Mapping[str, int]
Sum = Callable[..., Fraction | int | str]
"""Function that computes a value from a question's numbers, passed by name."""
Draw = Callable[[Random], dict[str, int]]

NAMES = ("Ada", "Bela", "Chen", "Dana", "Emil", "Fatma", "Goran", "Hana", "Ines", "Jonas")
THINGS = ("apples", "books", "candles", "marbles", "pencils", "stamps", "tiles", "tulips")
DRAWS = 1_000


@dataclass(frozen=True, slots=True)
class Topic:
    """One kind of question."""

    name: str
    wordings: tuple[str, ...]
    draw: Draw
    """Function that draws the numbers of a question; not every draw is usable."""
    answer: Sum
    slips: tuple[Sum, Sum]
    """Functions that compute the results of two common mistakes."""


@dataclass(frozen=True, slots=True)
class MadeQuestion:
    """A question of this world, read from a text."""

    text: str
    """Wording of the question, without the surrounding text."""
    topic: str
    answer: int | str
    slips: tuple[int | str, int | str]
    """Two plausible wrong answers, both different from the right one."""
    numbers: tuple[tuple[str, int], ...]
    """Numbers in its text, by their names in the topic."""


_SPEEDS = [
    (u, v) for u in range(4, 91) for v in range(4, 91) if u != v and 2 * u * v % (u + v) == 0
]
"""Pairs of speeds whose harmonic mean is an integer."""
_ARITHMETIC: Mapping[str, tuple[Draw, Sum, tuple[Sum, Sum]]] = {
    "percent": (
        lambda r: {"a": (a := r.randrange(20, 400, 4)), "b": a + a * r.randrange(5, 150, 5) // 100},
        lambda a, b: Fraction(100 * (b - a), a),
        (lambda a, b: 100 * (b - a) // b, lambda a, b: b - a),
    ),
    "remainder": (
        lambda r: {"a": r.randint(40, 900), "d": r.randint(6, 35)},
        lambda a, d: a % d,
        (lambda a, d: a // d, lambda a, d: d - a % d),
    ),
    "perimeter": (
        lambda r: {"a": r.randint(5, 90), "b": r.randint(5, 90)},
        lambda a, b: 2 * (a + b),
        (lambda a, b: a + b, lambda a, b: a * b),
    ),
    "rate": (
        lambda r: {
            "m": (m := r.randint(2, 9)),
            "h": (h := r.randint(2, 9)),
            "p": m * h * r.randint(3, 20),
            "n": r.randint(2, 12),
            "k": r.randint(2, 12),
        },
        lambda m, p, h, n, k: Fraction(p * n * k, m * h),
        (lambda m, p, h, n, k: p * k // h, lambda m, p, h, n, k: p * n // m),
    ),
    "sequence": (
        lambda r: {"a": r.randint(2, 60), "d": r.randint(3, 25), "n": r.randint(6, 60)},
        lambda a, d, n: a + (n - 1) * d,
        (lambda a, d, n: a + n * d, lambda a, d, n: n * d),
    ),
    "average": (
        lambda r: {
            "m": (m := r.randint(40, 80)),
            "n": r.randint(3, 12),
            "k": m + r.randint(1, 5),
        },
        lambda n, m, k: k * (n + 1) - m * n,
        (lambda n, m, k: 2 * k - m, lambda n, m, k: (m + k) // 2),
    ),
    "posts": (
        lambda r: {"d": (d := r.randint(2, 15)), "s": d * r.randint(5, 60)},
        lambda d, s: Fraction(s, d) + 1,
        (lambda d, s: s // d, lambda d, s: s // d - 1),
    ),
    "legs": (
        lambda r: {
            "h": (hens := r.randint(3, 60)) + (goats := r.randint(3, 60)),
            "f": 2 * hens + 4 * goats,
        },
        lambda h, f: Fraction(f - 2 * h, 2),
        (lambda h, f: h - (f - 2 * h) // 2, lambda h, f: f // 4),
    ),
    "speed": (
        lambda r: dict(zip("uv", r.choice(_SPEEDS), strict=True)) | {"d": r.randint(5, 120)},
        lambda d, u, v: Fraction(2 * u * v, u + v),
        (lambda d, u, v: (u + v) // 2, lambda d, u, v: abs(u - v)),
    ),
    "discount": (
        lambda r: {
            "p": r.randrange(100, 2_000, 100),
            "a": r.randrange(10, 60, 10),
            "b": r.randrange(10, 40, 10),
        },
        lambda p, a, b: Fraction(p * (100 - a) * (100 - b), 10_000),
        (lambda p, a, b: p * (100 - a - b) // 100, lambda p, a, b: p * (a + b) // 100),
    ),
}
"""Name of a topic → how to draw its numbers, its answer, and its slips."""
TOPICS: Mapping[str, Topic] = {
    name: Topic(name, SUMS[name].wordings, *ways) for name, ways in _ARITHMETIC.items()
}

LONG = 10_000
"""Maximum number of characters of a text whose question is cached."""


def _labelled(name: str, lore: Lore) -> Topic:
    """Return a topic whose answer is always the same word."""

    def constant(word: str) -> Sum:
        return lambda **_: word

    def draw(rng: Random) -> dict[str, int]:
        m = rng.randint(2, 99)
        return {"o": rng.randint(1_000, 99_999), "m": m, "b": m + rng.randint(1, 9)}

    answer, first, second = map(constant, lore.labels)
    return Topic(name, lore.wordings, draw, answer, (first, second))


LABEL_TOPICS: Mapping[str, Topic] = {n: _labelled(n, lore) for n, lore in LABELS.items()}
"""Topics of the task `labels`; all other tasks use the sums of `TOPICS`."""


def _pattern(wording: str) -> re.Pattern[str]:
    """Convert the wording to a regex that captures numbers and accepts any word in other slots."""
    seen = set[str]()

    def slot(match: re.Match[str]) -> str:
        name = match[1]
        if name in ("name", "things"):
            return r"\w+"
        again = name in seen
        seen.add(name)
        # A number that a wording repeats must be the same each time; otherwise the text is not one
        # of our questions.
        return rf"(?P={name})" if again else rf"(?P<{name}>\d{{1,9}})"

    literal = re.escape(wording).replace(r"\{", "{").replace(r"\}", "}").replace("\\ ", r"\s+")
    return re.compile(r"(?<![\w.])" + re.sub(r"{(\w+)}", slot, literal))


_PATTERNS = [
    (_pattern(wording), topic)
    for topic in (*TOPICS.values(), *LABEL_TOPICS.values())
    for wording in topic.wordings
]


def _work_out(topic: Topic, text: str, numbers: Numbers) -> MadeQuestion | None:
    """Return the question with its answer; None if the answer is neither a word nor an integer."""
    try:
        answer, (first, second) = topic.answer(**numbers), (s(**numbers) for s in topic.slips)
    except ZeroDivisionError:
        return None
    given = tuple(numbers.items())
    if isinstance(answer, str):
        return MadeQuestion(text, topic.name, answer, (str(first), str(second)), given)
    if Fraction(answer).denominator != 1:
        return None
    right = int(answer)
    # With some numbers a mistake gives the right result; a slip must always be wrong.
    one, two = (s if (s := int(slip)) != right else right + 1 for slip in (first, second))
    return MadeQuestion(text, topic.name, right, (one, two), given)


def find(text: str) -> MadeQuestion | None:
    """Find the first question of this world in the text; return None if it contains no question."""
    # Do not cache long prompts, which would take up megabytes.
    return _find.__wrapped__(text) if len(text) > LONG else _find(text)


@lru_cache(maxsize=4_096)
def _find(text: str) -> MadeQuestion | None:
    for pattern, topic in _PATTERNS:
        match = pattern.search(text)
        if match:
            numbers = {name: int(value) for name, value in match.groupdict().items()}
            return _work_out(topic, match[0], numbers)
    return None


def solve(question_text: str) -> int | str | None:
    """Return the answer to a question of this world; None for any other text."""
    question = find(question_text)
    return question.answer if question else None


def questions(n: int, seed: int, task: Task = "math") -> list[Sample]:
    """Generate `n` different questions with their answers, cycling through the topics.

    `source` is the topic. Answers to sums are integers. The first m of `questions(n, seed)` equal
    `questions(m, seed)`, so two slices of one list form a practice set and a test set without
    common questions.

    Raises:
        ValueError: There are fewer than `n` different questions.
    """
    rng, made = Random(seed), dict[str, Sample]()
    topics = list((LABEL_TOPICS if task == "labels" else TOPICS).values())
    while len(made) < n:
        # Cycle by the number made, so that a longer list begins with the shorter one.
        sample = _new(topics[len(made) % len(topics)], rng, made)
        made[sample.question] = sample
    return list(made.values())


def _new(topic: Topic, rng: Random, made: Mapping[str, Sample]) -> Sample:
    for _ in range(DRAWS):
        words = {"name": rng.choice(NAMES), "things": rng.choice(THINGS)}
        text = rng.choice(topic.wordings).format(**words, **topic.draw(rng))
        question = find(text)
        # `find` rejects draws whose answer is not an integer.
        if text in made or question is None:
            continue
        if isinstance(question.answer, str) or question.answer > 0:
            return Sample(text, question.answer, source=topic.name)
    raise ValueError(f"there are only {len(made)} different questions")
