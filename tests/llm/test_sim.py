import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from httpx_aiohttp import AiohttpTransport

from grpo_practice.core.calls import Request
from grpo_practice.core.errors import EndpointError
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.sim import SimTransport, respond
from grpo_practice.rollout.chat_server import sim_server
from grpo_practice.rollout.chat_server.sim_server import serve
from grpo_practice.sim import DEFAULT, World, answer
from grpo_practice.sim.questions import questions, solve
from grpo_practice.sim.world import Difficulty, Failing
from tests.processes import HANG_S

QUESTIONS = [s.question for s in questions(10, seed=0)]


def body(question: str, seed: int) -> dict[str, Any]:
    return {"model": "sim", "messages": [{"role": "user", "content": question}], "seed": seed}


def right(question: str, reply: httpx.Response) -> bool:
    content = reply.json()["choices"][0]["message"]["content"]
    return bool(content.endswith(f"\\boxed{{{solve(question)}}}"))


def in_process(world: World = DEFAULT) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=SimTransport(world), base_url="http://sim/v1")


@asynccontextmanager
async def served(world: World = DEFAULT, latency_s: float = 0.0) -> AsyncIterator[str]:
    """The address of a server that runs as long as the block."""
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(0, world=world, latency_s=latency_s, on_ready=port.set_result))
    try:
        yield f"http://127.0.0.1:{await asyncio.wait_for(port, HANG_S)}"
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_real_client_gets_the_answer_of_the_world() -> None:
    request = Request("sim", {"seed": 5}, body(QUESTIONS[0], 5)["messages"])
    endpoint = Endpoint(base_url="http://sim/v1", api_key=None)
    async with Client(endpoint, Limit(2), notice=pytest.fail, transport=SimTransport()) as client:
        reply = await client.send(request)
    told = answer(body(QUESTIONS[0], 5))
    assert reply.message == told["choices"][0]["message"]
    assert reply.answered_by == "sim@sim"
    assert reply.usage.tokens_out == told["usage"]["completion_tokens"]


async def test_a_refused_request_fails_alone_in_the_real_client() -> None:
    endpoint = Endpoint(base_url="http://sim/v1", api_key=None)
    async with Client(endpoint, Limit(2), notice=pytest.fail, transport=SimTransport()) as client:
        with pytest.raises(EndpointError, match="messages"):
            await client.send(Request("sim", {"seed": 5}, []))


async def test_other_tasks_run_before_a_reply_comes() -> None:
    order = []

    async def tick() -> None:
        order.append("tick")

    async with in_process() as http:
        other = asyncio.create_task(tick())
        await http.post("/chat/completions", json=body(QUESTIONS[0], 0))
        order.append("reply")
        await other
    assert order == ["tick", "reply"]


async def test_served_over_http_answers_are_those_of_the_process() -> None:
    world = World(seed=3)
    bodies = [body(q, seed) for q in QUESTIONS for seed in range(3)]
    async with served(world) as address, in_process(world) as inside:
        async with httpx.AsyncClient(transport=AiohttpTransport()) as http:
            url = f"{address}/v1/chat/completions"
            outside = await asyncio.gather(*(http.post(url, json=b) for b in reversed(bodies)))
        replies = [await inside.post("/chat/completions", json=b) for b in bodies]
    assert [r.json() for r in reversed(outside)] == [r.json() for r in replies]
    assert [r.json() for r in replies] == [answer(b, world) for b in bodies]


@pytest.mark.long
@pytest.mark.parametrize("drift", [20.0, -20.0])
async def test_drift_moves_the_share_of_right_answers_over_requests(drift: float) -> None:
    world = World(difficulty=Difficulty(1e9, 1e9), dilution=0.0, drift=drift)
    bodies = [body(QUESTIONS[0], seed) for seed in range(200)]
    async with served(world) as address, in_process(world) as inside, httpx.AsyncClient() as http:
        here, there = "/chat/completions", f"{address}/v1/chat/completions"
        for client, url in ((inside, here), (http, there)):
            replies = [await client.post(url, json=b) for b in bodies]
            shares = [sum(right(QUESTIONS[0], r) for r in replies[i : i + 50]) for i in (0, 150)]
            early, late = shares if drift > 0 else shares[::-1]
            assert early + 10 < late
            again = [await client.post(url, json=b) for b in bodies]
            assert [r.json() for r in again] == [
                answer(b, world, 200 + n) for n, b in enumerate(bodies)
            ]


async def test_only_chat_requests_that_are_answered_count_for_drift() -> None:
    world = World(drift=5_000.0, fail=Failing(wrong=1.0), difficulty=Difficulty(1.0, 1e9))
    async with served(world) as address, in_process(world) as inside, httpx.AsyncClient() as http:
        for client, url in ((inside, "/"), (http, f"{address}/v1/")):
            for _ in range(3):
                assert (await client.get(f"{url}models")).status_code == 200
                assert (await client.post(f"{url}chat/completions", json={})).status_code == 400
                sent = await client.post(f"{url}chat/completions", json=body(QUESTIONS[0], 0))
                assert sent.status_code == 500, "one more logit is 5 more: nothing was counted"


@pytest.mark.long
async def test_exactly_the_requests_drawn_fail_and_fail_again() -> None:
    bodies = [body(q, seed) for q in QUESTIONS for seed in range(40)]
    plain = [respond("POST", "/chat/completions", json.dumps(b).encode())[1] for b in bodies]
    world = World(fail=Failing(right=0.1, wrong=0.5))
    async with served(world) as address, in_process(world) as inside, httpx.AsyncClient() as http:
        here = [await inside.post("/chat/completions", json=b) for b in bodies]
        url = f"{address}/v1/chat/completions"
        again = [await inside.post("/chat/completions", json=b) for b in reversed(bodies)]
        there = [await http.post(url, json=b) for b in bodies]
    assert [r.status_code for r in here] == [r.status_code for r in reversed(again)]
    assert [r.json() for r in here] == [r.json() for r in there]
    failed = {True: list[bool](), False: list[bool]()}
    for asked, reply, usual in zip(bodies, here, plain, strict=True):
        usual_reply = httpx.Response(200, json=usual)
        failed[right(asked["messages"][0]["content"], usual_reply)].append(reply.is_error)
        assert reply.status_code == 500 or reply.json() == usual
    shares = {was_right: sum(of) / len(of) for was_right, of in failed.items()}
    assert shares[True] == pytest.approx(0.1, abs=0.07)
    assert shares[False] == pytest.approx(0.5, abs=0.12)
    assert {r.json()["error"]["type"] for r in here if r.is_error} == {"server_error"}


async def test_only_the_first_request_of_an_attempt_fails_and_no_other_question() -> None:
    world = World(fail=Failing(right=1.0, wrong=1.0))
    asked = body(QUESTIONS[0], 0)
    asked["messages"].append({"role": "assistant", "content": "Step 1: I think."})
    summarise = body(f"{QUESTIONS[0]}\n\n## The attempt", 0)
    async with in_process(world) as inside:
        for sent in (asked, body("What is the capital of France?", 0), summarise):
            assert (await inside.post("/chat/completions", json=sent)).status_code == 200
        first = await inside.post("/chat/completions", json=body(QUESTIONS[0], 0))
    assert first.status_code == 500


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("POST", "/v1/chat/completions", b"{", 400),
        ("POST", "/v1/chat/completions", b"[" * 100_000, 400),
        ("POST", "/v1/chat/completions", b"\xff", 400),
        ("POST", "/v1/chat/completions", b'{"messages": []}', 400),
        ("GET", "/v1/chat/completions", b"", 405),
        ("POST", "/v1/embeddings", b"{}", 404),
    ],
)
async def test_what_cannot_be_answered_gets_the_usual_error_object(
    method: str, path: str, content: bytes, status: int
) -> None:
    async with in_process() as inside:
        reply = await inside.request(method, f"http://sim{path}", content=content)
    async with served() as address, httpx.AsyncClient() as http:
        outside = await http.request(method, f"{address}{path}", content=content)
        stats = (await http.get(f"{address}/stats")).json()
    assert reply.status_code == outside.status_code == status
    assert reply.json() == outside.json()
    assert reply.json()["error"]["type"] == "invalid_request_error"
    assert stats == {"requests": 0, "by_stage": {}}


async def test_the_model_is_listed() -> None:
    async with in_process() as inside:
        models = (await inside.get("/models")).json()
    assert [model["id"] for model in models["data"]] == ["sim"]


async def test_the_server_counts_what_was_asked_by_stage() -> None:
    summarise = "## The attempt\n\nhere"
    async with served() as address, httpx.AsyncClient() as http:
        for text in (*QUESTIONS[:3], summarise):
            await http.post(f"{address}/v1/chat/completions", json=body(text, 0))
        stats = await http.get(f"{address}/stats")
    assert stats.json() == {"requests": 4, "by_stage": {"play": 3, "summarise": 1}}


async def test_latency_delays_each_request_while_the_others_wait_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delays, all_wait = list[float](), asyncio.Barrier(len(QUESTIONS))

    async def sleep(seconds: float) -> None:
        delays.append(seconds)
        await all_wait.wait()

    monkeypatch.setattr(sim_server, "sleep", sleep)
    async with served(latency_s=0.2) as address, httpx.AsyncClient() as http:
        url = f"{address}/v1/chat/completions"
        async with asyncio.timeout(HANG_S):  # one after the other, they would wait for ever
            await asyncio.gather(*(http.post(url, json=body(q, 0)) for q in QUESTIONS))
    assert delays == [0.2] * len(QUESTIONS)


async def test_a_port_in_use_is_an_error() -> None:
    async with served() as address:
        with pytest.raises(OSError, match=r"address already in use|bind"):
            await serve(int(address.rpartition(":")[2]), on_ready=lambda _: None)
