"""Equal replicas behind one endpoint: who is passed over, for how long, and what is said of it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import httpx
import pytest

from grpo_practice.errors import EndpointError, EndpointRefusedError
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from tests.fakes import Answer, reply
from tests.llm.test_client import ask
from tests.llm.virtual import virtual

Script = Callable[[float], Answer]
"""From the time to what a replica does."""
HANG = ConnectionResetError("after an hour")
DEADLINE_S = 10


@dataclass
class Replicas:
    """Servers at `http://a`, `http://b`, …; keeps who was asked when."""

    scripts: dict[str, Script]
    asked: list[tuple[str, float]] = field(default_factory=list)
    under_way: Counter[str] = field(default_factory=Counter)
    most: Counter[str] = field(default_factory=Counter)
    """The most requests that were under way at once, since it was last cleared."""
    notices: list[str] = field(default_factory=list)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        name, at = request.url.host, asyncio.get_running_loop().time()
        self.asked.append((name, at))
        self.under_way[name] += 1
        self.most[name] = max(self.most[name], self.under_way[name])
        try:
            said = self.scripts[name](at)
            await asyncio.sleep(3600 if said is HANG else 0.1)
            if isinstance(said, Exception):
                raise said
            return said if isinstance(said, httpx.Response) else reply(said)
        finally:
            self.under_way[name] -= 1

    def client(self, max_tries: int = 5) -> Client:
        urls = tuple(f"http://{n}/v1" for n in self.scripts)
        endpoint = Endpoint(urls, max_tries=max_tries, timeout_s=DEADLINE_S)
        return Client(
            endpoint,
            Limit(8),
            notice=self.notices.append,
            transport=httpx.MockTransport(self._answer),
        )

    def times(self, name: str) -> list[float]:
        return [at for who, at in self.asked if who == name]


def good(_: float) -> Answer:
    return "24"


def dead(_: float) -> Answer:
    return httpx.ConnectError("refused")


def hanging(_: float) -> Answer:
    return HANG


def broken(_: float) -> Answer:
    return httpx.Response(503, json={"error": {"message": "no worker"}})


def cut(_: float) -> Answer:
    return httpx.ReadError("reset")


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


# Replicas that take a request and do not answer it


WHY: dict[Script, str] = {hanging: "deadline", broken: "503", cut: "cut", dead: "connect"}


@pytest.mark.parametrize("script", WHY, ids=WHY.values())
def test_one_without_an_answer_is_passed_over_ever_longer_and_a_person_is_told_once(
    script: Script,
) -> None:
    replicas = Replicas({"a": script, "b": good})
    came = ask_slowly(replicas, 400, 1)
    assert set(came) == {"m-1@b"}
    tried = replicas.times("a")
    gaps = [b - a for a, b in pairwise(tried)]
    assert all(gap >= 2**i for i, gap in enumerate(gaps[:6]))
    assert 60 <= max(gaps) <= 60 + DEADLINE_S + 8
    assert len(tried) < 15
    assert replicas.notices == [
        f"a does not answer ({WHY[script]}): the others are asked meanwhile"
    ]


@pytest.mark.parametrize("script", [hanging, broken])
def test_it_is_back_after_a_usable_answer(script: Script) -> None:
    replicas = Replicas({"a": lambda at: script(at) if at < 10 else "24", "b": good})
    came = ask_slowly(replicas, 100, 1)
    assert came[50:].count("m-1@a") == 25


def test_a_5xx_is_no_answer_that_clears_its_record() -> None:
    def flapping(at: float) -> Answer:  # refused, 503, refused, …
        return (dead if len(replicas.times("a")) % 2 else broken)(at)

    replicas = Replicas({"a": flapping, "b": good})
    ask_slowly(replicas, 300, 1)
    assert len(replicas.times("a")) < 13


def story_of_many(replicas: Replicas, n: int, limit_s: float | None = None) -> list[object]:
    """What came of `n` requests, eight at a time."""

    async def story() -> list[object]:
        async with replicas.client() as client:
            jobs = (client.send(ask(text=str(i)), limit_s=limit_s) for i in range(n))
            return list(await asyncio.gather(*jobs, return_exceptions=True))

    return virtual(story())


def test_one_that_hangs_costs_a_wave_and_then_one_slot() -> None:
    def hangs(at: float) -> Answer:
        if at > DEADLINE_S:
            replicas.most["later"] = max(replicas.most["later"], replicas.under_way["a"])
        return HANG

    replicas = Replicas({"a": hangs, "b": good})
    came = story_of_many(replicas, 3_000)
    assert not any(isinstance(reply, BaseException) for reply in came)
    assert replicas.most["later"] == 1
    assert 2 < len(replicas.times("a")) < 20
    assert replicas.asked[-1][1] < 120  # half of them waiting for it would take half an hour


def test_a_callers_own_limit_puts_it_out_too() -> None:
    replicas = Replicas({"a": hanging, "b": good})
    came = story_of_many(replicas, 500, limit_s=DEADLINE_S / 2)
    assert sum(isinstance(reply, TimeoutError) for reply in came) < 20
    assert replicas.notices == ["a does not answer (deadline): the others are asked meanwhile"]


def test_a_trial_that_is_cancelled_leaves_room_for_the_next() -> None:
    replicas = Replicas({"a": lambda at: broken(at) if at < 1 else hanging(at), "b": good})

    async def story() -> None:
        async with replicas.client() as client:
            for _ in range(2):
                await client.send(ask())
            await asyncio.sleep(5)
            trials = list[asyncio.Task[object]]()
            for i in range(4):
                trials.append(asyncio.create_task(client.send(ask(text=str(i)))))
                await asyncio.sleep(1)
                assert replicas.under_way["a"] == 1
            for trial in trials:
                trial.cancel()
            await asyncio.gather(*trials, return_exceptions=True)
            assert replicas.under_way["a"] == 0
            before = len(replicas.times("a"))
            for i in range(2):
                trials.append(asyncio.create_task(client.send(ask(text=str(i)))))
                await asyncio.sleep(1)
            assert len(replicas.times("a")) == before + 1
            trials[-1].cancel()
            trials[-2].cancel()

    virtual(story())


@pytest.mark.parametrize("script", [hanging, broken, cut])
def test_when_all_are_out_the_first_to_be_back_answers(script: Script) -> None:
    replicas = Replicas({"a": lambda at: script(at) if at < 30 else "24", "b": script})
    came = story_of_many(replicas, 40)
    assert {getattr(reply, "answered_by", type(reply)) for reply in came} <= {
        "m-1@a",
        EndpointError,
    }
    assert any(getattr(reply, "answered_by", None) == "m-1@a" for reply in came)


def test_a_request_that_a_server_refuses_for_its_own_sake_puts_nobody_out() -> None:
    def refuses(_: float) -> Answer:
        told = {"error": {"message": "too long", "code": "context_length_exceeded"}}
        return httpx.Response(500, json=told)

    replicas = Replicas({"a": refuses, "b": good})
    came = ask_slowly(replicas, 20, 1)
    assert len(replicas.times("a")) == 10
    assert sum(isinstance(reply, EndpointError) for reply in came) == 10
    assert replicas.notices == []


@pytest.mark.parametrize("script", [hanging, broken, cut])
def test_a_single_address_is_asked_again_without_a_notice(script: Script) -> None:
    replicas = Replicas({"a": lambda at: script(at) if at < 1 else "24"})
    assert ask_slowly(replicas, 1, 0) == ["m-1@a"]
    assert replicas.asked[-1][1] <= DEADLINE_S + 2
    assert replicas.notices == []
