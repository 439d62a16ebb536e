"""The world behind the simulated endpoint: how hard each question is, what each experience does.

    logit p(q, S) = theta_q + sum over j in S of (own_j if topics match else other_j)
                    - dilution * tokens / 1000 + jitter(q, S) + drift * served / 1000

Everything is a function of the world's seed, of texts and of the number of requests answered
before, so that the endpoint and the exact values (`truth`, with none before) speak of the same
thing. The transports count the requests; this package keeps nothing.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

from grpo_practice.errors import ConfigError
from grpo_practice.sim.questions import LABEL_TOPICS, TOPICS, Task, find

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

EffectKind = Literal["help", "null", "harm"]

EDGE = 0.01
"""No question is easier than 1 - EDGE or harder than EDGE before any experience."""


def unit(*parts: object) -> float:
    """Return a number in [0, 1) that depends on the parts alone."""
    text = "|".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:8]) / 2**64


class _Strict:
    """The fields that a world file may hold, and nothing else."""

    __slots__ = ()
    # JSON as Python reads it has NaN, and 1e999 for infinity.
    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, slots=True)
class Difficulty(_Strict):
    """The chance to solve a question without any experience is drawn from Beta(a, b)."""

    a: float = 0.5
    b: float = 0.4


@dataclass(frozen=True, slots=True)
class Rule(_Strict):
    """Effect of an experience that the world's table does not list."""

    p_help: float = 0.4
    p_null: float = 0.3
    """The rest is harmful."""
    size: tuple[float, float] = (1.5, 2.5)
    """Range of the effect on questions of its own topic, in logits."""
    spill: float = 0.05
    """Share of it that reaches the other topics."""


@dataclass(frozen=True, slots=True)
class Item(_Strict):
    """One experience as the world sees it."""

    kind: EffectKind
    own: float
    """Logits on questions of its topic."""
    other: float
    """Logits on all other questions."""
    tokens: int = 33
    """About what its line in a library takes, at four characters each."""


@dataclass(frozen=True, slots=True)
class Teaching(_Strict):
    """How good the lessons of the simulated teacher are."""

    top: float = 0.95
    """Chance of a helpful lesson when many good and many bad attempts were seen."""
    miss: float = 0.2
    """Chance to see nothing in one attempt; what w good and l bad ones show is independent."""
    luck: float = 0.05
    """Chance of a helpful lesson when there was nothing to compare."""
    blind: float = 0.6
    """Factor when nobody says which attempts are right."""
    harm: float = 0.35
    """Share of the lessons that are not helpful and do harm."""
    noise: float = 0.0
    """Chance to be wrong about a group: to take the worse attempts for the better ones, or to go
    against the evidence about an experience."""
    forms: Literal["json", "mixed"] = "mixed"
    """How it writes what code is to read: always JSON, or as models do, now so, now so."""

    def p_help(self, wins: int, losses: int, *, truth: bool = True) -> float:
        """Return the chance that comparing so many telling attempts gives a helpful lesson."""
        seen = (1 - self.miss**wins) * (1 - self.miss**losses)
        return max(self.luck, self.top * seen * (1.0 if truth else self.blind))


@dataclass(frozen=True, slots=True)
class Failing(_Strict):
    """Chances that a request gets HTTP 500, by the answer that it would have got.

    Drawn from the request, so that a request sent again fails again.
    """

    right: float = 0.0
    wrong: float = 0.0


@dataclass(frozen=True, slots=True)
class World(_Strict):
    """Questions, experiences and a teacher, all drawn from one seed."""

    seed: int = 0
    difficulty: Difficulty = Difficulty()
    rule: Rule = Rule()
    items: Mapping[str, Item] = field(default_factory=dict, hash=False)
    """Experiences by key that do not follow the rule."""
    dilution: float = 0.5
    """Logits lost per 1,000 tokens of instructions and library."""
    teacher: Teaching = Teaching()
    task: Task = "math"
    """Kind of its questions; with `tools`, the student works in many turns with long results."""
    jitter: float = 0.0
    """Standard deviation, in logits, of what each set of experiences adds to each question by
    chance: the score of a library is then not the sum of its experiences."""
    drift: float = 0.0
    """Logits by which all answers get better (or worse, below 0) per 1,000 requests answered."""
    fail: Failing = Failing()

    def __post_init__(self) -> None:
        if min(self.difficulty.a, self.difficulty.b) <= 0:
            raise ValueError("difficulty: a and b must be above 0")
        if min(self.rule.p_help, self.rule.p_null) < 0 or self.rule.p_help + self.rule.p_null > 1:
            raise ValueError("rule: p_help and p_null must be shares that add up to at most 1")
        if not 0 <= self.teacher.noise <= 1:
            raise ValueError("teacher: noise must be a share from 0 to 1")
        if not 0 <= self.jitter < math.inf:
            raise ValueError("jitter must be a finite number of at least 0")
        if not math.isfinite(self.drift):
            raise ValueError("drift must be a finite number")
        if not (0 <= self.fail.right <= 1 and 0 <= self.fail.wrong <= 1):
            raise ValueError("fail: right and wrong must be shares from 0 to 1")

    @classmethod
    def load(cls, path: Path) -> "World":
        """Load the world in a JSON file; keys left out keep their defaults.

        Raises:
            ConfigError: The file cannot be read, or is not a world; the message names the key.
        """
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(cls).validate_json(path.read_bytes())
        except OSError as e:
            why = f"cannot read the world {path}: {e.strerror}"
            raise ConfigError(why, hint='a world is a JSON file, such as {"seed": 3}') from e
        except ValidationError as e:
            parts = (
                (*map(str, d["loc"]), d["msg"].removeprefix("Value error, ")) for d in e.errors()
            )
            wrong = "; ".join(": ".join(filter(None, (".".join(k), told))) for *k, told in parts)
            hint = f"its keys are {', '.join(f.name for f in fields(cls))}; all may be left out"
            raise ConfigError(f"{path}: not a world: {wrong}", hint=hint) from e

    def item(self, key: str) -> Item:
        """Return what the experience does."""
        if key in self.items:
            return self.items[key]
        rule, draw = self.rule, unit(self.seed, "kind", key)
        if draw < rule.p_null:
            return Item("null", 0.0, 0.0)
        low, high = rule.size
        size = low + (high - low) * unit(self.seed, "size", key)
        if draw < rule.p_null + rule.p_help:
            return Item("help", size, rule.spill * size)
        return Item("harm", -size, -rule.spill * size)

    def key(self, topic: str, kind: EffectKind, nth: int = 0) -> str:
        """Return the key of the nth experience of this kind about the topic.

        In a world without experiences of that kind, one of another kind.
        """
        found = _keys(self, topic, kind)
        return found[nth % len(found)]

    def p(self, question: str, keys: Sequence[str], tokens: float, *, served: int = 0) -> float:
        """Return the chance of a right answer; 0 for a question that is not of this world.

        One key shown twice counts once; `tokens` is the length of what the student reads besides
        the question, `served` the number of requests answered before.
        """
        logits = self.logits(question, tuple(dict.fromkeys(keys)))
        if logits is None:
            return 0.0
        against = self.dilution * tokens / 1_000 - sum(logits)
        against -= self._interaction(question, keys) + self.drift * served / 1_000
        return 1 / (1 + math.exp(min(against, 700.0)))  # exp(710) overflows

    def _interaction(self, question: str, keys: Sequence[str]) -> float:
        """Draw the logits that the set of these experiences adds to a question by chance."""
        found = find(question) if self.jitter else None
        if found is None:
            return 0.0
        rng = Random(f"{self.seed}|jitter|{found.text}|{' '.join(sorted(set(keys)))}")
        return rng.gauss(0.0, self.jitter)

    def logits(self, question: str, keys: Sequence[str]) -> list[float] | None:
        """Return the question's own logit, then what each experience adds to it. Shape: [1 + m].

        None for a question that is not of this world. Without jitter, which is no experience's.
        """
        base = _base(self, question)
        if base is None:
            return None
        theta, topic = base
        items = [(topic_of(key), self.item(key)) for key in keys]
        return [theta, *(i.own if about == topic else i.other for about, i in items)]

    def truth(
        self, questions: Sequence[str], keys: Sequence[str], tokens: float | None = None
    ) -> "Floats":
        """Return the chance of a right answer to each question. Shape: [q].

        `tokens` is by default the length of the experiences.
        """
        import numpy as np

        keys = tuple(dict.fromkeys(keys))
        if tokens is None:
            tokens = sum(self.item(k).tokens for k in keys)
        return np.array([self.p(q, keys, tokens) for q in questions], dtype=np.float64)

    def sample(self, questions: Sequence[str], keys: Sequence[str], k: int, seed: int) -> "Floats":
        """Draw rewards of k attempts at each question, by the chances of `truth`. Shape: [q, k]."""
        import numpy as np

        p = self.truth(questions, keys)
        return (np.random.default_rng(seed).random((len(questions), k)) < p[:, None]).astype(float)


@lru_cache(maxsize=100_000)
def _base(world: World, question: str) -> tuple[float, str] | None:
    """Return the question's difficulty in logits, and its topic; None for a foreign question."""
    found = find(question)
    if found is None:
        return None
    rng = Random(f"{world.seed}|difficulty|{found.text}")
    p = rng.betavariate(world.difficulty.a, world.difficulty.b)
    p = min(max(p, EDGE), 1 - EDGE)
    return math.log(p / (1 - p)), found.topic


@lru_cache(maxsize=1_000)
def _keys(world: World, topic: str, kind: EffectKind) -> tuple[str, ...]:
    """Return the keys of a kind about a topic, in the world's order; of all kinds if none has."""
    codes = [f"{topic}-{code:02x}" for code in range(256)]
    keys = sorted(codes, key=lambda key: unit(world.seed, "order", key))
    return tuple(k for k in keys if world.item(k).kind == kind) or tuple(keys)


def topic_of(key: str) -> str:
    """Return the topic of an experience: named by its key, else picked by it."""
    name = key.partition("-")[0]
    if name in TOPICS or name in LABEL_TOPICS:
        return name
    names = list(TOPICS)
    return names[int(unit("topic", key) * len(names))]
