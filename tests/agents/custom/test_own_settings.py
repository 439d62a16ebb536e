"""A program that sends settings of its own in place of configured ones is said to, once."""

from typing import Any

import pytest

from grpo_practice.agents import RolloutContext
from grpo_practice.agents.called import ProgramContext
from grpo_practice.agents.custom_agents import CustomAgent
from grpo_practice.agents.programs import FunctionProgram
from grpo_practice.events import silent
from grpo_practice.llm.ledgered import Model, ledgered
from tests.agents.custom.helpers import World, ask
from tests.tools.fakes import SCOPE


async def notices(*requests: dict[str, Any], **configured: Any) -> list[str]:
    """What a person is told when a program makes these requests."""
    world = World()
    chat = ledgered(Model("m", configured, world.send), world.ledger, silent)(SCOPE)

    async def solve(question: str, system: str, context: ProgramContext) -> str:
        for n, settings in enumerate(requests):
            await ask(context, str(n), **settings)
        return "42"

    async with world.proxy.served():
        assert (await world.play(solve, chat=chat)).outcome == "ok"
    return world.notices


async def test_key_value_and_configured_value_are_named_with_what_to_do() -> None:
    (told,) = await notices({"temperature": 0.1}, temperature=0.7)
    assert "temperature 0.1 (configured: 0.7)" in told
    assert "take it out of the agent's program" in told
    assert "docs/agents.md" in told


async def test_each_key_is_said_once_however_often_it_is_sent() -> None:
    told = await notices(
        {"temperature": 0.1},
        {"temperature": 0.1, "max_tokens": 5},
        {"temperature": 0.2, "max_completion_tokens": 6},
        temperature=0.7,
        max_tokens=100,
    )
    assert len(told) == 1
    assert "temperature 0.1 (configured: 0.7), max_tokens 5 (configured: 100)" in told[0]


async def test_another_model_is_a_setting_too() -> None:
    world = World()

    async def solve(question: str, system: str, context: ProgramContext) -> str:
        return await ask(ProgramContext(context.base_url, "k", "gpt-x", 0, 0, 1.0))

    async with world.proxy.served():
        await world.play(solve)
    (told,) = world.notices
    assert "model 'gpt-x' (configured: 'm')" in told


@pytest.mark.parametrize(
    ("sent", "configured"),
    [
        ({"temperature": 0.7, "max_completion_tokens": 5}, {"temperature": 0.7, "max_tokens": 5}),
        ({"temperature": 1}, {"temperature": 1.0}),
        ({}, {"temperature": 0.7}),
        ({"temperature": 0.1, "stop": ["x"], "seed": 5}, {"max_tokens": 5}),
    ],
)
async def test_what_agrees_or_is_not_configured_is_no_news(
    sent: dict[str, Any], configured: dict[str, Any]
) -> None:
    assert await notices(sent, **configured) == []


async def test_it_is_said_once_for_a_run_and_also_where_the_rollout_fails() -> None:
    world = World()

    async def solve(question: str, system: str, context: ProgramContext) -> str:
        await ask(context, temperature=0.1)
        raise ValueError("no")

    chat = ledgered(Model("m", {"temperature": 0.7}, world.send), world.ledger, silent)(SCOPE)
    program = FunctionProgram("mine.py:solve", solve, world.notices.append)
    agent = CustomAgent(program, world.proxy, world.notices.append)
    async with world.proxy.served():
        for _ in range(3):
            assert (await agent("Q", "S", RolloutContext(chat, SCOPE, 30.0))).outcome == "error"
    assert sum("temperature 0.1" in told for told in world.notices) == 1
