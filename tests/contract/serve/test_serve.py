"""What a client gets from an agent that is served, over real sockets."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from tests.contract.endpoint.actions import completion
from tests.contract.serving import (
    BASE,
    DONE,
    KEY,
    PROMPT,
    SIM,
    STOP,
    Q,
    agent_file,
    assistant,
    both,
    piece,
    served,
    stream,
    system,
    upstream,
    user,
)
from tests.late import Late
from tests.processes import HANG_S

if TYPE_CHECKING:
    import openai
else:
    openai = Late("openai")

TOOLS: Any = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def parts(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts]


async def test_the_prompt_stands_first_byte_for_byte_and_once(tmp_path: Path) -> None:
    rest = [
        Q,
        {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
        system("And brief."),
    ]
    async with both(tmp_path) as (up, place):
        for theirs, first in [
            (None, PROMPT),
            (system(BASE), PROMPT),
            (system(PROMPT), PROMPT),
            ({"role": "developer", "content": BASE}, PROMPT),
            ({"role": "system", "content": parts(BASE)}, PROMPT),
            (system(""), PROMPT),
            ({"role": "system", "content": None}, PROMPT),
            (system("Be kind."), f"{PROMPT}\n\nBe kind."),
            ({"role": "developer", "content": "Be kind."}, f"{PROMPT}\n\nBe kind."),
            (system(f" {BASE}"), f"{PROMPT}\n\n {BASE}"),
            (
                {"role": "system", "content": parts("Be", "kind.")},
                parts(f"{PROMPT}\n\n", "Be", "kind."),
            ),
        ]:
            assert (await place.ask(*([theirs] if theirs else []), *rest))["status"] == 200
            assert up.messages == [{"role": "system", "content": first}, *rest], theirs
        assert place.report.document() == {
            "schema": "grpo-practice.serve/1",
            "url": place.url,
            "name": "math_agent",
            "experiences": 2,
            "model": "m-1",
            "passing_on_to": up.url,
            "simulated": False,
            "run": None,
            "next": None,
            "exit": None,
        }
    for base in ("[E9] looks like an entry", "Ends\n\n", ""):
        async with both(tmp_path, instructions=base) as (up, place):
            for theirs in (None, system("Be kind.")):
                asked = [theirs, Q] if theirs else [Q]
                await place.ask(*asked)
                if not base:
                    assert up.messages == asked
                else:
                    kind = f"{base}\n\nBe kind." if theirs else base
                    assert up.messages == [system(kind), Q]
            assert place.report.document()["experiences"] == 0


async def test_the_client_s_settings_win_and_the_agent_s_fill_what_is_absent(
    tmp_path: Path,
) -> None:
    settings = {"temperature": 0.3, "max_tokens": 99, "tool_choice": "auto", "metadata": {"a": "b"}}
    async with both(tmp_path, settings=settings) as (up, place):
        await place.ask(Q, headers={"Authorization": "Bearer of-the-client", "X-Trace": "1"})
        filled = {"temperature": 0.3, "max_tokens": 99, "metadata": {"a": "b"}}
        assert up.settings == {"model": "m-1", **filled}
        assert up.headers[-1]["authorization"] == f"Bearer {KEY}"
        assert "of-the-client" not in str(up.headers[-1])
        assert "x-trace" not in up.headers[-1]
        theirs = {
            "temperature": 1,
            "max_completion_tokens": 5,
            "tools": TOOLS,
            "response_format": {"type": "json_object"},
            "n": 2,
            "seed": 7,
            "top_p": None,
            "vendor_key": {"x": [1.0, None]},
        }
        await place.ask(Q, **theirs)
        rest = {"tool_choice": "auto", "metadata": {"a": "b"}}
        assert up.settings == {**theirs, **rest, "model": "m-1"}
    settings = {"extra_body": {"max_completion_tokens": 9}}
    async with both(tmp_path, settings=settings) as (up, place):
        await place.ask(Q)
        assert up.settings == {"model": "m-1", "max_completion_tokens": 9}


async def test_status_body_and_headers_come_back_as_they_are(tmp_path: Path) -> None:
    body = b'{ "error" : {"message": "\\u00fc", "code": null},\n "choices":[] }\n\n'
    statuses = (200, 400, 401, 429, 500)

    async def handler(_: web.Request) -> web.StreamResponse:
        told = {"content-type": "application/json", "retry-after": "7", "x-request-id": "r-1"}
        status = statuses[len(up.bodies) - 1]
        return web.Response(status=status, body=body, headers={**told, "set-cookie": "a=b"})

    async with both(tmp_path, handler) as (up, place):
        for status in statuses:
            async with place.post({"messages": [Q]}) as came:
                assert (came.status, await came.read()) == (status, body)
                assert (came.headers["retry-after"], came.headers["x-request-id"]) == ("7", "r-1")
                assert "set-cookie" not in came.headers
        assert place.counted == (5, 4, 0)


async def test_a_stream_is_passed_on_piece_by_piece_not_at_its_end(tmp_path: Path) -> None:
    seen = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = await stream(request)
        await response.write(piece("first"))
        async with asyncio.timeout(HANG_S):
            await seen.wait()  # the second piece is not sent until the client has the first
        await response.write(piece("second") + DONE)
        return response

    async with both(tmp_path, handler) as (up, place):
        body = {"messages": [Q], "stream": True, "stream_options": {"include_usage": True}}
        async with place.post(body) as came:
            async with asyncio.timeout(HANG_S):
                first = await came.content.readany()
            seen.set()
            assert first == piece("first")
            assert came.headers["content-type"] == "text/event-stream"
            assert await came.read() == piece("second") + DONE
        assert up.bodies[-1]["stream_options"] == {"include_usage": True}


async def test_our_key_is_hidden_where_it_is_echoed_however_it_is_divided(tmp_path: Path) -> None:
    seen = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not body.get("stream"):
            headers = {"x-said": f"bad key {KEY}"}
            return web.Response(status=401, text=f"no such key: {KEY}", headers=headers)
        response = await stream(request)
        if body["messages"][-1] == Q:
            told = piece(KEY)
            for at in range(0, len(told), 5):
                await response.write(told[at : at + 5])
                await asyncio.sleep(0)
        else:  # a line that is so long that it is passed on in parts
            await response.write(b"x" * (2**16 + 1_000) + KEY[:12].encode())
            async with asyncio.timeout(HANG_S):
                await seen.wait()
            await response.write(KEY[12:].encode() + b"y")
        return response

    async with both(tmp_path, handler) as (_, place):
        for message, streamed in ((user("long"), True), (Q, False), (Q, True)):
            async with place.post({"messages": [message], "stream": streamed}) as came:
                raw = await came.content.readany()
                seen.set()
                raw += await came.read()
                assert KEY.encode() not in raw + str(came.headers).encode()
                assert b"***" in raw


async def test_who_may_ask_what_and_by_which_name(tmp_path: Path) -> None:
    async with both(tmp_path) as (up, place):
        for headers in ({"Host": "evil.example"}, {"Origin": "https://evil.example"}):
            assert (await place.ask(Q, headers=headers))["status"] == 403
        bare = place.url.removesuffix("/v1")  # a client may leave out the /v1
        for url in (place.url, bare):
            async with place.session.get(f"{url}/models") as came:
                assert [row["id"] for row in (await came.json())["data"]] == ["math_agent", "m-1"]
        for url, path in (
            (place.url, "embeddings"),
            (bare, "completion"),
        ):
            async with place.session.post(f"{url}/{path}", json={}) as came:
                assert came.status == 404
                said = (await came.json())["error"]["message"]
                spoken = "only POST chat/completions" if url != bare else "base_url ends in /v1"
                assert spoken in said
        async with place.session.post(f"{place.url}/chat/completions", data=b"{") as came:
            assert came.status == 400
            assert (await came.json())["error"]["type"] == "invalid_request_error"
        assert not up.bodies
        async with place.session.post(f"{bare}/chat/completions", json={"messages": [Q]}) as came:
            assert came.status == 200
        assert (len(up.bodies), place.counted) == (1, (2, 1, 0))


async def test_what_upstream_does_wrong_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with upstream() as up:
        gone = up.url
    async with served(agent_file(tmp_path, gone)) as place:
        told = await place.ask(Q)
        assert (told["status"], told["error"]["code"]) == (502, "upstream_unreachable")
        assert gone in told["error"]["message"]
        assert place.counted == (1, 1, 0)

    async def handler(request: web.Request) -> web.StreamResponse:
        if not (await request.json()).get("stream"):
            await asyncio.sleep(HANG_S)
        response = await stream(request)
        await response.write(piece("half"))
        assert request.transport is not None
        request.transport.abort()
        return response

    async with both(tmp_path, handler, settings={"extra_args": {"timeout": 0.2}}) as (_, place):
        told = await place.ask(Q)
        assert (told["status"], told["error"]["code"]) == (504, "upstream_timeout")
        got = await place.streamed(Q)
        assert got.startswith(piece("half"))
        assert b"upstream_error" in got
        assert got.endswith(b"(broken)"), "a part is not taken for the whole"
        assert (place.counted, caplog.records) == ((2, 2, 0), [])


@pytest.mark.parametrize("amid_a_stream", [False, True])
async def test_a_client_that_leaves_ends_the_request_upstream(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, amid_a_stream: bool
) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        began.set()
        response = await stream(request) if amid_a_stream else None
        try:
            while True:
                if response is not None:
                    await response.write(piece("x" * 5000))
                await asyncio.sleep(0 if amid_a_stream else HANG_S)
        finally:
            ended.set()

    async with both(tmp_path, handler) as (_, place), asyncio.timeout(HANG_S):
        if amid_a_stream:
            async with place.post({"messages": [Q], "stream": True}) as came:
                await came.content.readany()
                came.close()
        else:
            task = asyncio.create_task(place.ask(Q))
            await began.wait()
            task.cancel()
        await ended.wait()
    assert (place.counted, caplog.records) == ((1, 0, 1), [])


async def test_a_setting_of_the_agent_that_the_model_does_not_take_is_adapted_once(
    tmp_path: Path,
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        for name in ("max_tokens", "temperature"):
            if name in body:
                code = "unsupported_parameter"
                told = {"message": f"Unsupported parameter: '{name}'", "param": name, "code": code}
                return web.json_response({"error": told}, status=400)
        return web.json_response(completion("2"))

    settings = {"max_tokens": 9, "temperature": 0.5}
    async with both(tmp_path, handler, settings=settings) as (up, place):
        for requests in (3, 4):
            assert (await place.ask(Q))["status"] == 200
            assert (len(up.bodies), up.settings["max_completion_tokens"]) == (requests, 9)
        told = await place.ask(Q, temperature=1)  # it is the client's own, so the client is told
        assert (told["status"], told["error"]["param"]) == (400, "temperature")
        assert len(up.bodies) == 5


async def test_the_simulated_agent_answers_in_process_streamed_and_not(tmp_path: Path) -> None:
    async with served(agent_file(tmp_path, "", provider=SIM)) as place:
        question = user("What is 2 plus 3?")
        told = await place.ask(question)
        assert told["model"] == "sim"
        raw = (await place.streamed(question)).decode()
    events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]
    text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events)
    assert text == told["choices"][0]["message"]["content"]
    assert raw.endswith("data: [DONE]\n\n")


async def speaking(request: web.Request) -> web.StreamResponse:
    """Answer in pieces, by a call of a tool, or in one text, as the request asks."""
    body = await request.json()
    if body.get("stream"):
        response = await stream(request)
        for text in ("It ", "is ", "2."):
            await response.write(piece(text))
        await response.write(STOP + DONE)
        return response
    if body.get("tools") and body["messages"][-1]["role"] == "user":
        message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
        return web.json_response(completion(message, finish="tool_calls"))
    return web.json_response(completion("It is 2."))


async def test_the_openai_package_gets_answers_streams_and_calls_of_its_tools(
    tmp_path: Path,
) -> None:
    prompt: list[Any] = [system(BASE)]
    question: list[Any] = [Q]
    async with (
        both(tmp_path, speaking) as (up, place),
        openai.AsyncOpenAI(base_url=place.url, api_key="unused", max_retries=0) as client,
    ):
        assert [m.id async for m in client.models.list()] == ["math_agent", "m-1"]
        ask = client.chat.completions.create
        whole = await ask(model="math_agent", messages=[*prompt, *question])
        assert whole.choices[0].message.content == "It is 2."
        assert up.messages[0] == system(PROMPT)
        pieces = await ask(model="math_agent", messages=question, stream=True)
        said = [c.choices[0].delta.content async for c in pieces]
        assert said == ["It ", "is ", "2.", None]
        with pytest.raises(openai.NotFoundError, match="only POST chat/completions"):
            await client.embeddings.create(model="m", input="x")
        first = await ask(model="a", messages=question, tools=TOOLS)
        message = first.choices[0].message
        assert message.tool_calls is not None
        result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "2"}
        again: list[Any] = [*question, message, result]
        second = await ask(model="a", messages=again, tools=TOOLS)
        assert second.choices[0].message.content == "It is 2."
        assert (up.bodies[-1]["tools"], up.messages[-1]) == (TOOLS, result)


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
async def test_curl_streamed_and_not(tmp_path: Path) -> None:
    async with both(tmp_path, speaking) as (up, place):
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
                assert text.startswith((piece("It ") + piece("is ")).decode())
                assert text.endswith("data: [DONE]\n\n200")
            else:
                assert json.loads(text[:-3])["choices"][0]["message"] == assistant("It is 2.")
            assert up.messages == [system(PROMPT), Q]
