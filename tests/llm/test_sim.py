import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from httpx_aiohttp import AiohttpTransport

from grpo_practice.calls import Request
from grpo_practice.chat_server import sim_server
from grpo_practice.chat_server.sim_server import serve
from grpo_practice.errors import EndpointError
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.sim import SimTransport
from grpo_practice.sim import DEFAULT, World, answer
from grpo_practice.sim.questions import questions
from tests.processes import HANG_S

QUESTIONS = [s.question for s in questions(10, seed=0)]


def body(question: str, seed: int) -> dict[str, Any]:
    return {"model": "sim", "messages": [{"role": "user", "content": question}], "seed": seed}


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
    endpoint = Endpoint(base_urls=("http://sim/v1",), api_key=None)
    async with Client(endpoint, Limit(2), notice=pytest.fail, transport=SimTransport()) as client:
        reply = await client.send(request)
    told = answer(body(QUESTIONS[0], 5))
    assert reply.message == told["choices"][0]["message"]
    assert reply.answered_by == "sim@sim"
    assert reply.usage.tokens_out == told["usage"]["completion_tokens"]


async def test_a_refused_request_fails_alone_in_the_real_client() -> None:
    endpoint = Endpoint(base_urls=("http://sim/v1",), api_key=None)
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
