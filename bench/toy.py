"""Practice in the simulated world without client, prompts or store: hundreds of runs in a minute.

What the student, the teacher and the librarian of `grpo_practice.sim` decide, on keys instead of
texts. The draws of a place (epoch, question, attempt) are the same under every policy, so that two
policies are compared on the same luck.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import floor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from grpo_practice.canonical import derive_seed
from grpo_practice.practice.plan import plan_practice
from grpo_practice.sim.questions import TOPICS, questions
from grpo_practice.sim.world import Difficulty, Kind, Teaching, World
from grpo_practice.types import Sample

Library = Mapping[int, str]
"""Label → key of each experience, in the library's order."""
Edit = tuple[int | None, str | None]
"""(None, key) adds, (label, key) updates, (label, None) deletes."""

EPOCHS, MOST, TESTED = 3, 150, 200
STEPS = 2
"""Of an epoch."""
LESSONS = 2
"""Of one group, at most."""
SECOND = 0.5
"""The chance of the second of two slips, or of two platitudes."""
KINDS: tuple[Kind, ...] = ("help", "null", "harm")


@dataclass(frozen=True, slots=True)
class Policy:
    """How groups are played."""

    attempts: int = 5
    """Rollouts of each group."""
    overlap: float = 0.0
    """The share of a step's groups that is played with the library of the step before."""
    again: float = 1.0
    """The chance of a question whose last group, in an earlier epoch, was uniform to be played."""
    questions: int = 100


@dataclass(slots=True)
class Outcome:
    """What a practice run came to."""

    rollouts: int = 0
    gains: list[float] = field(default_factory=list)
    """True gain on the test questions after each step, in points."""
    mixed: int = 0
    """Groups that were compared."""
    edits: Counter[str] = field(default_factory=Counter)
    """What was proposed, by the kind of the experience; `none` where it only deletes."""
    library: Counter[str] = field(default_factory=Counter)
    """How many experiences of each kind the last library holds."""


class Attempt(NamedTuple):
    """One attempt as the teacher sees it: the key of its method, the label it followed."""

    right: bool
    method: str
    followed: int | None


class Known(NamedTuple):
    """An experience of the world."""

    kind: Kind
    topic: str
    own: float
    other: float
    cost: float
    """Logits that its tokens take."""


@dataclass(frozen=True, slots=True)
class Luck:
    """All that is drawn for a run, by place."""

    right: NDArray[np.float64]
    slip: NDArray[np.float64]
    """Shape of both: [epoch, question, attempt]."""
    lesson: NDArray[np.float64]
    """Shape: [epoch, question, 3]: which lesson, which of two, whether what misled is seen."""
    again: NDArray[np.float64]
    """Shape: [epoch, question]: whether it is played although it taught nothing last time."""

    @classmethod
    def of(cls, seed: int) -> "Luck":
        """Independent of the difficulties of the world with that seed."""
        draw = np.random.default_rng((seed, 1))
        places = (EPOCHS, MOST)
        right, slip, lesson = (draw.random((*places, n)) for n in (5, 5, 3))
        again = np.array(
            [[_again(s, epoch, seed) for s in asked()[:MOST]] for epoch in range(EPOCHS)]
        )
        return cls(right, slip, lesson, again)


def _again(sample: Sample, epoch: int, seed: int) -> float:
    """The program's own draw, so that toy and client leave out the same."""
    return derive_seed(seed, "skip", sample.sha, epoch, 0, 0) / 2**31


@cache
def asked() -> list[Sample]:
    """The questions of every world: those that may be practised on, then those tested on."""
    return questions(MOST + TESTED, 0)


@cache
def _keys(world: World) -> dict[tuple[str, Kind, int], str]:
    """What the world's people say about a topic: the first and the second of each kind."""
    return {
        (topic, kind, nth): world.key(topic, kind, nth)
        for topic in TOPICS
        for kind in KINDS
        for nth in (0, 1)
    }


class Toy:
    """One world with its questions, its luck, and the numbers that are needed again and again."""

    def __init__(self, world: World) -> None:
        self.world, self._luck = world, Luck.of(world.seed)
        samples = asked()
        self._topics = [s.source for s in samples]
        self._theta = np.array([(world.logits(s.question, ()) or [0.0])[0] for s in samples])
        self._topic = np.array(self._topics)
        self._keys = _keys(replace(world, difficulty=Difficulty(), teacher=Teaching()))
        self._known = dict[str, Known]()
        for (topic, kind, _), key in self._keys.items():
            item = world.item(key)
            cost = world.dilution * item.tokens / 1_000
            self._known[key] = Known(kind, topic, item.own, item.other, cost)
        self._tested = np.arange(MOST, MOST + TESTED)
        self._before = float(self.p(self._tested, ()).mean())

    def p(self, asked: NDArray[np.int64], keys: Iterable[str]) -> NDArray[np.float64]:
        """`World.truth` of these questions under these experiences."""
        logit, topic = self._theta[asked], self._topic[asked]
        for key in keys:
            known = self._known[key]
            logit = logit + np.where(topic == known.topic, known.own, known.other) - known.cost
        chance: NDArray[np.float64] = 1 / (1 + np.exp(-logit))
        return chance

    def gain(self, keys: Iterable[str]) -> float:
        """What these experiences are worth on the test questions, in points."""
        return 100 * (float(self.p(self._tested, keys).mean()) - self._before)

    def practise(self, policy: Policy) -> Outcome:
        """One run."""
        outcome, label = Outcome(), 0
        before: Library = {}
        library: Library = {}
        uniform = set[int]()
        plan = plan_practice(
            range(policy.questions),
            epochs=EPOCHS,
            batch_size=-(-policy.questions // STEPS),
            attempts=policy.attempts,
            seed=self.world.seed,
            drop_last=False,
        )
        for step in plan:
            batch = np.array([question for question, _ in step.slots])
            early = floor(policy.overlap * len(batch) + 1e-9) if step.step else 0
            chances = self.p(batch, library.values())
            chances[:early] = self.p(batch[:early], before.values())
            proposed = list[Edit]()
            for slot, question in enumerate(batch.tolist()):
                doubtful = slot >= early and question in uniform
                if doubtful and self._luck.again[step.epoch, question] >= policy.again:
                    continue
                lucky = self._luck.right[step.epoch, question] < chances[slot]
                rights = lucky.tolist()[: policy.attempts]
                outcome.rollouts += len(rights)
                uniform.add(question)
                if any(rights) and not all(rights):
                    uniform.discard(question)
                    outcome.mixed += 1
                    place = (step.epoch, question)
                    shown = before if slot < early else library
                    group = self._attempts(place, rights, shown)
                    proposed += self._teach(place, group, library)
            outcome.edits += self.kinds(key for _, key in proposed)
            before, (library, label) = library, merged(library, proposed, label)
            outcome.gains.append(self.gain(library.values()))
        outcome.library = self.kinds(library.values())
        return outcome

    def kinds(self, keys: Iterable[str | None]) -> Counter[str]:
        """How many of them are of each kind; `none` is no experience."""
        return Counter(self._known[key].kind if key else "none" for key in keys)

    def _attempts(
        self, place: tuple[int, int], rights: Sequence[bool], shown: Library
    ) -> list[Attempt]:
        """A group's attempts: each follows the first experience of its topic and its fate."""
        topic = self._topics[place[1]]
        follows = dict[Kind, tuple[int | None, str]]()
        for label, key in shown.items():
            if self._known[key].topic == topic:
                follows.setdefault(self._known[key].kind, (label, key))
        group = []
        for right, slip in zip(rights, self._luck.slip[place].tolist(), strict=False):
            kind: Kind = "help" if right else "harm"
            own = self._keys[topic, kind, int(not right and slip < SECOND)]
            followed, method = follows.get(kind, (None, own))
            group.append(Attempt(right, method, followed))
        return group

    def _teach(
        self, place: tuple[int, int], group: Sequence[Attempt], library: Library
    ) -> list[Edit]:
        """What is proposed after the comparison, against the library of now."""
        topic = self._topics[place[1]]
        better = [a for a in group if a.right]
        worse = [a for a in group if not a.right]
        quality = self.world.teacher.p_help(len(better), len(worse))
        draw, which, seen = self._luck.lesson[place].tolist()
        if draw < quality:
            key = _usual(better)
        elif draw < quality + self.world.teacher.harm * (1 - quality):
            key = _usual(worse)
        else:
            key = self._keys[topic, "null", int(which < SECOND)]
        there = {self._known[k].kind for k in library.values() if self._known[k].topic == topic}
        fresh = key if "help" not in there and key not in library.values() else None
        good, bad = ({a.followed for a in side} for side in (better, worse))
        misled = next((label for label in library if label in bad - good), None)
        edits = list[Edit]()
        if misled is not None and seen < quality:
            remedy = fresh if fresh and self._known[fresh].kind == "help" else None
            edits.append((misled, remedy))
            fresh = None if remedy else fresh
        if fresh:
            edits.append((None, fresh))
        return edits[:LESSONS]


def _usual(attempts: Sequence[Attempt]) -> str:
    return Counter(a.method for a in attempts).most_common(1)[0][0]


def merged(library: Library, proposed: Sequence[Edit], label: int) -> tuple[Library, int]:
    """The next library, and the last label given: one edit for each experience, no twin."""
    made, taken = dict(library), set(library.values())
    for target in library:
        keys = [key for at, key in proposed if at == target]
        news = next((key for key in keys if key and key not in taken), None)
        if news:
            made[target] = news
            taken.add(news)
        elif keys:
            del made[target]
    for key in dict.fromkeys(key for at, key in proposed if at is None and key):
        if key not in taken:
            label += 1
            made[label] = key
    return made, label
