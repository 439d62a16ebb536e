"""A rollout's time is its own: what it waits for is not counted."""

import asyncio

import pytest

from grpo_practice.rollout.agents import custom_agents
from grpo_practice.rollout.agents.custom_agents import Clock
from tests.llm.virtual import virtual


class Hands:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    found = Hands()
    monkeypatch.setattr(custom_agents, "monotonic", found)
    return found


async def test_a_request_counts_the_seconds_it_took_not_those_it_waited(hands: Hands) -> None:
    it = Clock(100.0)
    hands.now = 10.0
    assert it.left_s == 90.0
    with it.asking() as took:
        hands.now = 500.0  # for a slot, mostly
        assert it.left_s == 90.0
        took(30.0)
    assert it.left_s == 60.0
    hands.now = 505.0
    assert it.left_s == 55.0


async def test_a_stored_answer_counts_what_it_once_took(hands: Hands) -> None:
    it = Clock(100.0)
    with it.asking() as took:
        took(30.0)
    assert it.left_s == 70.0


async def test_a_request_without_an_answer_took_nothing(hands: Hands) -> None:
    it = Clock(100.0)
    with it.asking():
        hands.now = 50.0
    assert it.left_s == 100.0


async def test_requests_made_at_once_count_once(hands: Hands) -> None:
    it = Clock(100.0)
    with it.asking() as one:
        with it.asking() as two:
            hands.now = 40.0
            two(30.0)
        assert it.left_s == 70.0
        hands.now = 60.0
        one(20.0)
    assert it.left_s == 70.0
    with it.asking() as three:
        three(10.0)
    assert it.left_s == 60.0


def test_it_is_over_once_the_own_time_is(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> float:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(custom_agents, "monotonic", loop.time)
        it = Clock(5.0)
        over = asyncio.create_task(it.over())
        with it.asking():
            await asyncio.sleep(10)
            assert not over.done()
        await over
        return loop.time()

    assert virtual(story()) == 15
