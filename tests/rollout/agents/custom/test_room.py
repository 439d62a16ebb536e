"""Room for programs: who waits leaves its own to others, and one that nobody leaves is said."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from grpo_practice.rollout.agents import slots as rooms
from grpo_practice.rollout.agents.slots import Place, Room


async def test_as_many_compute_at_once_as_may() -> None:
    room, computing, most = Room(None, 2), 0, 0

    async def play() -> None:
        nonlocal computing, most
        async with room.place() as place:
            for _ in range(3):
                computing += 1
                most = max(most, computing)
                await asyncio.sleep(0)
                computing -= 1
                async with place.asking():
                    await asyncio.sleep(0)

    await asyncio.gather(*(play() for _ in range(20)))
    assert most == 2


async def test_one_that_waits_leaves_its_room_to_others() -> None:
    room, asked, go_on = Room(None, 1), asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        async with room.place() as place, place.asking():
            asked.set()
            await go_on.wait()

    work = asyncio.create_task(waits())
    await asked.wait()
    async with room.place():  # though there is room for one
        go_on.set()
        await asyncio.sleep(0)
        assert not work.done()  # it waits to go on
    await work


async def test_replies_that_come_at_once_take_one_room() -> None:
    room = Room(None, 1)
    async with room.place() as place:

        async def ask() -> None:
            async with place.asking():
                await asyncio.sleep(0)

        await asyncio.gather(*(ask() for _ in range(5)))
    async with asyncio.timeout(60), room.place():
        pass


@pytest.mark.parametrize("waits", [False, True])
async def test_a_request_that_ends_after_its_program_keeps_no_room(waits: bool) -> None:
    room, asked, answer = Room(None, 1), asyncio.Event(), asyncio.Event()

    async def ask(place: Place) -> None:
        async with place.asking():
            asked.set()
            await answer.wait()

    async with AsyncExitStack() as other, room.place() as place:
        work = asyncio.create_task(ask(place))
        await asked.wait()
        if waits:  # to go on, while another one computes
            await other.enter_async_context(room.place())
            answer.set()
            await asyncio.sleep(0.01)
            assert not work.done()
    answer.set()
    await work
    async with asyncio.timeout(60), room.place():
        pass


async def test_where_all_stand_still_it_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks, told = 0.0, 0, list[str]()
    looked, said = asyncio.Event(), asyncio.Event()

    def clock() -> float:
        nonlocal looks
        looks += 1
        if looks % 10 == 0:
            looked.set()
        return now

    def notice(text: str) -> None:
        told.append(text)
        said.set()

    monkeypatch.setattr(rooms, "monotonic", clock)
    monkeypatch.setattr(rooms, "STUCK_S", 0.01)
    room = Room(None, 1, notice)

    async def holds_a_lock(asked: asyncio.Event, answer: asyncio.Event) -> None:
        async with room.place() as place, place.asking():
            asked.set()
            await answer.wait()

    async with asyncio.timeout(60):
        for _ in range(2):
            asked, answer = asyncio.Event(), asyncio.Event()
            work = asyncio.create_task(holds_a_lock(asked, answer))
            await asked.wait()
            async with room.place():  # which waits for the lock
                answer.set()
                looked.clear()
                await looked.wait()
                assert len(told) == (now > 0)  # no time has passed
                now += 1
                await said.wait()
                await asyncio.sleep(0.1)  # time for a second one, which may not come
            await work
    assert len(told) == 1
    assert "--concurrency" in told[0]
