"""When requests start: after the waits a server asks for, and not faster than is allowed."""

import asyncio
import email.utils
import time
from collections.abc import Awaitable, Sequence
from itertools import pairwise
from typing import Any

import httpx
import pytest

from grpo_practice.core.errors import EndpointError, EndpointRefusedError
from grpo_practice.llm.admission import Admission
from grpo_practice.llm.concurrency import FIRST
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.rate_limit import Rate
from tests.fakes import Answer, FakeEndpoint, FakeSleep, Script, answers, reply
from tests.llm.test_client import URL, ask, connect
from tests.llm.virtual import virtual


def seconds() -> float:
    return asyncio.get_running_loop().time()


def busy(status: int = 429, **headers: str) -> httpx.Response:
    named = {k.replace("_", "-"): v for k, v in headers.items()}
    return httpx.Response(status, json={"error": {"message": "busy"}}, headers=named)


def timed(script: Script, came: list[float]) -> FakeEndpoint:
    """An endpoint that keeps when it was asked."""

    def answer(body: dict[str, Any]) -> Answer | Awaitable[Answer]:
        came.append(seconds())
        return script(body)

    return FakeEndpoint(answer)


async def waited(answer: httpx.Response) -> tuple[float, int]:
    """Seconds between the two tries of a request, and how many tries it says there were."""
    came = list[float]()
    async with connect(timed(answers(answer, "24"), came), sleep=asyncio.sleep) as client:
        got = await client.send(ask())
    return came[1] - came[0], got.tries


def test_1_1_retry_after_is_waited_for_and_the_tries_are_counted() -> None:
    wait_s, tries = virtual(waited(busy(retry_after="2")))
    assert 2 <= wait_s <= 2.2
    assert tries == 2


def test_1_2_retry_after_ms_is_in_milliseconds() -> None:
    wait_s, _ = virtual(waited(busy(retry_after_ms="300")))
    assert 0.3 <= wait_s <= 0.33


def test_1_3_a_date_ahead_is_waited_for_and_one_in_the_past_is_not() -> None:
    ahead = email.utils.formatdate(time.time() + 20, usegmt=True)
    wait_s, _ = virtual(waited(busy(retry_after=ahead)))
    assert 17 <= wait_s <= 22
    past = email.utils.formatdate(time.time() - 20, usegmt=True)
    wait_s, _ = virtual(waited(busy(retry_after=past)))
    assert wait_s <= 2  # the first backoff of our own


NONSENSE = ["-10", "0", "inf", "nan", "", "9" * 35, "Fri, 31 Dec 100000 23:59:59 GMT"]


@pytest.mark.parametrize("value", NONSENSE)
def test_1_4_nonsense_is_answered_by_our_own_backoff(value: str) -> None:
    wait_s, tries = virtual(waited(busy(retry_after=value)))
    assert 0 <= wait_s <= 2
    assert tries == 2


def test_1_5_when_every_request_is_put_off_for_a_day_the_run_stops() -> None:
    async def story() -> Sequence[object]:
        server = FakeEndpoint(answers(busy(retry_after="86400")))
        async with connect(server, n=4, sleep=asyncio.sleep) as client:
            jobs = (client.send(ask(text=str(i))) for i in range(50))
            results = await asyncio.gather(*jobs, return_exceptions=True)
        assert len(server.seen) <= 8
        return results

    results = virtual(story())
    refused = [r for r in results if isinstance(r, EndpointRefusedError)]
    assert "the server asks us to wait 24 h" in str(refused[0])
    assert "again in 24 h" in str(refused[0].hint)
    assert {type(r) for r in results} == {EndpointError, EndpointRefusedError}


def test_1_5_one_that_is_put_off_among_answers_fails_alone() -> None:
    def script(body: dict[str, Any]) -> Answer:
        bad = int(body["messages"][0]["content"]) % 2
        return busy(retry_after="86400") if bad else "24"

    async def story() -> list[bool]:
        async with connect(FakeEndpoint(script), n=1, sleep=asyncio.sleep) as client:
            jobs = (client.send(ask(text=str(i))) for i in range(20))
            results = await asyncio.gather(*jobs, return_exceptions=True)
        return [type(r) is EndpointError for r in results]

    assert virtual(story()) == [False, True] * 10


# One clock for everybody


def test_no_request_starts_before_then_whichever_client_it_comes_from() -> None:
    came = list[float]()

    def script(body: dict[str, Any]) -> Answer:
        return busy(503, retry_after="30") if len(came) == 1 else "24"

    async def story() -> None:
        server, shared = timed(script, came), Admission()
        async with (
            connect(server, n=2, sleep=asyncio.sleep, admission=shared) as student,
            connect(server, n=2, sleep=asyncio.sleep, admission=shared) as judge,
        ):
            first = asyncio.create_task(student.send(ask()))
            await asyncio.sleep(10)
            await asyncio.gather(first, *(judge.send(ask(text=str(i))) for i in range(20)))

    virtual(story())
    start, *later = came
    assert start == 0
    assert len(later) == 21
    assert all(30 <= at <= 33 for at in later)
    assert max(later) > 31


def test_a_longer_wait_asked_for_meanwhile_counts() -> None:
    came = list[float]()

    async def script(body: dict[str, Any]) -> Answer:
        came.append(seconds())
        if len(came) == 1:
            return busy(retry_after="5")
        if len(came) == 2:
            await asyncio.sleep(3)
            return busy(retry_after="60")
        return "24"

    async def story() -> None:
        async with connect(FakeEndpoint(script), sleep=asyncio.sleep) as client:
            await asyncio.gather(client.send(ask()), client.send(ask(text="b")))

    virtual(story())
    assert came[:2] == [0, 0]
    assert all(63 <= at <= 69 for at in came[2:])


def test_a_shorter_wait_asked_for_meanwhile_does_not() -> None:
    came = list[float]()

    async def script(body: dict[str, Any]) -> Answer:
        came.append(seconds())
        if len(came) > 2:
            return "24"
        last = len(came) == 2
        await asyncio.sleep(3 if last else 0)
        return busy(retry_after="2" if last else "60")

    async def story() -> None:
        async with connect(FakeEndpoint(script), sleep=asyncio.sleep) as client:
            await asyncio.gather(client.send(ask()), client.send(ask(text="b")))

    virtual(story())
    assert all(60 <= at <= 66 for at in came[2:])


def test_a_wait_is_in_nobodys_seconds_and_in_no_deadline() -> None:
    async def slow(_: dict[str, Any]) -> Answer:
        await asyncio.sleep(1)
        return busy(retry_after="100") if len(server.seen) == 1 else "24"

    server = FakeEndpoint(slow)

    async def story() -> list[float]:
        endpoint = Endpoint(URL, timeout_s=5)
        async with connect(server, endpoint, n=1, sleep=asyncio.sleep) as client:
            jobs = (client.send(ask(text=str(i)), limit_s=3) for i in range(3))
            replies = await asyncio.gather(*jobs)
        assert seconds() > 100
        return [got.seconds for got in replies]

    assert virtual(story()) == pytest.approx([1, 1, 1])


def test_who_is_cancelled_while_waiting_holds_nothing() -> None:
    async def story() -> None:
        server = FakeEndpoint(answers(busy(retry_after="60"), "24"))
        async with connect(server, n=1, sleep=asyncio.sleep) as client:
            tasks = [asyncio.create_task(client.send(ask(text=str(i)))) for i in range(100)]
            await asyncio.sleep(1)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert (await client.send(ask())).content == "24"
        assert 60 <= seconds() <= 66

    virtual(story())


async def test_a_sleep_that_takes_no_time_is_believed() -> None:
    sleep = FakeSleep()
    async with connect(FakeEndpoint(answers(busy(retry_after="90"), "24")), sleep=sleep) as client:
        await client.send(ask())
    (slept,) = sleep.slept
    assert 90 <= slept <= 99


# Rates


def starts(endpoint: Endpoint, n: int, answer: Answer = "24") -> list[float]:
    """When each of `n` requests, asked for at once, reached the server."""
    came = list[float]()

    async def story() -> None:
        server = timed(lambda _: answer, came)
        async with connect(server, endpoint, n=64, sleep=asyncio.sleep) as client:
            await asyncio.gather(*(client.send(ask(text=str(i))) for i in range(n)))

    virtual(story())
    return came


def test_requests_are_spread_over_the_minute() -> None:
    came = starts(Endpoint(URL, requests_per_minute=120), 240)
    assert 118 <= came[-1] <= 120
    gaps = [b - a for a, b in pairwise(came)]
    assert max(gaps) <= 0.51
    assert sum(at < 1 for at in came) <= 5  # no minute's worth at once


def test_after_a_quiet_time_only_a_little_is_made_up_for() -> None:
    came = list[float]()

    async def story() -> None:
        endpoint = Endpoint(URL, requests_per_minute=60)
        async with connect(
            timed(answers("24"), came), endpoint, n=64, sleep=asyncio.sleep
        ) as client:
            await client.send(ask())
            await asyncio.sleep(600)
            await asyncio.gather(*(client.send(ask(text=str(i))) for i in range(10)))

    virtual(story())
    assert sum(at < 601 for at in came[1:]) <= 3
    assert came[-1] > 607


def used(tokens: int) -> httpx.Response:
    return reply("24", usage={"prompt_tokens": tokens // 2, "completion_tokens": tokens // 2})


def test_tokens_are_counted_as_they_were_used_not_as_they_were_estimated() -> None:
    endpoint = Endpoint(URL, tokens_per_minute=6_000)
    few, many = (starts(endpoint, 20, used(tokens))[-1] for tokens in (100, 1_000))
    assert few < 25  # 20 estimates of 2,000 each would take nearly 400 s
    assert 160 <= many <= 220


def test_one_rate_holds_for_all_who_ask_the_endpoint_and_the_lowest_of_several() -> None:
    came = list[float]()

    async def story() -> None:
        shared, server = Admission(), timed(answers("24"), came)
        fast, slow = (Endpoint(URL, requests_per_minute=n) for n in (600, 60))
        async with (
            connect(server, fast, sleep=asyncio.sleep, admission=shared) as student,
            connect(server, slow, sleep=asyncio.sleep, admission=shared) as judge,
        ):
            jobs = [c.send(ask(text=str(i))) for i in range(10) for c in (student, judge)]
            await asyncio.gather(*jobs)

    virtual(story())
    assert len(came) == 20
    assert 18 <= came[-1] <= 20


def test_a_teacher_has_the_next_turn_and_a_cancelled_waiter_has_none() -> None:
    came = list[tuple[str, float]]()

    def script(body: dict[str, Any]) -> Answer:
        came.append((body["messages"][0]["content"], seconds()))
        return "24"

    async def story() -> None:
        endpoint = Endpoint(URL, requests_per_minute=6)
        async with connect(FakeEndpoint(script), endpoint, n=16, sleep=asyncio.sleep) as client:
            await client.send(ask(text="0"))
            gone = [asyncio.create_task(client.send(ask(text="gone"))) for _ in range(5)]
            kept = asyncio.create_task(client.send(ask(text="student")))
            await asyncio.sleep(1)
            teacher = asyncio.create_task(client.sender(FIRST)(ask(text="teacher")))
            await asyncio.sleep(1)
            for task in gone:
                task.cancel()
            await asyncio.gather(kept, teacher)

    virtual(story())
    assert [name for name, _ in came] == ["0", "teacher", "student"]
    assert came[-1][1] < 30


def test_who_waits_for_its_turn_does_not_start_into_a_pause() -> None:
    came = list[float]()

    def script(body: dict[str, Any]) -> Answer:
        return busy(retry_after="30") if len(came) == 1 else "24"

    async def story() -> None:
        endpoint = Endpoint(URL, requests_per_minute=30)
        async with connect(timed(script, came), endpoint, n=16, sleep=asyncio.sleep) as client:
            await asyncio.gather(*(client.send(ask(text=str(i))) for i in range(16)))

    virtual(story())
    assert came[0] == 0
    assert all(at >= 30 for at in came[1:])
    assert came[-1] < 30 + 16 * 2 + 5


def test_without_a_rate_nothing_is_counted() -> None:
    rate = Rate()
    rate.cap(None, None)
    assert (rate.requests, rate.tokens) == (None, None)
