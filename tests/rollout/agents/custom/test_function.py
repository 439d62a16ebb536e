"""`type: python`: a function is called, and whatever it does stays in its rollout."""

import asyncio
import threading
from typing import Any

import pytest

from grpo_practice.core.errors import AgentError
from grpo_practice.rollout.agents import programs
from grpo_practice.rollout.agents.program_context import ProgramContext
from grpo_practice.rollout.agents.programs import FunctionProgram
from tests.rollout.agents.custom.helpers import CONTEXT


async def call(function: Any, notices: list[str] | None = None) -> str:
    told = notices if notices is not None else []
    return await FunctionProgram("mine.py:solve", function, told.append)("Q", "S", CONTEXT)


async def test_it_gets_question_system_prompt_and_context() -> None:
    def plain(question: str, system: str, context: ProgramContext) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return f"{question} {system} {context.model} {context.attempt}"

    async def on_loop(question: str, system: str, context: ProgramContext) -> str:
        await asyncio.sleep(0)
        assert threading.current_thread() is threading.main_thread()
        return f"{question} {system} {context.model} {context.attempt}"

    class Thing:
        async def __call__(self, *given: Any) -> str:
            return await on_loop(*given)

    for function in (plain, on_loop, Thing(), lambda *given: on_loop(*given)):
        assert await call(function) == "Q S m 1"


async def test_what_it_raises_is_its_error_with_the_line() -> None:
    def bad(*_: Any) -> str:
        raise KeyError("lost")

    async def worse(*_: Any) -> str:
        raise SystemExit(3)

    async def cancels(*_: Any) -> str:
        raise asyncio.CancelledError

    with pytest.raises(AgentError, match=r"mine.py:solve raised KeyError at test_function.py:\d+:"):
        await call(bad)
    with pytest.raises(AgentError, match="raised SystemExit at test_function"):
        await call(worse)
    with pytest.raises(AgentError, match="raised CancelledError"):
        await call(cancels)


async def test_an_async_one_is_cancelled() -> None:
    begun, cleaned = asyncio.Event(), asyncio.Event()

    async def slow(*_: Any) -> str:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.set()
        return ""

    work = asyncio.create_task(call(slow))
    await begun.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert cleaned.is_set()


async def test_a_thread_is_left_to_itself_and_that_is_said_once() -> None:
    began, go_on, notices = threading.Barrier(4), threading.Event(), list[str]()

    def slow(*_: Any) -> str:
        began.wait(60)
        go_on.wait(60)
        return "too late"

    solve = FunctionProgram("mine.py:solve", slow, notices.append)
    works = [asyncio.create_task(solve("Q", "S", CONTEXT)) for _ in range(3)]
    await asyncio.to_thread(began.wait, 60)
    for work in works:
        work.cancel()
    await asyncio.wait(works)
    go_on.set()
    assert [work.cancelled() for work in works] == [True] * 3
    assert len(notices) == 1
    assert "mine.py:solve was still running" in notices[0]


async def test_a_thread_that_ends_with_its_rollout_is_no_news(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(programs, "ENDING_S", 60.0)
    began, go_on, notices = threading.Event(), threading.Event(), list[str]()

    def raises(*_: Any) -> str:
        began.set()
        go_on.wait(60)
        raise ValueError("at once")

    work = asyncio.create_task(call(raises, notices))
    await asyncio.to_thread(began.wait, 60)
    work.cancel()
    go_on.set()
    await asyncio.wait((work,))
    assert work.cancelled()
    assert notices == []


async def test_as_many_run_at_once_as_are_asked_to() -> None:
    together = threading.Barrier(64, timeout=60)
    works = [call(lambda *_: str(together.wait() >= 0)) for _ in range(64)]
    assert await asyncio.gather(*works) == ["True"] * 64
