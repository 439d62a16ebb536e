"""The simulated endpoint streams what it would have said in one piece."""

import json
from typing import Any

import httpx
import pytest

from grpo_practice.core.calls import Request
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.sim import SimTransport
from grpo_practice.sim import answer
from tests.llm.test_sim import QUESTIONS, body, served
from tests.sim.agents import offered


@pytest.mark.parametrize("tools", [(), ("search",), ("execute_python_code",)])
async def test_a_streamed_reply_is_the_whole_one(tools: tuple[str, ...]) -> None:
    request = Request("sim", {"seed": 5}, body(QUESTIONS[0], 5)["messages"], offered(*tools))
    replies = []
    for stream in (False, True):
        endpoint = Endpoint(base_url="http://sim/v1", api_key=None, stream=stream)
        async with Client(
            endpoint, Limit(2), notice=pytest.fail, transport=SimTransport()
        ) as client:
            replies.append(await client.send(request))
    whole, streamed = replies
    assert streamed.message == whole.message
    assert (streamed.finish, streamed.usage) == (whole.finish, whole.usage)
    assert bool(whole.message.get("tool_calls")) == bool(tools)


@pytest.mark.parametrize(
    ("options", "counted"),
    [({"include_usage": True}, True), ({}, False), (None, False), (1, False)],
)
async def test_over_http_it_comes_as_events(options: Any, counted: bool) -> None:
    asked = {**body(QUESTIONS[0], 5), "stream": True, "stream_options": options}
    async with served() as address, httpx.AsyncClient() as http:
        reply = await http.post(f"{address}/v1/chat/completions", json=asked)
    assert reply.headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in reply.text.splitlines() if line]
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    told = answer(body(QUESTIONS[0], 5))
    text = told["choices"][0]["message"]["content"]
    assert "".join(delta.get("content") or "" for delta in deltas) == text
    assert len(deltas) > 5
    assert [chunk["usage"] for chunk in chunks if "usage" in chunk] == [told["usage"]] * counted


async def test_what_cannot_be_answered_is_no_stream() -> None:
    async with served() as address, httpx.AsyncClient() as http:
        reply = await http.post(
            f"{address}/v1/chat/completions", json={"messages": [], "stream": True}
        )
    assert reply.status_code == 400
    assert "messages" in reply.json()["error"]["message"]
