"""How the window of a `Limit` finds what an endpoint takes; in virtual time, through the client."""

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from grpo_practice.llm.concurrency import FIRST, GROWTH_S, START, STUDENT, Limit
from tests.fakes import Answer, FakeEndpoint
from tests.llm.test_client import ask, connect
from tests.llm.virtual import virtual


@dataclass
class Capacity:
    """A server that answers so many at once, and says 429 to the rest; both take their time."""

    most: int
    seconds: float = 2.0
    inside: int = 0
    served: int = 0
    rejected: list[float] = field(default_factory=list)
    """When it said 429."""
    draw: random.Random = field(default_factory=lambda: random.Random(0))

    async def __call__(self, _: dict[str, Any]) -> Answer:
        if self.inside >= self.most:
            await asyncio.sleep(0.05)
            self.rejected.append(asyncio.get_running_loop().time())
            return httpx.Response(429, json={"error": {"message": "too many"}})
        self.inside += 1
        await asyncio.sleep(self.seconds * self.draw.uniform(0.5, 1.5))
        self.inside -= 1
        self.served += 1
        return "24"


async def ask_all(server: Capacity, n: int, limit: Limit) -> float:
    """How long `n` requests took."""
    start = asyncio.get_running_loop().time()
    fake = FakeEndpoint(server)
    async with connect(fake, limit=limit, sleep=asyncio.sleep, max_tries=50) as client:
        await asyncio.gather(*(client.send(ask(text=str(i))) for i in range(n)))
    return asyncio.get_running_loop().time() - start


@pytest.mark.long_after(1)
@pytest.mark.parametrize("capacity", [3, 40, 150])
def test_the_window_settles_at_what_the_server_takes_and_never_storms_it(capacity: int) -> None:
    server, limit, n = Capacity(capacity), Limit(256), 300 + 10 * capacity
    took = virtual(ask_all(server, n, limit))
    ideal = n / capacity * server.seconds
    assert server.served == n
    assert took < 2 * ideal
    assert len(server.rejected) < n / 5
    late = [at for at in server.rejected if at > took / 4]
    assert len(late) < n / 10  # once it has settled, a rejection is the rare result of a trial


def test_an_endpoint_that_takes_all_is_soon_asked_by_all() -> None:
    server, limit = Capacity(10_000, seconds=30.0), Limit(256)
    took = virtual(ask_all(server, 256, limit))
    assert server.rejected == []
    assert took < 45 + 5 * GROWTH_S  # not one reply was waited for


def test_1_9_a_wave_of_429s_cuts_the_window_once() -> None:
    limit, waves = Limit(100), list[int]()

    async def reject(_: dict[str, Any]) -> Answer:
        first = len(fake.seen) <= 100
        await asyncio.sleep(0.3)
        if not first:
            return "24"
        waves.append(limit.window)
        return httpx.Response(429, headers={"retry-after": "5"})

    fake = FakeEndpoint(reject)

    async def story() -> None:
        limit.window = 100
        async with connect(fake, limit=limit, sleep=asyncio.sleep) as client:
            await asyncio.gather(*(client.send(ask(text=str(i))) for i in range(100)))

    virtual(story())
    assert waves == [100] + [50] * 99
    assert limit.cuts == 1
    assert len(fake.seen) == 200


def test_1_9_those_who_were_rejected_together_do_not_come_back_together() -> None:
    came = list[float]()

    async def reject(_: dict[str, Any]) -> Answer:
        came.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0)
        if len(came) > 100:
            return "24"
        return httpx.Response(429, headers={"retry-after": "20"})

    async def story() -> None:
        limit = Limit(100)
        limit.window = 100
        async with connect(FakeEndpoint(reject), limit=limit, sleep=asyncio.sleep) as client:
            await asyncio.gather(*(client.send(ask(text=str(i))) for i in range(100)))

    virtual(story())
    again = came[100:]
    assert len(set(again)) == 100
    assert all(20 <= at <= 22.01 for at in again)
    assert max(again) - min(again) > 1


@pytest.mark.parametrize("status", [500, 502, 503, 504, 529])
def test_1_10_a_5xx_twice_is_retried_and_leaves_the_window_as_it_is(status: int) -> None:
    limit, asked = Limit(8), list[float]()

    def script(_: dict[str, Any]) -> Answer:
        asked.append(asyncio.get_running_loop().time())
        return "24" if len(asked) > 2 else httpx.Response(status)

    async def story() -> int:
        async with connect(FakeEndpoint(script), limit=limit, sleep=asyncio.sleep) as client:
            return (await client.send(ask())).tries

    assert virtual(story()) == 3
    assert (limit.window, limit.cuts) == (8, 0)
    assert asked[1] - asked[0] <= 2
    assert asked[2] - asked[1] <= 4


async def hold(limit: Limit, seconds: float, priority: int = STUDENT) -> None:
    async with limit.slot(priority):
        await asyncio.sleep(seconds)


def window_after(limit: Limit, waiters: int, seconds: float) -> int:
    """The window after so much time in which nobody gave a slot back."""

    async def story() -> int:
        tasks = [asyncio.create_task(hold(limit, 1000)) for _ in range(limit.window + waiters)]
        await asyncio.sleep(seconds)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        return limit.window

    return virtual(story())


def test_the_window_begins_small_or_at_the_ceiling() -> None:
    assert Limit(500).window == START
    assert Limit(5).window == 5


def test_it_doubles_while_somebody_waits_up_to_the_ceiling() -> None:
    assert window_after(Limit(500), 500, 0.4) == 16
    assert window_after(Limit(500), 500, 0.6) == 32
    assert window_after(Limit(500), 500, 1.6) == 128
    assert window_after(Limit(100), 500, 9) == 100


def test_it_stays_as_it_is_while_nobody_waits() -> None:
    assert window_after(Limit(500), 0, 9) == 16
    assert window_after(Limit(500), 1, 9) == 32


def test_after_a_cut_it_grows_by_one_once_enough_have_come_back() -> None:
    limit, windows = Limit(500), list[int]()

    async def story() -> None:
        limit.cut(0)
        assert limit.window == 8
        tasks = [asyncio.create_task(hold(limit, 2)) for _ in range(60)]
        for _ in range(7):
            await asyncio.sleep(1)
            windows.append(limit.window)
        await asyncio.gather(*tasks)

    virtual(story())
    assert windows == [8, 8, 9, 9, 10, 10, 11]


def test_after_a_cut_too_it_stops_at_the_ceiling() -> None:
    limit, windows = Limit(4), set[int]()

    async def one() -> None:
        await hold(limit, 0.1)
        windows.add(limit.window)

    async def story() -> None:
        limit.cut(0)
        await asyncio.gather(*(one() for _ in range(400)))

    virtual(story())
    assert windows == {2, 3, 4}


def test_it_is_never_cut_below_one_and_still_lets_everybody_through() -> None:
    limit, done = Limit(4), list[int]()

    async def one(i: int) -> None:
        await hold(limit, 1)
        done.append(i)

    async def story() -> None:
        for cuts in range(9):
            limit.cut(cuts)
        assert limit.window == 1
        await asyncio.gather(*(one(i) for i in range(20)))

    virtual(story())
    assert len(done) == 20


def test_a_cut_takes_nobodys_slot_and_the_next_wait_for_those_who_go() -> None:
    limit, most = Limit(8), list[int]()

    async def one(seconds: float) -> None:
        async with limit.slot():
            most.append(limit.held)
            await asyncio.sleep(seconds)

    async def story() -> None:
        first = [asyncio.create_task(one(0.1)) for _ in range(8)]
        await asyncio.sleep(0)
        limit.cut(0)
        later = [asyncio.create_task(one(0.1)) for _ in range(8)]
        await asyncio.gather(*first, *later)

    virtual(story())
    assert max(most[:8]) == 8
    assert max(most[8:]) == 4


def test_a_teacher_takes_the_slot_that_growth_makes() -> None:
    served = list[str]()

    async def one(limit: Limit, name: str, priority: int) -> None:
        async with limit.slot(priority):
            served.append(name)
            await asyncio.sleep(60)

    async def story() -> None:
        limit = Limit(20)
        jobs = [("s", STUDENT)] * 40 + [("t", FIRST)]
        tasks = [asyncio.create_task(one(limit, *job)) for job in jobs]
        await asyncio.sleep(GROWTH_S * 1.5)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    virtual(story())
    assert served == ["s"] * START + ["t"] + ["s"] * 3
