"""Practice in the simulated world without client, prompts or store: hundreds of runs in a minute.

The model follows what student, teacher and librarian of `grpo_practice.sim` decide, on keys instead
of texts. The draws of a place (epoch, question, attempt) are the same under every policy, so that
two policies are compared on the same luck.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from math import floor
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.toy_run import Counting, Library, Proposed, Run
from grpo_practice.core.types import Operation, Sample
from grpo_practice.practice.trials import left_out
from grpo_practice.rollout.groups.plan import plan_practice
from grpo_practice.sim.questions import TOPICS, questions
from grpo_practice.sim.world import Difficulty, EffectKind, Teaching, World
from grpo_practice.store.records import Part, Play

EPOCHS, MOST, TESTED = 3, 150, 200
STEPS = 2
"""Steps of an epoch."""
LESSONS = 2
"""Most lessons of one group."""
SECOND = 0.5
"""The chance of the second of two slips, or of two platitudes."""
KINDS: tuple[EffectKind, ...] = ("help", "null", "harm")


@dataclass(frozen=True, slots=True)
class Policy:
    """How groups are played."""

    attempts: int = 5
    """Rollouts of each group."""
    overlap: float = 0.0
    """The share of a step's groups that is played with the library of the step before."""
    questions: int = 100
    counting: Counting = "votes and rewards"
    trials: bool = True
    """Whether half of a group's attempts leave out the experiences on trial."""
    epochs: int = EPOCHS
    steps: int = STEPS
    """Steps of an epoch."""


@dataclass(slots=True)
class Outcome:
    """Outcome of a practice run."""

    rollouts: int = 0
    gains: list[float] = field(default_factory=list)
    """True gain on the test questions after each step, in points."""
    mixed: int = 0
    """Groups that were compared."""
    shown: int = 0
    """Experiences in the prompts of all rollouts."""
    edits: Counter[str] = field(default_factory=Counter)
    """Proposals by the kind of the experience; `none` where there is no text."""
    library: Counter[str] = field(default_factory=Counter)
    """How many experiences of each kind the last library holds."""


class Attempt(NamedTuple):
    """One attempt as the teacher sees it: the key of its method, the label it followed."""

    right: bool
    method: str
    followed: int | None


class Known(NamedTuple):
    """An experience of the world."""

    kind: EffectKind
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
    """Shape: [epoch, question, 4]: which lesson, which of two, whether what misled is seen, whether
    the teacher is wrong about the group."""
    named: NDArray[np.float64]
    """Shape: [epoch, question, LESSONS + 1]: whether each proposal names its target."""

    @classmethod
    def of(cls, seed: int) -> "Luck":
        """Draw independently of the difficulties of the world with that seed."""
        draw = np.random.default_rng((seed, 1))
        places = (EPOCHS, MOST)
        shapes = (5, 5, 3, 1, LESSONS + 1)
        right, slip, lesson, wrong, named = (draw.random((*places, n)) for n in shapes)
        return cls(right, slip, np.concatenate([lesson, wrong], axis=-1), named)


@cache
def asked() -> list[Sample]:
    """Return the questions of every world: those to practise on, then those to test on."""
    return questions(MOST + TESTED, 0)


@cache
def _keys(world: World) -> dict[tuple[str, EffectKind, int], str]:
    """Return what the world's people say about a topic: the first and the second of each kind."""
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
        """Return `World.truth` of these questions under these experiences."""
        logit, topic = self._theta[asked], self._topic[asked]
        for key in keys:
            known = self._known[key]
            logit = logit + np.where(topic == known.topic, known.own, known.other) - known.cost
        chance: NDArray[np.float64] = 1 / (1 + np.exp(-logit))
        return chance

    def gain(self, keys: Iterable[str]) -> float:
        """Return what these experiences are worth on the test questions, in points."""
        return 100 * (float(self.p(self._tested, keys).mean()) - self._before)

    def practise(self, policy: Policy) -> Outcome:
        """Return what one run comes to."""
        outcome, run = Outcome(), Run(self.world, policy.counting)
        plan = plan_practice(
            range(policy.questions),
            epochs=policy.epochs,
            batch_size=-(-policy.questions // policy.steps),
            attempts=policy.attempts,
            seed=self.world.seed,
            drop_last=False,
        )
        for step in plan:
            batch = np.array([question for question, _ in step.slots])
            early = floor(policy.overlap * len(batch) + 1e-9) if step.step else 0
            before, library = run.libraries[max(step.step - 1, 0)], run.libraries[step.step]
            trial = run.on_trial() if policy.trials else ()
            proposed, plays = list[Proposed](), list[Play]()
            for slot, question in enumerate(batch.tolist()):
                prompts = [(before if slot < early else library)] * policy.attempts
                left = [frozenset[str]()] * policy.attempts
                if trial and slot >= early:
                    left = [
                        left_out(trial, self.world.seed, (step.step, slot, a), policy.attempts)
                        for a in range(policy.attempts)
                    ]
                    prompts = [_without(library, gone) for gone in left]
                asked_once = np.array([question])
                chances = [self.p(asked_once, shown.values())[0] for shown in prompts]
                rights = self._luck.right[step.epoch, question, : policy.attempts] < chances
                outcome.rollouts += len(rights)
                outcome.shown += sum(map(len, prompts))
                plays += played(question, step.step - (slot < early), rights.tolist(), left)
                if 0 < sum(rights) < len(rights):
                    outcome.mixed += 1
                    place = (step.epoch, question)
                    group = self._attempts(place, rights.tolist(), prompts)
                    said = self._named(place, self._teach(place, group, library), library)
                    proposed += [(question, op) for op in said]
            outcome.edits += self.kinds(op.text for _, op in proposed)
            run.close(proposed, plays)
            outcome.gains.append(self.gain(run.libraries[-1].values()))
        outcome.library = self.kinds(run.libraries[-1].values())
        return outcome

    def kinds(self, keys: Iterable[str | None]) -> Counter[str]:
        """Count them by kind; `none` is no experience."""
        return Counter(self._known[key].kind if key else "none" for key in keys)

    def _attempts(
        self, place: tuple[int, int], rights: Sequence[bool], prompts: Sequence[Library]
    ) -> list[Attempt]:
        """Play a group's attempts: each follows the first experience of its topic and its fate."""
        topic = self._topics[place[1]]
        group = []
        slips = self._luck.slip[place].tolist()
        for right, slip, shown in zip(rights, slips, prompts, strict=False):
            follows = dict[EffectKind, tuple[int | None, str]]()
            for label, key in shown.items():
                if self._known[key].topic == topic:
                    follows.setdefault(self._known[key].kind, (label, key))
            kind: EffectKind = "help" if right else "harm"
            own = self._keys[topic, kind, int(not right and slip < SECOND)]
            followed, method = follows.get(kind, (None, own))
            group.append(Attempt(right, method, followed))
        return group

    def _named(
        self, place: tuple[int, int], proposed: Sequence[Operation], library: Library
    ) -> list[Operation]:
        """Turn the share of the proposals that name no target (`Teaching.adds`) into additions."""
        said = list[Operation]()
        for op, draw in zip(proposed, self._luck.named[place].tolist(), strict=False):
            if op.target is None or draw >= self.world.teacher.adds:
                said.append(op)
            elif text := op.text or (library[int(op.target[1:])] if op.op == "NONE" else None):
                said.append(Operation("ADD", text=text))
        return said

    def _teach(
        self, place: tuple[int, int], group: Sequence[Attempt], library: Library
    ) -> list[Operation]:
        """Return what is proposed after the comparison, against the library of now."""
        topic = self._topics[place[1]]
        better = [a for a in group if a.right]
        worse = [a for a in group if not a.right]
        quality = self.world.teacher.p_help(len(better), len(worse))
        draw, which, seen, wrong = self._luck.lesson[place].tolist()
        if wrong < self.world.teacher.noise or topic in self.world.biased:
            better, worse = worse, better
        if draw < quality:
            key = _usual(better)
        elif draw < quality + self.world.teacher.harm * (1 - quality):
            key = _usual(worse)
            better, worse = worse, better
        else:
            key = self._keys[topic, "null", int(which < SECOND)]
        good, bad = ({a.followed for a in side} for side in (better, worse))
        there = [label for label, k in library.items() if self._known[k].topic == topic]
        accused = next((label for label in there if label in bad - good), None)
        against = _against(accused, None) if accused is not None and seen < quality else []
        same = next((label for label, k in library.items() if k == key), None)
        if same is not None:
            confirmed = Operation("NONE", f"E{same}", finding="confirmed")
            return [confirmed, *(against if accused != same else [])][:LESSONS]
        if self._known[key].kind == "null":
            return [*against, *([] if there else [Operation("ADD", text=key)])][:LESSONS]
        accused = next(iter(there), None) if accused is None else accused
        return [Operation("ADD", text=key)] if accused is None else _against(accused, key)


def _without(library: Library, gone: frozenset[str]) -> Library:
    return {label: key for label, key in library.items() if f"E{label}" not in gone}


def played(
    question: int, library: int, rights: Sequence[bool], left: Sequence[frozenset[str]]
) -> list[Play]:
    """Return a group's plays, one for each set of experiences left out; `close` adds the mean."""
    by_prompt = defaultdict[frozenset[str], list[bool]](list)
    for right, gone in zip(rights, left, strict=True):
        by_prompt[gone].append(right)
    return [
        Play(question, 1 + library, Part(gone, fmean(of), len(of)), 0.0)
        for gone, of in by_prompt.items()
    ]


def _against(label: int, key: str | None) -> list[Operation]:
    return [Operation("UPDATE" if key else "DELETE", f"E{label}", key, finding="misled")]


def _usual(attempts: Sequence[Attempt]) -> str:
    return Counter(a.method for a in attempts).most_common(1)[0][0]
