"""What no client can see from outside: a database that fails or is slow, and an hour to end in."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from grpo_practice.core.errors import StoreError
from grpo_practice.core.hashing import Chain
from grpo_practice.serve.conversations import LIKE, Conversations, RecordedCall
from grpo_practice.store.ledger import SqlLedger
from tests.contract.serving import (
    Q,
    Recorded,
    agent_file,
    assistant,
    both,
    served,
    upstream,
    user,
)
from tests.processes import HANG_S


async def test_what_is_under_way_does_not_keep_it_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_practice.rollout.chat_server.server.SHUTDOWN_S", 3600.0)
    began = asyncio.Event()

    async def handler(_: web.Request) -> web.StreamResponse:
        began.set()
        await asyncio.sleep(HANG_S)
        raise AssertionError

    guard = asyncio.timeout(HANG_S)  # it would wait for the hour of SHUTDOWN_S
    async with guard, upstream(handler) as up, aiohttp.ClientSession() as client:
        async with served(agent_file(tmp_path, up.url)) as place:
            url = f"{place.url}/chat/completions"
            task = asyncio.ensure_future(client.post(url, json={"messages": [Q]}).__aenter__())
            await began.wait()
        with pytest.raises(aiohttp.ClientError):
            await task


async def test_a_ledger_that_fails_is_said_once_and_serving_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: Any) -> int:
        raise StoreError("the disk is full")

    kept = Recorded(tmp_path)
    async with both(tmp_path, run="rec") as (_, place):
        first = await place.reply(Q)
        await kept.holds(1)
        with monkeypatch.context() as patched:
            patched.setattr(SqlLedger, "put", full)
            second = await place.reply(Q, first, user("Sure?"))
            await place.reply(user("Hi"))
            async with asyncio.timeout(HANG_S):
                while place.report.recorder.missed < 2:  # noqa: ASYNC110 - of a task
                    await asyncio.sleep(0)
        talk = [Q, first, user("Sure?"), second, user("Really?")]
        third = await place.reply(*talk)
        await kept.holds(2)
        assert [n for n in place.notices if "record" in n] == [
            "not everything is recorded: StoreError: the disk is full"
        ]
        assert place.counted == (4, 0, 0)
    assert kept.talks()[0] == [*talk, third]  # none of it is missing


async def test_what_is_still_being_written_is_there_once_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, answered = SqlLedger.put, asyncio.Event()

    async def slow(self: SqlLedger, entry: Any) -> int:
        await answered.wait()
        await asyncio.sleep(0.2)  # by then, all else has ended
        return await put(self, entry)

    monkeypatch.setattr(SqlLedger, "put", slow)
    async with both(tmp_path, run="rec") as (_, place):
        async with asyncio.timeout(HANG_S):  # nobody waits for the ledger
            first = await place.reply(Q)
            await place.reply(Q, first, user("Sure?"))
        answered.set()
    assert Recorded(tmp_path).passed() == (2, 1, 0)


def test_the_same_question_for_ever_is_not_kept_for_ever() -> None:
    known = Conversations((), lambda _: assistant("2"))

    def asked(*messages: dict[str, Any]) -> tuple[int, int, Any]:
        states = Chain({}).extend(messages)
        place = known.position(messages, states)
        row = RecordedCall(place.conversation, place.turn, place.nth, place.conversation)
        known.add(states[-1][:16], row)
        return place.conversation, place.turn, place.prev and place.prev.row

    for _ in range(LIKE + 10):
        asked(Q)
    assert asked(Q, assistant("2"), user("Sure?")) == (LIKE + 9, 1, LIKE + 9)
    assert sum(map(len, known._by_hash.values())) == LIKE + 1
