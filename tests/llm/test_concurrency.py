"""The priority semaphore."""

import asyncio

import pytest

from grpo_practice.llm.concurrency import ADMITTED_PER_TICK, FIRST, LATER, START, STUDENT, Limit
from tests.llm.virtual import virtual
from tests.processes import HANG_S


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_no_more_than_n_hold_a_slot_at_once() -> None:
    limit, inside, most = Limit(3), 0, 0

    async def work() -> None:
        nonlocal inside, most
        async with limit.slot():
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(work() for _ in range(20)))
    assert most == 3


async def test_teachers_go_before_students_and_each_in_the_order_they_came() -> None:
    limit, served = Limit(1), list[str]()

    async def work(name: str, priority: int) -> None:
        async with limit.slot(priority):
            served.append(name)
            await asyncio.sleep(0)

    async with limit.slot():
        asked = [("l1", LATER), ("s1", STUDENT), ("s2", STUDENT), ("t1", FIRST), ("l2", LATER)]
        asked += [("s3", STUDENT), ("t2", FIRST)]
        tasks = [asyncio.create_task(work(*one)) for one in asked]
        await settle()
    await asyncio.gather(*tasks)
    assert served == ["t1", "t2", "s1", "s2", "s3", "l1", "l2"]


async def test_a_cancelled_waiter_is_passed_over() -> None:
    limit = Limit(1)

    async def take() -> None:
        async with limit.slot():
            pass

    async with limit.slot():
        first, second = asyncio.create_task(take()), asyncio.create_task(take())
        await settle()
        first.cancel()
        await settle()
    async with asyncio.timeout(HANG_S):
        await second
        await take()
    assert first.cancelled()


async def test_a_waiter_cancelled_after_it_was_granted_passes_the_slot_on() -> None:
    limit, entered = Limit(1), list[str]()

    async def take(name: str) -> None:
        async with limit.slot():
            entered.append(name)

    async with limit.slot():
        first, second = asyncio.create_task(take("first")), asyncio.create_task(take("second"))
        await settle()
    first.cancel()  # the slot is already its own, but it has not run since
    async with asyncio.timeout(HANG_S):
        await second
        await take("third")
    assert entered == ["second", "third"]


async def test_a_thousand_cancelled_holders_and_waiters_leave_every_slot_free() -> None:
    limit = Limit(10)

    async def hang() -> None:
        async with limit.slot():
            await asyncio.Event().wait()

    tasks = [asyncio.create_task(hang()) for _ in range(1000)]
    await settle()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with asyncio.timeout(HANG_S), asyncio.TaskGroup() as group:
        barrier = asyncio.Barrier(10)

        async def meet() -> None:
            async with limit.slot():
                await barrier.wait()  # passes only when all ten are inside

        for _ in range(10):
            group.create_task(meet())


def test_a_limit_of_none_is_refused() -> None:
    with pytest.raises(ValueError, match="let nothing through"):
        Limit(0)


def test_a_window_that_opens_wide_lets_them_in_a_few_at_a_turn() -> None:
    async def story() -> None:
        limit, inside = Limit(1_000), 0
        leave = asyncio.Event()

        async def work() -> None:
            nonlocal inside
            async with limit.slot():
                inside += 1
                await leave.wait()

        tasks = [asyncio.create_task(work()) for _ in range(900)]
        await settle()
        assert inside == START
        limit.window = 800
        limit._grow()
        most, before = 0, inside
        for _ in range(100):
            await asyncio.sleep(0)
            most, before = max(most, inside - before), inside
        assert (inside, limit.held) == (900, 900)
        assert most == ADMITTED_PER_TICK
        leave.set()
        await asyncio.gather(*tasks)
        assert limit.held == 0

    virtual(story())  # no time passes in which it would grow by itself
