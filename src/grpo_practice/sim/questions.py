"""The world's questions, made from templates and read back from their text: sums, and labels.

One template serves both ways: filled with numbers it is a question, turned into a pattern it
finds the question in whatever prompt it stands in.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from random import Random
from typing import Literal

from grpo_practice.sim.labels import LABELS, LabelTopic
from grpo_practice.types import Sample

Task = Literal["math", "labels", "tools"]
"""Kind of question: sums, words of a short list, or sums that take many turns with a tool."""
Numbers = Mapping[str, int]
Sum = Callable[..., Fraction | int | str]
"""A value computed from a question's numbers, given by name."""

NAMES = ("Ada", "Bela", "Chen", "Dana", "Emil", "Fatma", "Goran", "Hana", "Ines", "Jonas")
THINGS = ("apples", "books", "candles", "marbles", "pencils", "stamps", "tiles", "tulips")
DRAWS = 1_000


@dataclass(frozen=True, slots=True)
class Topic:
    """One kind of question."""

    name: str
    wordings: tuple[str, ...]
    draw: Callable[[Random], dict[str, int]]
    """Numbers for a question; not every draw gives a usable one."""
    answer: Sum
    slips: tuple[Sum, Sum]
    """Answers that two common mistakes lead to."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question of this world, read from a text."""

    text: str
    """The question's own words, without the text around them."""
    topic: str
    answer: int | str
    slips: tuple[int | str, int | str]
    """Two plausible wrong answers, never the right one."""
    numbers: tuple[tuple[str, int], ...]
    """Those in its text, by the names its topic has for them."""


def _pairs_with_whole_mean() -> list[tuple[int, int]]:
    span = range(4, 91)
    return [(u, v) for u in span for v in span if u != v and 2 * u * v % (u + v) == 0]


_SPEEDS = _pairs_with_whole_mean()


def _speeds(r: Random) -> dict[str, int]:
    u, v = r.choice(_SPEEDS)
    return {"d": r.randint(5, 120), "u": u, "v": v}


def _shares(r: Random) -> dict[str, int]:
    m, h, each = r.randint(2, 9), r.randint(2, 9), r.randint(3, 20)
    return {"m": m, "h": h, "p": m * h * each, "n": r.randint(2, 12), "k": r.randint(2, 12)}


def _rise(r: Random) -> dict[str, int]:
    a, percent = r.randrange(20, 400, 4), r.randrange(5, 150, 5)
    return {"a": a, "b": a + a * percent // 100}


def _means(r: Random) -> dict[str, int]:
    m = r.randint(40, 80)
    return {"n": r.randint(3, 12), "m": m, "k": m + r.randint(1, 5)}


def _posts(r: Random) -> dict[str, int]:
    d = r.randint(2, 15)
    return {"d": d, "s": d * r.randint(5, 60)}


def _farm(r: Random) -> dict[str, int]:
    hens, goats = r.randint(3, 60), r.randint(3, 60)
    return {"h": hens + goats, "f": 2 * hens + 4 * goats}


TOPICS: Mapping[str, Topic] = {
    t.name: t
    for t in (
        Topic(
            "percent",
            (
                "A lamp that cost {a} coins last year costs {b} coins now. "
                "By how many percent has its price risen?",
                "A village had {a} inhabitants ten years ago and has {b} today. "
                "By how many percent has it grown?",
            ),
            _rise,
            lambda a, b: Fraction(100 * (b - a), a),
            (lambda a, b: 100 * (b - a) // b, lambda a, b: b - a),
        ),
        Topic(
            "remainder",
            (
                "{name} packs {a} {things} into boxes of {d} and fills as many boxes as possible. "
                "How many {things} are left over?",
                "{a} {things} are shared equally among {d} children, each getting as many as "
                "possible. How many {things} remain?",
            ),
            lambda r: {"a": r.randint(40, 900), "d": r.randint(6, 35)},
            lambda a, d: a % d,
            (lambda a, d: a // d, lambda a, d: d - a % d),
        ),
        Topic(
            "perimeter",
            (
                "A rectangular garden is {a} metres long and {b} metres wide. "
                "How many metres of fence go around it?",
                "{name} frames a picture that is {a} cm high and {b} cm wide. "
                "How many cm of frame go all the way around?",
            ),
            lambda r: {"a": r.randint(5, 90), "b": r.randint(5, 90)},
            lambda a, b: 2 * (a + b),
            (lambda a, b: a + b, lambda a, b: a * b),
        ),
        Topic(
            "rate",
            (
                "{m} machines make {p} screws in {h} hours. "
                "How many screws do {n} such machines make in {k} hours?",
                "{m} bakers bake {p} rolls in {h} hours. "
                "At this pace, how many rolls do {n} bakers bake in {k} hours?",
            ),
            _shares,
            lambda m, p, h, n, k: Fraction(p * n * k, m * h),
            (
                lambda m, p, h, n, k: p * k // h,
                lambda m, p, h, n, k: p * n // m,
            ),
        ),
        Topic(
            "sequence",
            (
                "A sequence starts with {a}, and each term is {d} more than the one before. "
                "What is term number {n}?",
                "{name} saves {a} coins in the first week and {d} coins more in every next week "
                "than in the one before. How many coins does {name} save in week {n}?",
            ),
            lambda r: {"a": r.randint(2, 60), "d": r.randint(3, 25), "n": r.randint(6, 60)},
            lambda a, d, n: a + (n - 1) * d,
            (lambda a, d, n: a + n * d, lambda a, d, n: n * d),
        ),
        Topic(
            "average",
            (
                "After {n} tests {name} has an average of {m} points; after one more test the "
                "average is {k}. How many points did the last test bring?",
                "The mean weight of {n} crates is {m} kg. With one crate more the mean is {k} kg. "
                "How many kg does the new crate weigh?",
            ),
            _means,
            lambda n, m, k: k * (n + 1) - m * n,
            (lambda n, m, k: 2 * k - m, lambda n, m, k: (m + k) // 2),
        ),
        Topic(
            "posts",
            (
                "Posts stand every {d} metres along a straight path of {s} metres, one at each "
                "end included. How many posts are there?",
                "{name} plants trees {d} metres apart along a straight road of {s} metres, "
                "starting at one end and finishing at the other. How many trees are needed?",
            ),
            _posts,
            lambda d, s: Fraction(s, d) + 1,
            (lambda d, s: s // d, lambda d, s: s // d - 1),
        ),
        Topic(
            "legs",
            (
                "A farm has hens and goats, together {h} heads and {f} legs. "
                "How many goats are there?",
                "In a yard stand bicycles and cars, together {h} vehicles with {f} wheels. "
                "How many cars are there?",
            ),
            _farm,
            lambda h, f: Fraction(f - 2 * h, 2),
            (lambda h, f: h - (f - 2 * h) // 2, lambda h, f: f // 4),
        ),
        Topic(
            "speed",
            (
                "{name} rides {d} km out at {u} km/h and the same way back at {v} km/h. "
                "What is the average speed of the whole ride in km/h?",
                "A boat goes {d} km down a river at {u} km/h and back again at {v} km/h. "
                "What is its average speed over the whole trip in km/h?",
            ),
            _speeds,
            lambda d, u, v: Fraction(2 * u * v, u + v),
            (lambda d, u, v: (u + v) // 2, lambda d, u, v: abs(u - v)),
        ),
        Topic(
            "discount",
            (
                "A coat costs {p} coins. It is reduced by {a} percent, and the new price by "
                "another {b} percent. How many coins does it cost in the end?",
                "{name} finds a bicycle for {p} coins, gets {a} percent off, and then {b} percent "
                "off the reduced price. How many coins are paid?",
            ),
            lambda r: {
                "p": r.randrange(100, 2_000, 100),
                "a": r.randrange(10, 60, 10),
                "b": r.randrange(10, 40, 10),
            },
            lambda p, a, b: Fraction(p * (100 - a) * (100 - b), 10_000),
            (lambda p, a, b: p * (100 - a - b) // 100, lambda p, a, b: p * (a + b) // 100),
        ),
    )
}


LONG = 10_000
"""Characters of a text above which what is found in it is not kept for the next time."""


def _labelled(topic: LabelTopic) -> Topic:
    """Return a topic whose answer is always the same word."""

    def constant(word: str) -> Sum:
        return lambda **_: word

    def draw(rng: Random) -> dict[str, int]:
        m = rng.randint(2, 99)
        return {"o": rng.randint(1_000, 99_999), "m": m, "b": m + rng.randint(1, 9)}

    first, second = map(constant, topic.slips)
    return Topic(topic.name, topic.wordings, draw, constant(topic.label), (first, second))


LABEL_TOPICS: Mapping[str, Topic] = {topic.name: _labelled(topic) for topic in LABELS}
"""Those of the task `labels`; all others ask for the sums of `TOPICS`."""


def topics_of(task: Task) -> Mapping[str, Topic]:
    """Return the topics of the questions of a task."""
    return LABEL_TOPICS if task == "labels" else TOPICS


def _pattern(wording: str) -> re.Pattern[str]:
    """Return the wording as a pattern: numbers are captured, other slots are any word."""
    seen = set[str]()

    def slot(match: re.Match[str]) -> str:
        name = match[1]
        if name in ("name", "things"):
            return r"\w+"
        again = name in seen
        seen.add(name)
        return rf"(?P={name})" if again else rf"(?P<{name}>\d{{1,9}})"

    literal = re.escape(wording).replace(r"\{", "{").replace(r"\}", "}").replace("\\ ", r"\s+")
    return re.compile(r"(?<![\w.])" + re.sub(r"{(\w+)}", slot, literal))


_PATTERNS = [
    (_pattern(wording), topic)
    for topic in (*TOPICS.values(), *LABEL_TOPICS.values())
    for wording in topic.wordings
]


def _work_out(topic: Topic, text: str, numbers: Numbers) -> Question | None:
    """Return the question with its answer; None when that is neither a word nor a whole number."""
    try:
        answer, (first, second) = topic.answer(**numbers), (s(**numbers) for s in topic.slips)
    except ZeroDivisionError:
        return None
    given = tuple(numbers.items())
    if isinstance(answer, str):
        return Question(text, topic.name, answer, (str(first), str(second)), given)
    if Fraction(answer).denominator != 1:
        return None
    right = int(answer)
    one, two = (s if (s := int(slip)) != right else right + 1 for slip in (first, second))
    return Question(text, topic.name, right, (one, two), given)


def find(text: str) -> Question | None:
    """Find the first question of this world that stands in the text; None when there is none."""
    # Long prompts are not kept: the cache would hold megabytes of them.
    return _find.__wrapped__(text) if len(text) > LONG else _find(text)


@lru_cache(maxsize=4_096)
def _find(text: str) -> Question | None:
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
    """Return `n` different questions with their answers, the topics in turn; `source` is the topic.

    Sums have whole-number answers. The first m of `questions(n, seed)` are `questions(m, seed)`,
    so a practice and a test set without common questions are two slices of one list.

    Raises:
        ValueError: There are not that many different questions.
    """
    rng, made, topics = Random(seed), dict[str, Sample](), list(topics_of(task).values())
    while len(made) < n:
        sample = _new(topics[len(made) % len(topics)], rng, made)
        made[sample.question] = sample
    return list(made.values())


def _new(topic: Topic, rng: Random, made: Mapping[str, Sample]) -> Sample:
    for _ in range(DRAWS):
        words = {"name": rng.choice(NAMES), "things": rng.choice(THINGS)}
        text = rng.choice(topic.wordings).format(**words, **topic.draw(rng))
        question = find(text)
        if text in made or question is None:
            continue
        if isinstance(question.answer, str) or question.answer > 0:
            return Sample(text, question.answer, source=topic.name)
    raise ValueError(f"there are not more than {len(made)} different questions")
