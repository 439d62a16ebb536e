"""The world behind the simulated endpoint: the difficulty of questions, the effect of experiences.

    logit p(q, S) = theta_q + sum over j in S of (own_j if topics match else other_j)
                    - dilution * tokens / 1000 + jitter(q, S) + drift * served / 1000

Everything is a function of the world's seed, of texts, and of the number of requests answered
before. The endpoint and the exact values (`truth`, for no requests before) therefore agree. The
transports count the requests; this package keeps no state.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, ClassVar, Literal

from grpo_practice.core.errors import ConfigError
from grpo_practice.sim.questions import LABEL_TOPICS, TOPICS, Task, find

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

EffectKind = Literal["help", "null", "harm"]

EDGE = 0.01
"""Minimum distance from 0 and 1 of the probability of solving a question without experiences."""
TRUISM = "truism"
"""First part of the keys of advice without any situation, which has no effect in any world."""


def unit(*parts: object) -> float:
    """Return a number in [0, 1) that depends on the parts only."""
    # `replace`, because prompts may contain lone surrogates.
    text = "|".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:8]) / 2**64


class _Strict:
    """Base class of the objects in a world file, which reject unknown keys."""

    __slots__ = ()
    # Python's JSON parser accepts NaN, and reads 1e999 as infinity.
    __pydantic_config__: ClassVar = {"extra": "forbid", "allow_inf_nan": False}


@dataclass(frozen=True, slots=True)
class Difficulty(_Strict):
    """Distribution of the probability of solving a question without any experience: Beta(a, b)."""

    a: float = 0.5
    b: float = 0.4


@dataclass(frozen=True, slots=True)
class Rule(_Strict):
    """Effect of an experience that the world's table does not list."""

    p_help: float = 0.4
    p_null: float = 0.3
    """Probability of no effect; the remainder is harmful."""
    size: tuple[float, float] = (1.5, 2.5)
    """Range of the effect on questions of its own topic, in logits."""
    harm_size: tuple[float, float] | None = None
    """Range of a harmful effect, if it is not that of `size`."""
    spill: float = 0.05
    """Share of the effect that applies to questions of other topics."""


@dataclass(frozen=True, slots=True)
class Item(_Strict):
    """Effect of one experience."""

    kind: EffectKind
    own: float
    """Logits added to questions of its topic."""
    other: float
    """Logits added to all other questions."""
    tokens: int = 33
    """Approximate length of its line in a library, at four characters per token."""


@dataclass(frozen=True, slots=True)
class Teaching(_Strict):
    """Quality of the simulated teacher's lessons."""

    top: float = 0.95
    """Probability of a helpful lesson after many good and many bad attempts."""
    miss: float = 0.2
    """Probability of learning nothing from one attempt, independently of the other attempts."""
    luck: float = 0.05
    """Probability of a helpful lesson if there is nothing to compare."""
    blind: float = 0.6
    """Factor that applies if rewards do not show which attempts are right."""
    harm: float = 0.35
    """Share of the unhelpful lessons that do harm."""
    noise: float = 0.0
    """Probability of an error about a group: of mistaking the worse attempts for the better ones,
    or of acting against the evidence about an experience.
    """
    bias: float = 0.0
    """Share of the topics about which it is always wrong: it mistakes the worse attempts for the
    better ones.
    """
    adds: float = 0.0
    """Share of the lessons that name no experience, even if the library holds the same or another
    method: each of them becomes an addition. A lesson that only accuses an experience is left out.
    """
    truism: float = 0.0
    """Probability that a comparison begins with advice that fits every task and helps with none.
    This advice is given in addition to the number of lessons asked for.
    """
    wordings: Literal[1, 2, 3, 4] = 1
    """Number of ways in which it words the same lesson; each comparison draws one."""
    forms: Literal["json", "mixed"] = "mixed"
    """Format of replies that code parses: always JSON, or a random mix of formats that models
    use.
    """

    def p_help(self, wins: int, losses: int, *, truth: bool = True) -> float:
        """Return the probability that comparing this many attempts yields a helpful lesson."""
        seen = (1 - self.miss**wins) * (1 - self.miss**losses)
        return max(self.luck, self.top * seen * (1.0 if truth else self.blind))


@dataclass(frozen=True, slots=True)
class Failing(_Strict):
    """Probabilities of HTTP 500 for a request, given whether its answer would have been right.

    The draw depends only on the request, so a retry fails again.
    """

    right: float = 0.0
    wrong: float = 0.0


@dataclass(frozen=True, slots=True)
class World(_Strict):
    """Questions, experiences and a teacher, all derived from one seed."""

    seed: int = 0
    difficulty: Difficulty = Difficulty()
    rule: Rule = Rule()
    # Excluded from the hash: a dict is unhashable, but worlds are keys of caches.
    items: Mapping[str, Item] = field(default_factory=dict, hash=False)
    """Experiences that do not follow the rule, by key."""
    dilution: float = 0.5
    """Logits lost per 1,000 tokens of instructions and library."""
    teacher: Teaching = Teaching()
    task: Task = "math"
    """Kind of questions. With `tools`, the student works in many turns with long results. With
    `calls`, its answer is always right, but it may misuse the tool `record`.
    """
    jitter: float = 0.0
    """Standard deviation, in logits, of a random interaction between each question and each set of
    experiences. With jitter, the score of a library is not the sum of its experiences.
    """
    drift: float = 0.0
    """Logits that all questions gain (or lose, if negative) per 1,000 requests answered."""
    fail: Failing = Failing()

    def __post_init__(self) -> None:
        if min(self.difficulty.a, self.difficulty.b) <= 0:
            raise ValueError("difficulty: a and b must be above 0")
        if min(self.rule.p_help, self.rule.p_null) < 0 or self.rule.p_help + self.rule.p_null > 1:
            raise ValueError("rule: p_help and p_null must be shares that add up to at most 1")
        errs = self.teacher
        shares = {"noise": errs.noise, "bias": errs.bias, "adds": errs.adds, "truism": errs.truism}
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise ValueError(f"teacher: {name} must be a share from 0 to 1")
        if not 0 <= self.jitter < math.inf:
            raise ValueError("jitter must be a finite number of at least 0")
        if not math.isfinite(self.drift):
            raise ValueError("drift must be a finite number")
        if not (0 <= self.fail.right <= 1 and 0 <= self.fail.wrong <= 1):
            raise ValueError("fail: right and wrong must be shares from 0 to 1")

    @classmethod
    def load(cls, path: Path) -> "World":
        """Load the world from a JSON file; omitted keys keep their defaults.

        Raises:
            ConfigError: The file is unreadable or not a world; the message names the key.
        """
        # Imported here: pydantic is slow to import, and only world files need it.
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
            hint = f"its keys are {', '.join(f.name for f in fields(cls))}; all are optional"
            raise ConfigError(f"{path} is not a world: {wrong}", hint=hint) from e

    def item(self, key: str) -> Item:
        """Return the effect of the experience."""
        if key in self.items:
            return self.items[key]
        rule, draw = self.rule, unit(self.seed, "kind", key)
        if draw < rule.p_null or key.startswith(f"{TRUISM}-"):
            return Item("null", 0.0, 0.0)
        helps = draw < rule.p_null + rule.p_help
        low, high = rule.size if helps else rule.harm_size or rule.size
        size = low + (high - low) * unit(self.seed, "size", key)
        if helps:
            return Item("help", size, rule.spill * size)
        return Item("harm", -size, -rule.spill * size)

    def happens(self, share: float, *parts: object) -> bool:
        """Return whether an event with this probability happens, as the world's seed decides."""
        return unit(self.seed, *parts) < share

    @property
    def biased(self) -> frozenset[str]:
        """Topics about which the teacher is always wrong."""
        topics = list(LABEL_TOPICS if self.task == "labels" else TOPICS)
        topics.sort(key=lambda topic: unit(self.seed, "bias", topic))
        return frozenset(topics[: round(self.teacher.bias * len(topics))])

    def key(self, topic: str, kind: EffectKind, nth: int = 0) -> str:
        """Return the key of the nth experience of this kind about the topic.

        If the world has no experience of this kind, return the key of another kind.
        """
        # Modulo, because a world may have fewer experiences of this kind than are asked for.
        found = _keys(self, topic, kind)
        return found[nth % len(found)]

    def p(self, question: str, keys: Sequence[str], tokens: float, *, served: int = 0) -> float:
        """Return the probability of a right answer; 0 for a question that is not of this world.

        Duplicate keys count once. `tokens` is the length of the student's prompt apart from the
        question; `served` is the number of requests answered before.
        """
        logits = self.logits(question, tuple(dict.fromkeys(keys)))
        if logits is None:
            return 0.0
        against = self.dilution * tokens / 1_000 - sum(logits)
        against -= self._interaction(question, keys) + self.drift * served / 1_000
        return 1 / (1 + math.exp(min(against, 700.0)))  # exp(710) overflows

    def _interaction(self, question: str, keys: Sequence[str]) -> float:
        """Draw the random logits that this set of experiences adds to a question."""
        found = find(question) if self.jitter else None
        if found is None:
            return 0.0
        # Sorted, because the interaction belongs to the set of experiences, not to their order.
        rng = Random(f"{self.seed}|jitter|{found.text}|{' '.join(sorted(set(keys)))}")
        return rng.gauss(0.0, self.jitter)

    def logits(self, question: str, keys: Sequence[str]) -> list[float] | None:
        """Return the question's logit, then each experience's contribution. Shape: [1 + m].

        Jitter is excluded, because it belongs to no single experience. Return None for a question
        that is not of this world.
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
        """Return the probability of a right answer to each question. Shape: [q].

        `tokens` defaults to the length of the experiences.
        """
        import numpy as np

        keys = tuple(dict.fromkeys(keys))
        if tokens is None:
            tokens = sum(self.item(k).tokens for k in keys)
        return np.array([self.p(q, keys, tokens) for q in questions], dtype=np.float64)


@lru_cache(maxsize=100_000)
def _base(world: World, question: str) -> tuple[float, str] | None:
    """Return the question's difficulty in logits and its topic; None for another text."""
    found = find(question)
    if found is None:
        return None
    rng = Random(f"{world.seed}|difficulty|{found.text}")
    p = rng.betavariate(world.difficulty.a, world.difficulty.b)
    # Beta draws close to 0 or 1 would have logits that no experience could change.
    p = min(max(p, EDGE), 1 - EDGE)
    return math.log(p / (1 - p)), found.topic


@lru_cache(maxsize=1_000)
def _keys(world: World, topic: str, kind: EffectKind) -> tuple[str, ...]:
    """Return a topic's keys of this kind in the world's order; all its keys if none match."""
    codes = [f"{topic}-{code:02x}" for code in range(256)]
    keys = sorted(codes, key=lambda key: unit(world.seed, "order", key))
    return tuple(k for k in keys if world.item(k).kind == kind) or tuple(keys)


def topic_of(key: str) -> str:
    """Return the topic that an experience's key names, or else one chosen by a hash of the key."""
    name = key.partition("-")[0]
    if name in TOPICS or name in LABEL_TOPICS:
        return name
    names = list(TOPICS)
    return names[int(unit("topic", key) * len(names))]
