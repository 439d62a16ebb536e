"""What a client gets from `serve`, over real sockets."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from grpo_practice.serve.passing import HELD, TAIL
from tests.contract.endpoint.actions import completion
from tests.processes import HANG_S
from tests.serve.place import BASE, KEY, PROMPT, agent_file, served, system, upstream, user

Q = user("1 + 1?")


def piece(text: str) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return f"data: {json.dumps({'choices': [choice]})}\n\n".encode()


async def stream(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    return response


async def test_the_model_is_told_the_prompt_that_was_measured_byte_for_byte(tmp_path: Path) -> None:
    async with upstream() as up, served(agent_file(tmp_path, up.url)) as place:
        for messages in ([Q], [system(BASE), Q], [system(PROMPT), Q]):
            assert (await place.ask(*messages))["status"] == 200
            assert up.messages == [{"role": "system", "content": PROMPT}, Q]
        await place.ask(system("Be kind."), Q)
        assert up.messages == [{"role": "system", "content": f"{PROMPT}\n\nBe kind."}, Q]
    assert (place.counts.requests, place.counts.errors) == (4, 0)


async def test_the_client_s_settings_win_and_the_agent_s_fill_what_is_absent(
    tmp_path: Path,
) -> None:
    settings = {"temperature": 0.3, "max_tokens": 99, "tool_choice": "auto", "metadata": {"a": "b"}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    async with upstream() as up, served(agent_file(tmp_path, up.url, settings=settings)) as place:
        await place.ask(Q)
        filled = {"temperature": 0.3, "max_tokens": 99, "metadata": {"a": "b"}}
        asked = {k: v for k, v in up.bodies[-1].items() if k != "messages"}
        assert asked == {"model": "m-1", **filled}
        theirs = {
            "temperature": 1,
            "max_completion_tokens": 5,
            "tools": tools,
            "response_format": {"type": "json_object"},
            "n": 2,
            "seed": 7,
            "top_p": None,
            "vendor_key": {"x": [1.0, None]},
        }
        await place.ask(Q, **theirs)
        asked = {k: v for k, v in up.bodies[-1].items() if k != "messages"}
        rest = {"tool_choice": "auto", "metadata": {"a": "b"}}
        assert asked == {**theirs, **rest, "model": "m-1"}


async def test_our_key_is_used_and_the_client_s_goes_nowhere(tmp_path: Path) -> None:
    async with upstream() as up, served(agent_file(tmp_path, up.url)) as place:
        await place.ask(Q, headers={"Authorization": "Bearer of-the-client", "X-Trace": "1"})
        assert up.headers[-1]["authorization"] == f"Bearer {KEY}"
        assert "of-the-client" not in str(up.headers[-1])
        assert "x-trace" not in up.headers[-1]


@pytest.mark.parametrize("status", [200, 400, 401, 429, 500])
async def test_status_body_and_headers_come_back_as_they_are(tmp_path: Path, status: int) -> None:
    body = b'{ "error" : {"message": "\\u00fc", "code": null},\n "choices":[] }\n\n'

    async def handler(_: web.Request) -> web.StreamResponse:
        told = {"content-type": "application/json", "retry-after": "7", "x-request-id": "r-1"}
        return web.Response(status=status, body=body, headers={**told, "set-cookie": "a=b"})

    asked = {"messages": [Q]}
    async with (
        upstream(handler) as up,
        served(agent_file(tmp_path, up.url)) as place,
        place.session.post(f"{place.url}/chat/completions", json=asked) as came,
    ):
        assert (came.status, await came.read()) == (status, body)
        assert (came.headers["retry-after"], came.headers["x-request-id"]) == ("7", "r-1")
        assert "set-cookie" not in came.headers
    assert place.counts.errors == (status >= 400)


async def test_a_stream_is_passed_on_piece_by_piece_not_at_its_end(tmp_path: Path) -> None:
    seen = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = await stream(request)
        await response.write(piece("first"))
        async with asyncio.timeout(HANG_S):
            await seen.wait()  # the second piece is not sent until the client has the first
        await response.write(piece("second") + b"data: [DONE]\n\n")
        return response

    async with upstream(handler) as up, served(agent_file(tmp_path, up.url)) as place:
        body = {"messages": [Q], "stream": True, "stream_options": {"include_usage": True}}
        async with place.session.post(f"{place.url}/chat/completions", json=body) as came:
            async with asyncio.timeout(HANG_S):
                first = await came.content.readany()
            seen.set()
            assert first == piece("first")
            assert came.headers["content-type"] == "text/event-stream"
            assert await came.read() == piece("second") + b"data: [DONE]\n\n"
        assert up.bodies[-1]["stream_options"] == {"include_usage": True}


async def test_our_key_is_hidden_where_it_is_echoed_however_it_is_divided(tmp_path: Path) -> None:
    long = b"x" * HELD + KEY.encode() + b"y" * TAIL

    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if not body.get("stream"):
            headers = {"x-said": f"bad key {KEY}"}
            text = f"no such key: {KEY}"
            return web.Response(status=401, text=text, headers=headers)
        response = await stream(request)
        told = piece(KEY) if body["messages"][-1] == Q else long
        for at in range(0, len(told), 4096 if told is long else 5):
            await response.write(told[at : at + (4096 if told is long else 5)])
            await asyncio.sleep(0)
        return response

    async with upstream(handler) as up, served(agent_file(tmp_path, up.url)) as place:
        for messages in ([Q], [user("long")]):
            for streamed in (False, True):
                async with place.session.post(
                    f"{place.url}/chat/completions",
                    json={"messages": messages, "stream": streamed},
                ) as came:
                    raw = await came.read()
                    assert KEY.encode() not in raw + str(came.headers).encode()
                    assert b"***" in raw


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Origin": "https://evil.example"}, 403),
    ],
)
async def test_only_this_machine_is_served_and_no_page_of_another_origin(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    async with upstream() as up, served(agent_file(tmp_path, up.url)) as place:
        assert (await place.ask(Q, headers=headers))["status"] == status
        assert len(up.bodies) == (status == 200)


async def test_models_are_listed_and_what_is_not_spoken_is_said(tmp_path: Path) -> None:
    async with upstream() as up, served(agent_file(tmp_path, up.url)) as place:
        async with place.session.get(f"{place.url}/models") as came:
            assert [row["id"] for row in (await came.json())["data"]] == ["math_agent", "m-1"]
        for path in ("embeddings", "responses", "completions"):
            async with place.session.post(f"{place.url}/{path}", json={}) as came:
                assert came.status == 404
                assert "only POST chat/completions" in (await came.json())["error"]["message"]
        async with place.session.post(f"{place.url}/chat/completions", data=b"{") as came:
            assert came.status == 400
            assert (await came.json())["error"]["type"] == "invalid_request_error"
        assert not up.bodies
    assert place.counts.errors == 1


async def test_an_upstream_that_is_down_is_a_502_that_says_so(tmp_path: Path) -> None:
    async with upstream() as up:
        gone = up.url
    async with served(agent_file(tmp_path, gone)) as place:
        told = await place.ask(Q)
        assert (told["status"], told["error"]["code"]) == (502, "upstream_unreachable")
        assert gone in told["error"]["message"]
    assert place.counts.errors == 1


async def test_an_answer_that_takes_too_long_is_a_504(tmp_path: Path) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        raise AssertionError

    settings = {"extra_args": {"timeout": 0.2}}
    async with (
        upstream(handler) as up,
        served(agent_file(tmp_path, up.url, settings=settings)) as place,
    ):
        told = await place.ask(Q)
        assert (told["status"], told["error"]["code"]) == (504, "upstream_timeout")


async def test_a_stream_that_breaks_off_is_not_taken_for_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = await stream(request)
        await response.write(piece("half"))
        assert request.transport is not None
        request.transport.abort()
        return response

    async with upstream(handler) as up, served(agent_file(tmp_path, up.url)) as place:
        body = {"messages": [Q], "stream": True}
        async with place.session.post(f"{place.url}/chat/completions", json=body) as came:
            got = bytearray()
            with pytest.raises(aiohttp.ClientPayloadError):
                async for chunk in came.content.iter_any():
                    got += chunk
            assert got.startswith(piece("half"))
            assert b"upstream_error" in got
    assert (place.counts.errors, caplog.records) == (1, [])


async def test_a_client_that_leaves_ends_the_request_upstream(tmp_path: Path) -> None:
    began, ended = asyncio.Event(), asyncio.Event()

    async def handler(_: web.Request) -> web.StreamResponse:
        began.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.set()
            raise
        raise AssertionError

    async with upstream(handler) as up, served(agent_file(tmp_path, up.url)) as place:
        task = asyncio.create_task(place.ask(Q))
        async with asyncio.timeout(HANG_S):
            await began.wait()
            task.cancel()
            await ended.wait()
    assert (place.counts.given_up, place.counts.errors) == (1, 0)


async def test_a_client_that_leaves_amid_a_stream_ends_it_and_nothing_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ended = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = await stream(request)
        try:
            while True:
                await response.write(piece("x" * 5000))
                await asyncio.sleep(0)
        finally:
            ended.set()

    async with upstream(handler) as up, served(agent_file(tmp_path, up.url)) as place:
        body = {"messages": [Q], "stream": True}
        async with place.session.post(f"{place.url}/chat/completions", json=body) as came:
            await came.content.readany()
            came.close()
        async with asyncio.timeout(HANG_S):
            await ended.wait()
    assert (place.counts.given_up, place.counts.errors, caplog.records) == (1, 0, [])


async def test_what_is_under_way_does_not_keep_it_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_practice.chat_server.server.SHUTDOWN_S", 3600.0)
    began = asyncio.Event()

    async def handler(_: web.Request) -> web.StreamResponse:
        began.set()
        await asyncio.sleep(60)
        raise AssertionError

    body = {"messages": [Q]}
    guard = asyncio.timeout(HANG_S)  # it would wait for the hour of SHUTDOWN_S
    async with guard, upstream(handler) as up, aiohttp.ClientSession() as client:
        async with served(agent_file(tmp_path, up.url)) as place:
            url = f"{place.url}/chat/completions"
            task = asyncio.ensure_future(client.post(url, json=body).__aenter__())
            await began.wait()
        with pytest.raises(aiohttp.ClientError):
            await task


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
    async with (
        upstream(handler) as up,
        served(agent_file(tmp_path, up.url, settings=settings)) as place,
    ):
        assert (await place.ask(Q))["status"] == 200
        assert len(up.bodies) == 3
        assert up.bodies[-1]["max_completion_tokens"] == 9
        assert (await place.ask(Q))["status"] == 200
        assert len(up.bodies) == 4
        told = await place.ask(Q, temperature=1)  # it is the client's own, so the client is told
        assert (told["status"], told["error"]["param"]) == (400, "temperature")
        assert len(up.bodies) == 5


async def test_the_agent_s_own_name_for_the_most_tokens_is_kept(tmp_path: Path) -> None:
    settings = {"extra_body": {"max_completion_tokens": 9}}
    async with upstream() as up, served(agent_file(tmp_path, up.url, settings=settings)) as place:
        await place.ask(Q)
        assert up.bodies[-1]["max_completion_tokens"] == 9
        assert "max_tokens" not in up.bodies[-1]


async def test_a_client_that_leaves_out_v1_is_answered_all_the_same(tmp_path: Path) -> None:
    async with upstream() as up, served(agent_file(tmp_path, up.url)) as place:
        bare = place.url.removesuffix("/v1")
        async with place.session.post(f"{bare}/chat/completions", json={"messages": [Q]}) as came:
            assert came.status == 200
        async with place.session.get(f"{bare}/models") as came:
            assert (await came.json())["data"]
        async with place.session.post(f"{bare}/completions", json={}) as came:
            assert "/v1/chat/completions" in (await came.json())["error"]["message"]
    assert len(up.bodies) == 1


async def test_a_request_that_is_too_large_is_a_413(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_practice.chat_server.server.MAX_BODY", 1000)
    async with upstream() as up, served(agent_file(tmp_path, up.url)) as place:
        assert (await place.ask(user("x" * 2000)))["status"] == 413
        assert not up.bodies


async def test_the_simulated_agent_answers_in_process_streamed_and_not(tmp_path: Path) -> None:
    provider: dict[str, Any] = {"model": "sim", "base_url": None, "api_key": None}
    async with served(agent_file(tmp_path, "", provider=provider)) as place:
        told = await place.ask(user("What is 2 plus 3?"))
        assert told["model"] == "sim"
        body = {"messages": [user("What is 2 plus 3?")], "stream": True}
        async with place.session.post(f"{place.url}/chat/completions", json=body) as came:
            raw = await came.text()
        events = [json.loads(line[6:]) for line in raw.splitlines() if line.startswith("data: {")]
        text = "".join(e["choices"][0]["delta"].get("content") or "" for e in events)
        assert text == told["choices"][0]["message"]["content"]
        assert raw.endswith("data: [DONE]\n\n")
