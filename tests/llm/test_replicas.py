"""Equal replicas behind one endpoint: who is passed over, for how long, and what is said of it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import httpx
import pytest

from grpo_practice.errors import EndpointError, EndpointRefusedError
from grpo_practice.llm.client import Client
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.limit import Limit
from tests.fakes import Answer, reply
from tests.llm.test_client import ask
from tests.llm.virtual import virtual

Script = Callable[[float], Answer]
"""From the time to what a replica does."""


@dataclass
class Replicas:
    """Servers at `http://a`, `http://b`, …; keeps who was asked when."""

    scripts: dict[str, Script]
    asked: list[tuple[str, float]] = field(default_factory=list)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        name, at = request.url.host, asyncio.get_running_loop().time()
        self.asked.append((name, at))
        await asyncio.sleep(0.1)
        said = self.scripts[name](at)
        if isinstance(said, Exception):
            raise said
        return said if isinstance(said, httpx.Response) else reply(said)

    def client(self, max_tries: int = 5) -> Client:
        endpoint = Endpoint(tuple(f"http://{n}/v1" for n in self.scripts), max_tries=max_tries)
        return Client(
            endpoint,
            Limit(8),
            notice=lambda _: None,
            transport=httpx.MockTransport(self._answer),
        )

    def times(self, name: str) -> list[float]:
        return [at for who, at in self.asked if who == name]


def good(_: float) -> Answer:
    return "24"


def dead(_: float) -> Answer:
    return httpx.ConnectError("refused")


def busy(_: float) -> Answer:
    return httpx.Response(429, json={"error": {}}, headers={"retry-after": "50"})


def ask_slowly(replicas: Replicas, n: int, every: float) -> list[str | BaseException]:
    """Who answered each of `n` requests, one after another."""

    async def story() -> list[str | BaseException]:
        came = list[str | BaseException]()
        async with replicas.client() as client:
            for i in range(n):
                try:
                    came.append((await client.send(ask(text=str(i)))).answered_by)
                except (EndpointError, EndpointRefusedError) as e:
                    came.append(e)
                await asyncio.sleep(every)
        return came

    return virtual(story())


def test_one_that_asked_to_wait_is_passed_over_until_then() -> None:
    replicas = Replicas({"a": lambda at: busy(at) if at < 50 else "24", "b": good})
    came = ask_slowly(replicas, 40, 2)
    assert replicas.times("a")[0] == 0
    assert replicas.times("a")[1] >= 50
    assert came[0] == "m-1@b"  # at once, without the wait
    assert replicas.times("b")[0] < 1
    assert came[-2:] == ["m-1@a", "m-1@b"]


def test_when_all_asked_to_wait_the_earliest_is_waited_for() -> None:
    def later(seconds: str) -> Script:
        told = httpx.Response(429, json={"error": {}}, headers={"retry-after": seconds})
        return lambda at: told if at < 20 else "24"

    replicas = Replicas({"a": later("60"), "b": later("30")})
    assert ask_slowly(replicas, 1, 0) == ["m-1@b"]
    assert [name for name, _ in replicas.asked] == ["a", "b", "b"]
    assert 30 <= replicas.asked[-1][1] <= 34


def test_a_dead_one_is_tried_ever_more_rarely_and_costs_nobody_an_answer() -> None:
    replicas = Replicas({"a": dead, "b": good})
    came = ask_slowly(replicas, 400, 1)
    assert set(came) == {"m-1@b"}
    tried = replicas.times("a")
    gaps = [b - a for a, b in pairwise(tried)]
    assert all(gap >= 2**i for i, gap in enumerate(gaps[:6]))
    assert 60 <= max(gaps) <= 68
    assert len(tried) < 15


def test_it_is_back_after_its_first_answer() -> None:
    replicas = Replicas({"a": lambda at: dead(at) if at < 10 else "24", "b": good})
    came = ask_slowly(replicas, 100, 1)
    assert came[50:].count("m-1@a") == 25


def test_after_an_answer_it_has_a_clean_record() -> None:
    def flaky(at: float) -> Answer:
        return dead(at) if at < 150 or 300 < at < 302 else "24"

    replicas = Replicas({"a": flaky, "b": good})
    ask_slowly(replicas, 330, 1)
    assert max(b - a for a, b in pairwise(replicas.times("a"))) > 30  # out for long, at first
    assert any(302 <= at <= 312 for at in replicas.times("a"))


def test_a_wave_that_finds_it_dead_counts_once() -> None:
    replicas = Replicas({"a": lambda at: dead(at) if at < 0.5 else "24", "b": good})

    async def story() -> None:
        async with replicas.client() as client:
            await asyncio.gather(*(client.send(ask(text=str(i))) for i in range(8)))
            await asyncio.sleep(2)
            for i in range(4):
                await client.send(ask(text=str(i)))

    virtual(story())
    assert len(replicas.times("a")) >= 4 + 2  # two seconds later it was asked again


def test_1_18_only_when_none_ever_answered_can_it_not_be_reached() -> None:
    replicas = Replicas({"a": dead, "b": dead})
    (came,) = ask_slowly(replicas, 1, 0)
    assert isinstance(came, EndpointRefusedError)
    assert "cannot reach http://" in str(came)
    assert {name for name, _ in replicas.asked} == {"a", "b"}

    once = Replicas({"a": dead, "b": lambda at: "24" if at < 5 else dead(at)})
    first, *later = ask_slowly(once, 3, 10)
    assert first == "m-1@b"
    assert {type(e) for e in later} == {EndpointError}


def test_a_replica_that_refuses_the_key_refuses_for_good() -> None:
    replicas = Replicas({"a": good, "b": lambda _: httpx.Response(401)})
    came = ask_slowly(replicas, 4, 1)
    assert came[0] == "m-1@a"
    assert {type(e) for e in came[1:]} == {EndpointRefusedError}
    assert len(replicas.asked) == 2


@pytest.mark.parametrize("script", [dead, busy])
def test_a_single_address_is_never_given_up_for_another(script: Script) -> None:
    replicas = Replicas({"a": lambda at: script(at) if at < 1 else "24"})
    assert ask_slowly(replicas, 1, 0) == ["m-1@a"]
