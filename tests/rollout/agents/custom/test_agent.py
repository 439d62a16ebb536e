"""A program inside a rollout: what it asks is ledgered, and its address ends with the rollout."""

import asyncio
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from grpo_practice.core.calls import Reply, Request
from grpo_practice.core.errors import (
    ContentFilterError,
    ContextOverflowError,
    EndpointError,
    EndpointRefusedError,
    PausedError,
    ReplyTooLargeError,
)
from grpo_practice.rollout.agents import custom_agents
from grpo_practice.rollout.agents.program_context import ProgramContext
from tests.fakes import FakeChat
from tests.late import Late
from tests.processes import HANG_S
from tests.rollout.agents.custom.helpers import World, ask, client

if TYPE_CHECKING:
    import openai
else:
    openai = Late("openai")


async def solve(question: str, system: str, context: ProgramContext) -> str:
    return await ask(context, question)


@pytest.mark.long
async def test_any_chat_will_do_not_only_the_ledgers() -> None:
    world = World()
    chat = FakeChat(lambda messages: str(messages[-1]["content"]).upper())

    async def other_model(question: str, system: str, context: ProgramContext) -> str:
        hers = await ask(replace(context, model="hers"), "and", temperature=0.5)
        return f"{await ask(context)} {hers}"

    async with world.proxy.served():
        played = await world.play(other_model, chat=chat)
    assert (played.outcome, played.response, played.error) == ("ok", "Q AND", None)
    assert [m["content"] for m in played.transcript] == ["and", "AND", "Q", "Q"]
    assert not world.ledger.entries


async def test_what_it_gets_is_committed_before() -> None:
    world = World()

    async def looks(question: str, system: str, context: ProgramContext) -> str:
        await ask(context, stream=False)
        return str(len(world.ledger.entries))

    put, begun = world.ledger.put, list[bool]()

    async def slow(entry: Any) -> int:
        begun.append(True)
        for _ in range(1000):  # time enough for a reply that does not wait for it
            await asyncio.sleep(0)
        return await put(entry)

    world.ledger.put = slow  # type: ignore[method-assign]
    async with world.proxy.served():
        assert (await world.play(looks)).response == "1"


async def test_its_address_ends_with_the_rollout() -> None:
    world, kept = World(), list[ProgramContext]()

    async def leaks(question: str, system: str, context: ProgramContext) -> str:
        kept.append(context)
        return await ask(context)

    async with world.proxy.served():
        await world.play(leaks)
        with pytest.raises(openai.NotFoundError, match="no rollout is being played") as told:
            await ask(kept[0], "again")
        assert told.value.code == "rollout_ended"
        async with client(kept[0]) as c:
            with pytest.raises(openai.NotFoundError):
                await c.models.list()
    assert len(world.seen) == 1


@pytest.mark.parametrize(
    ("error", "code", "outcome", "reason"),
    [
        (EndpointError("busy", status=503), 502, "error", "provider"),
        (EndpointError("slow down", status=429), 502, "error", "provider"),
        (EndpointError("broke"), 502, "error", "provider"),
        (EndpointError("odd", status=422), 422, "error", "provider"),
        (ReplyTooLargeError("too large", broken="oversize"), 502, "error", "provider"),
        (ContextOverflowError("too long"), 400, "context_overflow", None),
        (ContentFilterError("not that"), 400, "content_filter", None),
    ],
)
async def test_a_failed_request_is_an_error_its_library_knows(
    error: Exception, code: int, outcome: str, reason: str | None
) -> None:
    world, told = World(lambda request: error), list[openai.APIStatusError]()

    async def fails(question: str, system: str, context: ProgramContext) -> str:
        try:
            return await ask(context)
        except openai.APIStatusError as e:
            told.append(e)
            raise

    async with world.proxy.served():
        played = await world.play(fails)
    assert (told[0].status_code, told[0].code) == (
        code,
        {"context_overflow": "context_length_exceeded", "content_filter": "content_filter"}.get(
            outcome
        ),
    )
    assert (played.outcome, played.reason, played.error) == (outcome, reason, str(error))
    assert len(world.seen) == 1  # its library was told not to try again


@pytest.mark.parametrize("error", [EndpointRefusedError("no credit"), PausedError("a cap")])
async def test_what_stops_the_run_is_no_bug_of_the_program(error: Exception) -> None:
    world, told = World(lambda request: error), list[int]()

    async def stubborn(question: str, system: str, context: ProgramContext) -> str:
        try:
            return await ask(context)
        except openai.APIStatusError as e:
            told.append(e.status_code)
            return "I answer without"

    async with world.proxy.served():
        with pytest.raises(type(error), match=str(error)):
            await world.play(stubborn)
    assert told in ([503], [])  # it may have been ended first
    assert len(world.seen) == 1


async def test_a_program_that_takes_too_long_is_ended() -> None:
    world, ended = World(), asyncio.Event()

    async def slow(question: str, system: str, context: ProgramContext) -> str:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return ""

    async with world.proxy.served():
        played = await world.play(slow, limit_s=0.2)
    assert (played.outcome, played.reason, played.answered) == ("limit", "time", False)
    assert ended.is_set()
    assert not world.notices


async def test_a_program_that_does_not_end_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom_agents, "GRACE_S", 0.1)
    world, stop, ended = World(), asyncio.Event(), asyncio.Event()

    async def deaf(question: str, system: str, context: ProgramContext) -> str:
        while not stop.is_set():
            try:
                await stop.wait()
            except asyncio.CancelledError:
                continue
        ended.set()
        return "late"

    async with world.proxy.served():
        played = await world.play(deaf, limit_s=0.1)
        stop.set()
        await ended.wait()
    assert (played.outcome, played.reason) == ("limit", "time")
    assert world.notices == ["the agent does not end when it is cancelled, so it is abandoned"]


async def test_a_function_that_blocks_in_its_thread_is_left() -> None:
    world, late, ended = World(), list[Exception](), threading.Event()

    def blocks(question: str, system: str, context: ProgramContext) -> str:
        ended.wait(60)
        try:
            with openai.OpenAI(base_url=context.base_url, api_key="k") as c:
                messages: Any = [{"role": "user", "content": "Q"}]
                c.chat.completions.create(model="m", messages=messages)
        except openai.OpenAIError as e:
            late.append(e)
        return "late"

    async with world.proxy.served():
        played = await world.play(blocks, limit_s=0.1)
        ended.set()
        async with asyncio.timeout(HANG_S):
            while not late:  # noqa: ASYNC110 - of another thread
                await asyncio.sleep(0.02)
    assert (played.outcome, played.reason) == ("limit", "time")
    assert isinstance(late[0], openai.NotFoundError)
    assert not world.seen
    assert "was still running" in world.notices[0]


async def test_waits_for_the_endpoint_are_not_the_programs_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waited = [0.0]

    async def late(request: Request) -> Reply:
        await asyncio.sleep(0)
        waited[0] += 400.0
        return Reply({"role": "assistant", "content": "42"}, "stop", seconds=0.01)

    world = World(late)
    async with world.proxy.served():
        with monkeypatch.context() as patch:
            patch.setattr(custom_agents, "monotonic", lambda: time.monotonic() + waited[0])
            assert (await world.play(solve, limit_s=300.0)).response == "42"
        slow = Reply({"role": "assistant", "content": "42"}, "stop", seconds=9.0)
        world.script = lambda request: slow

        async def many(question: str, system: str, context: ProgramContext) -> str:
            for n in range(9):
                await ask(context, str(n))
            return "42"

        played = await world.play(many, limit_s=20.0)
        assert (played.outcome, played.reason, played.turns) == ("limit", "time", 3)
        again = await world.play(many, limit_s=20.0)  # stored answers count what they once took
        assert (again.outcome, again.reason, again.turns) == ("limit", "time", 3)
        assert len(world.ledger.entries) == 1 + 3


async def test_a_cancelled_rollout_leaves_nothing_behind() -> None:
    world, begun, ended = World(), asyncio.Event(), list[bool]()

    async def never(request: Request) -> str:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)
        return ""

    world.script = never
    async with world.proxy.served():
        playing = asyncio.create_task(world.play(solve))
        await begun.wait()
        playing.cancel()
        await asyncio.wait([playing])
        assert playing.cancelled()
        assert ended == [True]
        assert not world.proxy._guests
    assert not world.ledger.entries
