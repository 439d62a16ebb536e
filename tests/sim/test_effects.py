from itertools import combinations

import pytest
from bench.effects import best_subset, effects

from grpo_practice.sim.questions import TOPICS, questions
from grpo_practice.sim.world import Item, World

WORLD = World()
QUESTIONS = [s.question for s in questions(40, seed=0)]
KEYS = [WORLD.key("percent", "help"), WORLD.key("posts", "harm"), WORLD.key("speed", "null")]
MANY = [WORLD.key(t, kind) for t in TOPICS for kind in ("help", "harm")]


def score(keys: list[str]) -> float:
    return float(WORLD.truth(QUESTIONS, keys).mean())


def test_leave_one_out_is_the_whole_library_minus_the_rest() -> None:
    expected = [score(KEYS) - score([k for k in KEYS if k != key]) for key in KEYS]
    assert effects(WORLD, QUESTIONS, KEYS).leave_one_out == pytest.approx(expected)


def test_jitter_is_no_effect_of_an_experience() -> None:
    assert effects(World(jitter=2.0), QUESTIONS, KEYS) == effects(WORLD, QUESTIONS, KEYS)


@pytest.mark.parametrize("pi", [0.5, 0.8])
def test_effects_in_part_are_the_mean_over_all_subsets(pi: float) -> None:
    for j, key in enumerate(KEYS):
        rest = [k for k in KEYS if k != key]
        expected = 0.0
        for size in range(len(rest) + 1):
            for part in map(list, combinations(rest, size)):
                weight = pi**size * (1 - pi) ** (len(rest) - size)
                expected += weight * (score([*part, key]) - score(part))
        assert effects(WORLD, QUESTIONS, KEYS, pi).in_part[j] == pytest.approx(expected)


def test_subsets_drawn_for_a_large_library_agree_with_all_of_them() -> None:
    few = MANY[:12]
    exact = effects(WORLD, QUESTIONS, few).in_part
    inert = World(items={f"percent-{i:02x}f": Item("null", 0, 0, tokens=0) for i in range(3)})
    drawn = effects(inert, QUESTIONS, [*few, *inert.items])
    assert drawn.in_part[:12] == pytest.approx(exact, abs=5e-4)
    assert drawn.in_part[12:] == pytest.approx([0, 0, 0], abs=1e-12)


def test_kinds_show_in_the_effects() -> None:
    helps, harms, dilutes = effects(WORLD, QUESTIONS, KEYS).in_part
    assert helps > 0.005
    assert harms < -0.005
    assert -0.01 < dilutes < 0


@pytest.mark.parametrize("keys", [MANY[:8], MANY], ids=["exact", "greedy"])
def test_the_best_subset_is_the_helpful_ones(keys: list[str]) -> None:
    best = best_subset(WORLD, QUESTIONS, keys, budget=1_000)
    assert best == tuple(k for k in keys if WORLD.item(k).kind == "help")


def test_the_best_subset_keeps_to_its_budget() -> None:
    best = best_subset(WORLD, QUESTIONS, MANY[:8], budget=70)
    two = [list(pair) for pair in combinations(MANY[:8], 2)]
    assert score(list(best)) == pytest.approx(max(score(pair) for pair in two))
    assert best_subset(WORLD, QUESTIONS, MANY, budget=10) == ()


def test_a_library_without_experiences_has_no_effects() -> None:
    assert effects(WORLD, QUESTIONS, []).keys == ()
    assert best_subset(WORLD, QUESTIONS, [], budget=100) == ()
