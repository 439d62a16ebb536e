"""`--record`: what passed is a run, conversation by conversation, and recording breaks nothing."""

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from grpo_practice.calls import Message
from grpo_practice.errors import StoreError
from grpo_practice.redact import redactor
from grpo_practice.store import Store
from grpo_practice.store.ledger import SqlLedger
from grpo_practice.store.queries import runs
from grpo_practice.store.recorded_runs import Conversation, Traffic
from grpo_practice.store.rollouts import unpack
from tests.contract.endpoint.actions import completion
from tests.processes import HANG_S
from tests.serve.place import (
    PROMPT,
    Served,
    agent_file,
    ask,
    assistant,
    files,
    rows,
    served,
    system,
    talks,
    traffic,
    upstream,
    user,
)
from tests.serve.test_service import piece, stream

Q = user("1 + 1?")


async def test_each_conversation_is_kept_as_it_was_sent_and_answered(
    tmp_path: Path, store: Store
) -> None:
    async with upstream() as up, served(agent_file(tmp_path, up.url), store) as place:
        first = await ask(place, Q)
        other = await ask(place, system("Be kind."), user("Hi"))
        talk = [Q, first, user("Sure?")]
        second = await ask(place, *talk)
    assert (first, other, second) == tuple(assistant(f"reply {n}") for n in (1, 2, 3))
    assert talks(store) == [
        Conversation(0, [system(PROMPT), *talk, second], 2),
        Conversation(1, [system(f"{PROMPT}\n\nBe kind."), user("Hi"), other], 1),
    ]
    assert traffic(store) == Traffic(requests=3, conversations=2, failed=0)
    assert [run.status for run in (store.read(runs.get, "rec"),)] == ["done"]
    kept = rows(store, "SELECT slot, turn, prev_call_id, stage, role, name, tokens_in FROM calls")
    assert kept == [
        (0, 0, None, "play", "student", "m-1", 11),
        (1, 0, None, "play", "student", "m-1", 11),
        (0, 1, 1, "play", "student", "m-1", 11),
    ]


async def test_a_message_is_stored_once(tmp_path: Path, store: Store) -> None:
    async with upstream() as up, served(agent_file(tmp_path, up.url), store) as place:
        talk: list[Message] = [Q]
        for turn in range(3):
            talk += [await ask(place, *talk), user(f"And {turn}?")]
    texts = [unpack(*row) for row in rows(store, "SELECT request, codec FROM call_bodies")]
    assert texts == [[system(PROMPT), Q], [user("And 0?")], [user("And 1?")]]


async def test_a_fork_is_one_conversation_and_its_last_line_is_shown(
    tmp_path: Path, store: Store
) -> None:
    async with upstream() as up, served(agent_file(tmp_path, up.url), store) as place:
        first = await ask(place, Q)
        await ask(place, Q, first, user("Sure?"))
        why = await ask(place, Q, first, user("Why?"))
        again = await ask(place, Q, first, user("Why?"))
    assert why != again
    assert talks(store) == [
        Conversation(0, [system(PROMPT), Q, first, user("Why?"), again], requests=4)
    ]


async def test_64_at_once_are_all_there_whole(tmp_path: Path, store: Store) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        await asyncio.sleep(0.001 * (len(str(body)) % 7))
        return web.json_response(completion(f"to {body['messages'][-1]['content']}"))

    async def talk(place: Served, n: int) -> list[Message]:
        said: list[Message] = []
        for turn in range(3):
            said.append(user(f"{n}.{turn}?"))
            said.append((await place.ask(*said))["choices"][0]["message"])
        return said

    async with upstream(handler) as up, served(agent_file(tmp_path, up.url), store) as place:
        said = await asyncio.gather(*(talk(place, n) for n in range(64)))
    assert traffic(store) == Traffic(192, 64, 0)
    kept = [t.messages[1:] for t in talks(store)]
    assert sorted(kept, key=str) == sorted(said, key=str)
    assert {t.requests for t in talks(store)} == {3}


async def test_a_stream_is_gathered_into_the_message_and_a_cut_one_is_a_failure(
    tmp_path: Path, store: Store
) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}
    stop = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}

    async def handler(request: web.Request) -> web.StreamResponse:
        whole = (await request.json())["messages"][-1] == Q
        response = await stream(request)
        await response.write(piece("It is ") + piece("2."))
        if whole:
            for told in (stop, usage):
                await response.write(f"data: {json.dumps(told)}\n\n".encode())
            await response.write(b"data: [DONE]\n\n")
        elif request.transport is not None:
            request.transport.abort()
        return response

    async with upstream(handler) as up, served(agent_file(tmp_path, up.url), store) as place:
        for message in (Q, user("cut")):
            body = {"messages": [message], "stream": True}
            async with place.session.post(f"{place.url}/chat/completions", json=body) as came:
                with suppress(aiohttp.ClientPayloadError):
                    await came.read()
    (talk,) = talks(store)
    assert (talk.messages[:2], talk.messages[-1]["content"]) == ([system(PROMPT), Q], "It is 2.")
    assert rows(store, "SELECT tokens_in, tokens_out, finish FROM calls") == [(5, 2, "stop")]
    assert rows(store, "SELECT kind, maybe_paid FROM failures") == [("cut", 1)]


async def test_several_choices_are_several_replies(tmp_path: Path, store: Store) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        if not (await request.json()).get("stream"):
            told = completion("a")
            told["choices"].append({**told["choices"][0], "index": 1, "message": assistant("b")})
            return web.json_response(told)
        response = await stream(request)
        for n, text in ((0, "c"), (1, "d"), (0, "c"), (1, "d")):
            choice = {"index": n, "delta": {"content": text}, "finish_reason": None}
            await response.write(f"data: {json.dumps({'choices': [choice]})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        return response

    async with upstream(handler) as up, served(agent_file(tmp_path, up.url), store) as place:
        await ask(place, Q, n=2)
        assert place.recorder is not None
        body = {"messages": [Q], "n": 2, "stream": True}
        async with place.session.post(f"{place.url}/chat/completions", json=body) as came:
            await came.read()
        await place.recorder.drain()
        await ask(place, Q, assistant("b"), user("Sure?"), n=2)
    kept = rows(store, "SELECT slot, nth, turn, prev_call_id, tokens_in FROM calls")
    assert kept[:4] == [
        (0, 0, 0, None, 11),
        (0, 1, 0, None, None),
        (1, 0, 0, None, None),
        (1, 1, 0, None, None),
    ]
    assert kept[4][:4] == (0, 0, 1, 2)
    replies = [unpack(*r) for r in rows(store, "SELECT reply, codec FROM call_bodies")]
    assert [reply["content"] for reply in replies[:4]] == ["a", "b", "cc", "dd"]


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (500, {"error": {"message": "oh"}}, "provider"),
        (200, {"error": {"message": "oh"}}, "provider"),
        (400, {"error": {"code": "context_length_exceeded", "message": "x"}}, "context_overflow"),
        (200, {"choices": []}, "provider"),
        (401, {"error": {"message": "key"}}, "provider"),
    ],
)
async def test_what_got_no_reply_is_a_failure(
    tmp_path: Path, store: Store, status: int, body: Any, kind: str
) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response(body, status=status)

    async with upstream(handler) as up, served(agent_file(tmp_path, up.url), store) as place:
        assert (await place.ask(Q))["status"] == status
    assert traffic(store) == Traffic(0, 0, failed=1)
    assert rows(store, "SELECT kind, slot, stage FROM failures") == [(kind, -1, "play")]


async def test_an_upstream_that_is_down_is_a_failure_too(tmp_path: Path, store: Store) -> None:
    async with upstream() as up:
        gone = up.url
    async with served(agent_file(tmp_path, gone), store) as place:
        assert (await place.ask(Q))["status"] == 502
    assert rows(store, "SELECT kind, maybe_paid FROM failures") == [("connect", 0)]


async def test_secrets_are_hidden_in_what_is_kept_and_the_file_stays_whole(
    tmp_path: Path, store: Store
) -> None:
    secret = "hunter2-0123456789"

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response(completion(f"it is {secret}"))

    redactor.know([secret])
    tools = [{"type": "function", "function": {"name": "f", "description": secret}}]
    async with upstream(handler) as up, served(agent_file(tmp_path, up.url), store) as place:
        reply = await ask(place, user(f"my key is {secret}"), tools=tools, stop=[secret])
        assert reply["content"] == f"it is {secret}"  # it is the client's own: it is passed on
        assert up.messages[-1] == user(f"my key is {secret}")
        await ask(place, user(f"my key is {secret}"), reply, Q, tools=tools, stop=[secret])
    store.flush()
    assert not [f for f in files(tmp_path) if secret.encode() in f.read_bytes()]
    assert [t.requests for t in talks(store)] == [2]
    assert talks(store)[0].messages[1] == user("my key is ***")


async def test_a_ledger_that_fails_is_said_once_and_serving_goes_on(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any) -> int:
        raise StoreError("the disk is full")

    async with upstream() as up, served(agent_file(tmp_path, up.url), store) as place:
        first = await ask(place, Q)
        with monkeypatch.context() as patched:
            patched.setattr(SqlLedger, "put", full)
            second = await ask(place, Q, first, user("Sure?"))
            await ask(place, user("Hi"))
        talk = [Q, first, user("Sure?"), second, user("Really?")]
        third = await ask(place, *talk)
        assert place.recorder is not None
        assert (place.recorder.kept, place.recorder.missed) == (2, 2)
        assert [n for n in place.notices if "record" in n] == [
            "not everything is recorded: StoreError: the disk is full"
        ]
    assert talks(store)[0].messages == [system(PROMPT), *talk, third]  # none of it is missing
    assert place.counts.errors == 0


async def test_what_is_still_being_written_is_there_once_it_has_ended(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, answered = SqlLedger.put, asyncio.Event()

    async def slow(self: SqlLedger, entry: Any) -> int:
        await answered.wait()
        return await put(self, entry)

    monkeypatch.setattr(SqlLedger, "put", slow)
    async with upstream() as up, served(agent_file(tmp_path, up.url), store) as place:
        async with asyncio.timeout(HANG_S):  # nobody waits for the ledger
            first = (await place.ask(Q))["choices"][0]["message"]
            await place.ask(Q, first, user("Sure?"))
        answered.set()
    assert traffic(store) == Traffic(2, 1, 0)


async def test_of_an_answer_without_end_no_more_than_the_limit_is_passed_on(
    tmp_path: Path, store: Store
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = await stream(request)
        for _ in range(2_000):  # a limit that does not hold ends the test, too
            await response.write(b": keep-alive\n\n" * 5_000)
        return response

    async with upstream(handler) as up:
        agent = agent_file(tmp_path, up.url, provider={"max_reply_mib": 1})
        async with served(agent, store) as place:
            body = {"messages": [Q], "stream": True}
            passed, text = 0, b""
            async with place.session.post(f"{place.url}/chat/completions", json=body) as came:
                with pytest.raises(aiohttp.ClientPayloadError):
                    async for text in came.content.iter_any():
                        passed += len(text)
    assert 2**19 < passed <= 2**20 + 1_000
    assert b"larger than 1 MiB; to read it, raise model_provider.max_reply_mib" in text
    assert rows(store, "SELECT kind, maybe_paid FROM failures") == [("oversize", 1)]
