"""`serve --record`: what passed is a run of conversations, and recording breaks nothing."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from grpo_practice import Workspace
from tests.contract.endpoint.actions import completion
from tests.contract.serving import (
    DONE,
    PROMPT,
    STOP,
    Message,
    Q,
    Recorded,
    Serving,
    agent_file,
    assistant,
    both,
    event,
    piece,
    served,
    stream,
    system,
    user,
)


async def test_each_conversation_is_kept_as_it_was_sent_and_answered(tmp_path: Path) -> None:
    kept = Recorded(tmp_path)
    async with both(tmp_path, run="rec") as (_, place):
        first = await place.reply(Q)
        other = await place.reply(system("Be kind."), user("Hi"))
        talk = [Q, first, user("Sure?")]
        second = await place.reply(*talk)
        assert (first, other, second) == tuple(assistant(f"reply {n}") for n in (1, 2, 3))
    # Stopped and started again it goes on with the same run.
    async with both(tmp_path, run="rec") as (_, place):
        talk += [second, user("Really?")]
        third = await place.reply(*talk)
        last = await place.reply(Q)
    assert kept.talks() == [[*talk, third], [system("Be kind."), user("Hi"), other], [Q, last]]
    assert kept.passed() == (5, 3, 0)
    columns = "slot, turn, prev_call_id, stage, role, name, tokens_in"
    assert kept.rows(f"SELECT {columns} FROM calls") == [
        (0, 0, None, "play", "student", "m-1", 11),
        (1, 0, None, "play", "student", "m-1", 11),
        (0, 1, 1, "play", "student", "m-1", 11),
        (0, 2, 3, "play", "student", "m-1", 11),
        (2, 0, None, "play", "student", "m-1", 11),
    ]
    # The agent's prompt is in what is stored, and each message is stored once.
    assert kept.texts("request") == [
        [system(PROMPT), Q],
        [system(f"{PROMPT}\n\nBe kind."), user("Hi")],
        [user("Sure?")],
        [user("Really?")],
        [system(PROMPT), Q],
    ]


async def test_a_request_continues_the_one_whose_messages_and_reply_it_begins_with(
    tmp_path: Path,
) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    tools = [{"type": "function", "function": {"name": "f"}}]
    result = {"role": "tool", "tool_call_id": "c", "content": "2"}
    s, a, sure, why = system("Be brief."), assistant("2"), user("Sure?"), user("Why?")
    replies = {"tool": {"role": "assistant", "content": None, "tool_calls": [call]}}
    replies["long"] = assistant("2", reasoning_content="1 + 1", annotations=[], refusal=None)
    bare = {k: v for k, v in replies["long"].items() if v is not None}
    in_parts = {"role": "assistant", "content": [{"type": "text", "text": "2"}]}
    kept = Recorded(tmp_path)

    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if (said := body.get("user")) is None:
            return web.json_response(completion(assistant("2")))
        return web.json_response(completion(replies.get(said) or assistant(said)))

    def said(content: str | None, calls: list[Any]) -> Message:
        return {"role": "assistant", "content": content, "tool_calls": calls}

    # Messages, other keys, and where it stands: conversation, turn, how often it was made there
    # before, and the call that it continues.
    # `user` is the reply that it gets, and no setting that counts.
    rows: list[tuple[list[Message], dict[str, Any], tuple[int, int, int, int | None]]] = [
        ([s, Q], {}, (0, 0, 0, None)),
        ([s, Q, a, user("And?")], {"user": "4"}, (0, 1, 0, 1)),
        ([s, Q, a, user("And?"), assistant("4"), sure], {}, (0, 2, 0, 2)),
        ([s, Q, a, why], {}, (0, 1, 0, 1)),  # it forks, and stays one
        ([s, Q, a, why], {}, (0, 1, 1, 1)),  # the very same again
        ([s, Q], {"user": "two"}, (1, 0, 0, None)),  # asked once more
        ([s, Q, assistant("2"), user("Of equal ones?")], {}, (0, 1, 0, 1)),
        ([s, Q, assistant("two"), user("Of equal ones?")], {}, (1, 1, 0, 6)),
        ([s, Q, assistant("3"), sure], {}, (2, 0, 0, None)),  # another reply than the one that came
        ([s, user("1 + 2?"), a, sure], {}, (3, 0, 0, None)),
        ([system("Be long."), Q, a, sure], {}, (4, 0, 0, None)),
        ([Q, a, sure], {}, (5, 0, 0, None)),
        ([s, Q, user("2"), sure], {}, (6, 0, 0, None)),
        ([s, Q, a, sure], {"temperature": 1.0}, (7, 0, 0, None)),  # other settings
        ([user("long")], {"user": "long"}, (8, 0, 0, None)),
        # What a client drops of a reply ends no conversation, but all that was sent is stored.
        ([user("long"), a, sure], {}, (8, 1, 0, None)),
        ([user("long"), in_parts, why], {}, (8, 1, 0, None)),
        ([user("long"), bare, user("And?")], {}, (8, 1, 0, 15)),
        ([user("tool")], {"user": "tool"}, (9, 0, 0, None)),
        ([user("tool"), said(None, [call]), result], {}, (9, 1, 0, 19)),
        ([user("tool"), said("", [call]), result], {}, (9, 1, 0, None)),
        ([user("tool"), said(None, []), result], {}, (10, 0, 0, None)),
        ([s, Q], {}, (11, 0, 0, None)),
        ([s, Q, a, why], {}, (11, 1, 0, 23)),  # for the first time in this one
        ([s, Q, a, why], {"seed": 7}, (12, 0, 0, None)),
        ([s, Q, a, why], {"tools": tools}, (13, 0, 0, None)),
    ]
    async with both(tmp_path, handler, run="rec") as (_, place):
        for n, (messages, more, _position) in enumerate(rows, 1):
            await place.reply(*messages, **more)
            await kept.holds(n)
    found = kept.rows("SELECT slot, turn, nth, prev_call_id FROM calls ORDER BY call_id")
    misses = [(m, want, got) for (m, _, want), got in zip(rows, found, strict=True) if want != got]
    assert not misses, misses
    assert kept.talks()[0] == [s, Q, assistant("2"), user("Of equal ones?"), a]


async def test_64_at_once_are_all_there_whole(tmp_path: Path) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        await asyncio.sleep(0.001 * (len(str(body)) % 7))
        return web.json_response(completion(f"to {body['messages'][-1]['content']}"))

    async def talk(place: Serving, n: int) -> list[Message]:
        said: list[Message] = []
        for turn in range(3):
            said.append(user(f"{n}.{turn}?"))
            said.append(await place.reply(*said))
        return said

    async with both(tmp_path, handler, run="rec") as (_, place):
        said = await asyncio.gather(*(talk(place, n) for n in range(64)))
    assert Recorded(tmp_path).passed() == (192, 64, 0)
    assert sorted(Recorded(tmp_path).talks(), key=str) == sorted(said, key=str)


async def test_a_stream_is_gathered_into_the_message_and_a_cut_one_is_a_failure(
    tmp_path: Path,
) -> None:
    usage = event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})

    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        response = await stream(request)
        if body.get("n"):
            for n, text in ((0, "c"), (1, "d"), (0, "c"), (1, "d")):
                choice = {"index": n, "delta": {"content": text}, "finish_reason": None}
                await response.write(event({"choices": [choice]}))
            await response.write(DONE)
            return response
        await response.write(piece("It is ") + piece("2."))
        if body["messages"][-1] == Q:
            await response.write(STOP + usage + DONE)
        elif body["messages"][-1] == user("cut") and request.transport is not None:
            request.transport.abort()
        return response

    kept = Recorded(tmp_path)
    async with both(tmp_path, handler, run="rec") as (_, place):
        await place.streamed(Q)
        await place.streamed(user("cut"))
        await place.streamed(user("ended before its end"))
        await place.streamed(user("two"), n=2)
    assert [reply["content"] for reply in kept.texts("reply")] == ["It is 2.", "cc", "dd"]
    assert kept.rows("SELECT tokens_in, tokens_out, finish FROM calls")[0] == (5, 2, "stop")
    assert kept.rows("SELECT kind, maybe_paid FROM failures") == [("cut", 1), ("provider", 1)]


async def test_several_choices_are_several_replies(tmp_path: Path) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        told = completion("a")
        told["choices"].append({**told["choices"][0], "index": 1, "message": assistant("b")})
        return web.json_response(told)

    kept = Recorded(tmp_path)
    async with both(tmp_path, handler, run="rec") as (_, place):
        await place.ask(Q, n=2)
        await place.ask(Q, n=2)
        await place.ask(Q, assistant("b"), user("Sure?"), n=2)
    calls = kept.rows("SELECT slot, nth, turn, prev_call_id, tokens_in FROM calls")
    assert calls[:4] == [
        (0, 0, 0, None, 11),
        (0, 1, 0, None, None),
        (1, 0, 0, None, 11),
        (1, 1, 0, None, None),
    ]
    assert calls[4][:4] == (1, 0, 1, 4), "the last one that is like it goes on"
    assert [reply["content"] for reply in kept.texts("reply")[:4]] == ["a", "b"] * 2


async def test_what_got_no_reply_is_a_failure(tmp_path: Path) -> None:
    rows: list[tuple[int, Any, str]] = [
        (500, {"error": {"message": "oh"}}, "provider"),
        (200, {"error": {"message": "oh"}}, "provider"),
        (400, {"error": {"code": "context_length_exceeded", "message": "x"}}, "context_overflow"),
        (200, {"choices": []}, "provider"),
        (401, {"error": {"message": "key"}}, "provider"),
    ]

    async def handler(_: web.Request) -> web.StreamResponse:
        status, body, _kind = rows[len(up.bodies) - 1]
        return web.json_response(body, status=status)

    kept = Recorded(tmp_path)
    async with both(tmp_path, handler, run="rec") as (up, place):
        for status, _, _ in rows:
            assert (await place.ask(Q))["status"] == status
    async with served(agent_file(tmp_path, up.url), "rec") as place:  # where nobody is any more
        assert (await place.ask(Q))["status"] == 502
    assert kept.passed() == (0, 0, 6)
    found = kept.rows("SELECT kind, slot, stage FROM failures")
    assert found == [*((kind, -1, "play") for _, _, kind in rows), ("connect", -1, "play")]
    assert kept.rows("SELECT maybe_paid FROM failures")[-1] == (0,)


async def test_keys_are_hidden_in_what_is_kept_and_the_conversation_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hunter2-0123456789"

    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response(completion(f"it is {secret}"))

    tools = [{"type": "function", "function": {"name": "f", "description": secret}}]
    kept = Recorded(tmp_path)
    monkeypatch.setenv("ANOTHER_API_KEY", secret)
    async with both(tmp_path, handler, "rec") as (up, place):
        reply = await place.reply(user(f"my key is {secret}"), tools=tools, stop=[secret])
        assert reply["content"] == f"it is {secret}"  # it is the client's own: it is passed on
        assert up.messages[-1] == user(f"my key is {secret}")
        await place.reply(user(f"my key is {secret}"), reply, Q, tools=tools, stop=[secret])
    assert secret.encode() not in kept.bytes
    assert kept.passed() == (2, 1, 0)
    assert kept.talks()[0][0] == user("my key is ***")


async def test_of_an_answer_without_end_no_more_than_the_limit_is_passed_on(
    tmp_path: Path,
) -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = await stream(request)
        for _ in range(2_000):  # a limit that does not hold ends the test, too
            await response.write(b": keep-alive\n\n" * 5_000)
        return response

    limit = {"max_reply_mib": 1}
    async with both(tmp_path, handler, "rec", provider=limit) as (_, place):
        got = await place.streamed(Q)
    assert got.endswith(b"(broken)")
    assert 2**19 < len(got) <= 2**20 + 1_000
    assert b"larger than 1 MiB; to read it, raise model_provider.max_reply_mib" in got
    assert Recorded(tmp_path).rows("SELECT kind, maybe_paid FROM failures") == [("oversize", 1)]


async def test_conversations_become_a_dataset(tmp_path: Path) -> None:
    async with both(tmp_path, run="rec") as (_, place):
        first = await place.reply(system("Be kind."), Q)
        talk = [system("Be kind."), Q, first, user("Sure?")]
        second = await place.reply(*talk)
        await place.reply(user(" 1 +  1?"))
        await place.reply({"role": "user", "content": [{"type": "image_url", "image_url": {}}]})
    datasets = Workspace(tmp_path / "rec.db").datasets
    stored = datasets.upload_run("all", "rec")
    assert any("1 without text from the user left out" in note for note in stored.notes)
    rows = datasets.show("all").document()["rows"]
    assert [(row["question"], row["answer"], row["source"]) for row in rows] == [
        ("1 + 1?", None, "rec"),
        (" 1 +  1?", None, "rec"),
    ]
    assert rows[0]["meta"] == {"conversation": [*talk, second], "response": "reply 2"}
    datasets.upload_run("some", "rec", dedup=True)
    assert [row["question"] for row in datasets.show("some").document()["rows"]] == ["1 + 1?"]
