"""The toy decides what the program decides with the simulated endpoint, prompts and all."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from bench.toy import MOST, Attempt, Policy, Toy, asked
from bench.toy_run import merged

from grpo_practice.core.calls import Message, Reply, Scope
from grpo_practice.core.prompts.files import load_prompts
from grpo_practice.core.types import (
    Distilled,
    Experience,
    Group,
    Library,
    Operation,
    Rollout,
    Trajectory,
    Verdict,
)
from grpo_practice.practice.distil import Attempt as Shown
from grpo_practice.practice.distil import Task, compare, confirmations
from grpo_practice.practice.evidence import Evidence
from grpo_practice.practice.merge import changes, merge, votes
from grpo_practice.practice.propose import propose
from grpo_practice.practice.teacher import GroupKey, Teacher
from grpo_practice.practice.transcript import Piece, Transcript
from grpo_practice.sim import answer
from grpo_practice.sim.experience_texts import keys_in, text
from grpo_practice.sim.world import Teaching, World, unit

WORLD = World(seed=5, teacher=Teaching(noise=0.3, forms="json"))
TOY = Toy(WORLD)
AT = GroupKey(1, 1, 0, 0)


async def sim_chat(messages: Sequence[Message], **options: Any) -> Reply:
    told = answer({"messages": list(messages), "seed": 1}, WORLD)
    return Reply(told["choices"][0]["message"])


def chat(scope: Scope) -> Any:
    return sim_chat


TEACHER = Teacher(chat, load_prompts(), "", "", truth=True, limit=2, run_seed=0)


def library_of(keys: Mapping[int, str]) -> Library:
    items = tuple(Experience(label, text(WORLD, key)) for label, key in keys.items())
    return Library(items, 1 + max(keys, default=0))


def edit_of(op: Operation) -> tuple[str, str | None, str | None, int]:
    """An operation with the key for its text, and what it votes."""
    return op.op, op.target, next(iter(keys_in(op.text or "")), op.text), op.vote


def group_of(question: int, attempts: Sequence[Attempt]) -> tuple[Group, list[str]]:
    sample = asked()[question]
    rollouts = [
        Rollout(0, n, sample, Trajectory("ok", "x"), verdict=Verdict(float(a.right)))
        for n, a in enumerate(attempts)
    ]
    follows = [f"Followed E{a.followed}." if a.followed else "Followed none." for a in attempts]
    told = [f"Method {a.method}: so it went.\n{f}" for a, f in zip(attempts, follows, strict=True)]
    return Group(0, sample, rollouts), told


def drawn(rng: Random, topic: str = "rate") -> dict[int, str]:
    """A library of some of the keys there are, half of a topic's, under labels with gaps."""
    own = {key for key, known in TOY._known.items() if known.topic == topic}
    keys = rng.sample(sorted(own), rng.randint(0, 3))
    keys += rng.sample(sorted(TOY._known.keys() - own), rng.randint(0, 10))
    rng.shuffle(keys)
    return dict(zip(sorted(rng.sample(range(1, 60), len(keys))), keys, strict=True))


@pytest.mark.parametrize("seed", range(30))
async def test_a_group_teaches_what_the_simulated_teacher_says(seed: int) -> None:
    rng = Random(seed)
    place = (0, rng.randrange(MOST))
    topic = asked()[place[1]].source
    shown, now = drawn(rng, topic), drawn(rng, topic)
    library = rng.choice([shown, shown, now])  # the same, or that of the step after
    wins = rng.randint(1, 4)
    rights = [True] * wins + [False] * rng.randint(1, 5 - wins)
    attempts = TOY._attempts(place, rng.sample(rights, len(rights)), [shown] * 5)
    draws = dict(zip(("lesson", "which", "misled", "noise"), TOY._luck.lesson[place], strict=True))
    group, told = group_of(place[1], attempts)
    real = library_of(library)
    with patch("grpo_practice.sim.teacher.unit", lambda seed, what, sha: draws[what]):
        task = Task(TEACHER, group, real, lambda _: library_of(shown), AT)
        summaries = [Transcript((Piece("said", text),)) for text in told]
        shows = [
            Shown(r, "summary", text) for r, text in zip(group.rollouts, summaries, strict=True)
        ]
        lessons, _ = await compare(task, shows)
    edits = await propose(TEACHER, group.sample, lessons, real, AT)
    operations = (*confirmations(lessons), *edits)
    taught = TOY._teach(place, attempts, library)
    assert [edit_of(op) for op in operations] == [edit_of(op) for op in taught]


@pytest.mark.parametrize("seed", range(30))
async def test_proposals_are_merged_as_the_simulated_librarian_does(seed: int) -> None:
    rng = Random(seed)
    before = drawn(rng)
    library, keys = library_of(before), list[Operation]()
    for _ in range(rng.randint(0, 12)):
        label, key = rng.choice([None, *before]), rng.choice(sorted(TOY._known))
        op = "ADD" if label is None else rng.choice(["UPDATE", "UPDATE", "DELETE"])
        target = f"E{label}" if label else None
        found = "misled" if label else None
        keys.append(Operation(op, target, None if op == "DELETE" else key, finding=found))  # type: ignore[arg-type]
    on = {e.id: Evidence({1: rng.choice([1, -1])}) for e in library.experiences}
    proposed = changes(votes([Distilled(0, operations=tuple(keys))], [1]))
    real = [
        replace(p, operation=replace(p.operation, text=text(WORLD, p.operation.text)))
        if p.operation.text
        else p
        for p in proposed
    ]
    step, disproved = rng.randint(0, 5), {*rng.sample(sorted(TOY._known), 5)}

    def confused(seed: int, what: str, target: str, sha: str) -> float:
        return unit(seed, what, target, step)

    with patch("grpo_practice.sim.merge_teacher.unit", confused):
        removed = [text(WORLD, key) for key in disproved]
        said = await merge(TEACHER, library, real, on, AT, disproved=removed)
    if said:  # what cannot pass is not asked about
        toys = merged(WORLD, before, proposed, on, step, disproved)
        assert [(edit_of(op), op.from_ops) for op in said] == [
            (edit_of(op), op.from_ops) for op in toys
        ]


def test_chances_and_gains_are_those_of_the_world() -> None:
    keys = [WORLD.key("percent", "help"), WORLD.key("rate", "harm"), WORLD.key("rate", "null")]
    tested = [sample.question for sample in asked()[MOST:]]
    np.testing.assert_allclose(TOY.p(np.arange(MOST, MOST + 200), keys), WORLD.truth(tested, keys))
    gain = 100 * (WORLD.truth(tested, keys).mean() - WORLD.truth(tested, ()).mean())
    assert TOY.gain(keys) == pytest.approx(gain)


def test_the_first_steps_of_two_policies_have_the_same_luck() -> None:
    fixed, overlap = (TOY.practise(policy) for policy in (Policy(), Policy(overlap=0.5)))
    assert fixed.gains[0] == overlap.gains[0]
    assert fixed.rollouts == overlap.rollouts == 1500
    assert TOY.practise(Policy(attempts=4)).rollouts == 1200
    assert TOY.practise(Policy(overlap=1.0)).gains[1] != fixed.gains[1]
