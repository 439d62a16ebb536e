"""Clients that are not ours: the `openai` package and `curl`."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from openai import AsyncOpenAI, NotFoundError

from tests.contract.endpoint.actions import completion
from tests.serve.place import BASE, PROMPT, agent_file, served, upstream
from tests.serve.test_service import Q, piece, stream

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


async def handler(request: web.Request) -> web.StreamResponse:
    body = await request.json()
    if body.get("stream"):
        response = await stream(request)
        for text in ("It ", "is ", "2."):
            await response.write(piece(text))
        end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        await response.write(f"data: {json.dumps(end)}\n\ndata: [DONE]\n\n".encode())
        return response
    if body.get("tools") and body["messages"][-1]["role"] == "user":
        message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
        return web.json_response(completion(message, finish="tool_calls"))
    return web.json_response(completion("It is 2."))


async def test_the_openai_package_streamed_and_not(tmp_path: Path) -> None:
    async with (
        upstream(handler) as up,
        served(agent_file(tmp_path, up.url)) as place,
        AsyncOpenAI(base_url=place.url, api_key="unused", max_retries=0) as client,
    ):
        assert [m.id async for m in client.models.list()] == ["math_agent", "m-1"]
        whole = await client.chat.completions.create(
            model="math_agent",
            messages=[
                {"role": "system", "content": BASE},
                {"role": "user", "content": "1 + 1?"},
            ],
        )
        assert whole.choices[0].message.content == "It is 2."
        assert up.messages[0] == {"role": "system", "content": PROMPT}
        pieces = await client.chat.completions.create(
            model="math_agent", messages=[{"role": "user", "content": "1 + 1?"}], stream=True
        )
        said = [c.choices[0].delta.content async for c in pieces]
        assert said == ["It ", "is ", "2.", None]
        with pytest.raises(NotFoundError, match="only POST chat/completions"):
            await client.embeddings.create(model="m", input="x")


async def test_a_tool_of_the_client_is_called_by_the_openai_package(tmp_path: Path) -> None:
    async with (
        upstream(handler) as up,
        served(agent_file(tmp_path, up.url)) as place,
        AsyncOpenAI(base_url=place.url, api_key="unused", max_retries=0) as client,
    ):
        messages: list[Any] = [{"role": "user", "content": "1 + 1?"}]
        first = await client.chat.completions.create(
            model="a",
            messages=messages,
            tools=TOOLS,  # type: ignore[arg-type]
        )
        message = first.choices[0].message
        assert message.tool_calls is not None
        call = message.tool_calls[0]
        result = {"role": "tool", "tool_call_id": call.id, "content": "2"}
        second = await client.chat.completions.create(
            model="a",
            messages=[*messages, message, result],  # type: ignore[list-item]
            tools=TOOLS,  # type: ignore[arg-type]
        )
        assert second.choices[0].message.content == "It is 2."
        assert up.bodies[-1]["tools"] == TOOLS
        assert up.messages[-1] == result


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
async def test_curl_streamed_and_not(tmp_path: Path) -> None:
    async with upstream(handler) as up, served(agent_file(tmp_path, up.url)) as place:
        for streamed in (False, True):
            body = json.dumps({"messages": [Q], "stream": streamed})
            words = ["-sS", "-N", "--noproxy", "*", "-w", "%{http_code}", "-d", body]
            process = await asyncio.create_subprocess_exec(
                "curl", *words, f"{place.url}/chat/completions", stdout=asyncio.subprocess.PIPE
            )
            out, _ = await process.communicate()
            text = out.decode()
            assert text.endswith("200")
            if streamed:
                assert text.startswith(piece("It ").decode() + piece("is ").decode())
                assert text.endswith("data: [DONE]\n\n200")
            else:
                assert json.loads(text[:-3])["choices"][0]["message"]["content"] == "It is 2."
            assert up.messages == [{"role": "system", "content": PROMPT}, Q]
