"""New and doubtful experiences are left out by half of the attempts."""

from pathlib import Path

import pytest

from grpo_practice.core.types import Experience, Library
from grpo_practice.practice.evidence import Change, Evidence
from grpo_practice.practice.trials import DEALS, left_out, on_trial
from tests.practice.world import World, running


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "w", overlap=0.0)


TRIAL = ("E1", "E2", "E5")


def test_an_experience_is_on_trial_until_its_effect_is_known() -> None:
    library = Library(tuple(Experience(n, f"{n}: do it.") for n in range(1, 5)), 5)
    voted = dict.fromkeys(range(5), 1)
    evidence = {
        "E1": Evidence(voted),
        "E2": Evidence(voted, {0: Change(0.2, 50.0)}),
        "E3": Evidence(voted, {0: Change(-0.2, 50.0)}),
    }
    assert on_trial(library, evidence) == ("E1", "E3", "E4")


def test_what_one_of_a_pair_leaves_out_the_other_is_shown() -> None:
    for slot in range(20):
        for first in (0, 2):
            one, other = (left_out(TRIAL, 3, (1, slot, first + n), 5) for n in (0, 1))
            assert one | other == {*TRIAL}
            assert not one & other
            assert abs(len(one) - len(other)) == 1
        assert left_out(TRIAL, 3, (1, slot, 4), 5) == frozenset()


def test_a_step_needs_few_prompts_and_deals_the_same_halves_again() -> None:
    many = tuple(f"E{n}" for n in range(30))
    prompts = {left_out(many, 0, (2, slot, a), 4) for slot in range(1_000) for a in range(4)}
    assert len(prompts) == 2 * DEALS
    dealt = [sorted(left_out(TRIAL, 3, (1, slot, 0), 4)) for slot in range(3)]
    assert dealt == [["E1"], ["E1", "E5"], ["E5"]]


async def test_an_attempt_and_the_teacher_see_what_is_left_out_and_the_store_keeps_it(
    world: World,
) -> None:
    async with running(world):
        pass
    rows = world.query("SELECT left_out FROM rollouts WHERE step = 1 ORDER BY slot, attempt")
    assert {gone for (gone,) in rows} == {None, '["E1"]'}
    sent = [str(messages) for a, _, messages in world.asked if a.step == 1 and a.stage == "play"]
    assert 0 < sum("M0: do it." in text for text in sent) < len(sent)
    parts = world.query("SELECT parts FROM groups WHERE step = 1 AND slot = 0")
    assert '[["E1"], ' in str(parts[0])
    (compared,) = [
        str(messages)
        for a, _, messages in world.asked
        if (a.step, a.slot, a.stage) == (1, 0, "compare")
    ]
    assert "Experiences shown: E1." in compared
    assert "Experiences shown: none." in compared


async def test_without_the_truth_nothing_is_on_trial(world: World) -> None:
    world.truth = False
    async with running(world):
        pass
    assert world.query("SELECT count(*) FROM rollouts WHERE left_out IS NOT NULL") == [(0,)]
