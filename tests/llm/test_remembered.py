"""What the client remembers: refusals, and what an endpoint does not take."""

import asyncio
from typing import Any

import pytest

from grpo_practice.core.calls import Request
from grpo_practice.core.errors import EndpointError, EndpointRefusedError
from tests.fakes import Answer, FakeEndpoint, answers
from tests.llm.test_client import HI, ask, connect, down, forever
from tests.processes import HANG_S


async def test_1_13_after_a_refusal_nothing_more_is_sent() -> None:
    server = FakeEndpoint(answers("24", down(401, message="revoked")))
    async with connect(server, n=4) as client:
        assert (await client.send(ask())).content == "24"
        results = await asyncio.gather(
            *(client.send(ask()) for _ in range(50)), return_exceptions=True
        )
    assert {type(r) for r in results} == {EndpointRefusedError}
    assert {str(r) for r in results} == {str(results[0])}
    assert len(server.seen) <= 1 + 4


async def test_a_refusal_reaches_those_that_wait_for_their_next_try() -> None:
    server = FakeEndpoint(lambda b: down(401) if b["messages"][0]["content"] == "x" else down(503))
    asleep, wake = asyncio.Event(), asyncio.Event()

    async def sleep(_: float) -> None:
        asleep.set()
        await wake.wait()

    async with connect(server, sleep=sleep) as client:
        waiting = asyncio.create_task(client.send(ask()))
        await asleep.wait()
        with pytest.raises(EndpointRefusedError):
            await client.send(ask(text="x"))
        wake.set()
        with pytest.raises(EndpointRefusedError):
            await waiting
    assert len(server.seen) == 2


async def test_1_41_an_adaptation_is_learnt_once_and_said_once() -> None:
    told = list[str]()

    def strict(body: dict[str, Any]) -> Answer:
        if "seed" in body:
            return down(400, message="Unrecognized request argument supplied: seed")
        if "max_tokens" in body:
            return down(400, message="'max_tokens' is not supported", param="max_tokens")
        return "24"

    server, request = FakeEndpoint(strict), ask(max_tokens=9)
    async with connect(server, notice=told.append) as client:
        await asyncio.gather(*(client.send(request) for _ in range(6)))
        sent = len(server.seen)
        got = await client.send(request)
    assert server.seen[-1] == {"model": "m-1", "messages": HI, "max_completion_tokens": 9}
    assert (len(server.seen), got.tries) == (sent + 1, 1)
    assert request == ask(max_tokens=9)
    assert len(told) == 2
    assert any("`seed`: it is omitted" in t for t in told)
    assert any("`max_tokens`: it is sent as `max_completion_tokens`" in t for t in told)


async def test_1_41_what_one_model_does_not_take_is_still_sent_to_another() -> None:
    def picky(body: dict[str, Any]) -> Answer:
        if body["model"] == "m-1" and "seed" in body:
            return down(400, message="unknown parameter: seed")
        return "24"

    server = FakeEndpoint(picky)
    async with connect(server) as client:
        await client.send(ask())
        await client.send(Request("m-2", {"seed": 5}, HI))
    assert [b.get("seed") for b in server.seen] == [5, None, 5]


async def test_1_27_cancelled_requests_leave_the_client_usable() -> None:
    block, came = True, asyncio.Event()

    async def script(body: dict[str, Any]) -> str:
        came.set()
        return await forever(body) if block else "24"

    async with connect(FakeEndpoint(script), n=4) as client:
        tasks = [asyncio.create_task(client.send(ask())) for _ in range(200)]
        await came.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        block = False
        async with asyncio.timeout(HANG_S):
            assert (await client.send(ask())).content == "24"


async def test_the_cause_of_a_refusal_says_what_is_known_of_the_tries_if_there_were_any() -> None:
    server = FakeEndpoint(answers(down(503), down(401, message="no")))
    async with connect(server) as client:
        with pytest.raises(EndpointRefusedError) as sent:
            await client.send(ask())
        with pytest.raises(EndpointRefusedError) as unsent:
            await client.send(ask())
    known = sent.value.__cause__
    assert isinstance(known, EndpointError)
    assert (known.kind, known.status, known.tries, known.maybe_paid) == ("endpoint", 401, 2, False)
    assert unsent.value.__cause__ is None
