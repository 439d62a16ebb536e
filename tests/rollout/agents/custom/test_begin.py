"""A rollout's time begins with its program, not with the process that is made for it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path

import pytest

from grpo_practice.core.events import silent
from grpo_practice.core.types import Trajectory
from grpo_practice.llm.ledgered import Model, ledgered
from grpo_practice.rollout.agents import RolloutContext
from grpo_practice.rollout.agents.custom_agents import CustomAgent, Whereabouts
from grpo_practice.rollout.agents.programs import WorkerProgram
from grpo_practice.rollout.agents.slots import Room
from grpo_practice.run.own_code import source_of
from tests.rollout.agents.custom.helpers import World
from tests.rollout.tools.fakes import SCOPE

LIMIT_S = 2.0
SLOW_TO_LOAD = """
import os, time
from pathlib import Path

here = Path(__file__).parent
with (here / "loads").open("a") as loads:
    loads.write("x")
if (here / "loads").stat().st_size == 2:
    while not (here / "go-on").exists():
        time.sleep(0.01)

def solve(question, system, context):
    if question == "ends":
        os._exit(3)
    if question == "hangs":
        time.sleep(600)
    return "42"
"""


async def played(agent: CustomAgent, world: World, question: str) -> Trajectory:
    chat = ledgered(Model("m", {}, world.send), world.ledger, silent)(SCOPE)
    return await agent(question, "S", RolloutContext(chat, SCOPE, LIMIT_S))


@asynccontextmanager
async def opened(folder: Path, world: World) -> AsyncIterator[Callable[[float], CustomAgent]]:
    """Give agents of one worker, by how soon one begins; the second load of its file hangs."""
    (folder / "mine.py").write_text(SLOW_TO_LOAD, "utf-8")
    program = WorkerProgram(source_of("mine.py:solve", folder), 1)
    await program.start()

    def agent(begins_within_s: float) -> CustomAgent:
        where = Whereabouts(1, begins_within_s=begins_within_s)
        return CustomAgent(program, world.proxy, world.notices.append, Room(1), where)

    try:
        async with world.proxy.served():
            yield agent
    finally:
        await program.close()


@pytest.mark.parametrize("first", ["ends", "hangs"])
async def test_what_a_new_process_loads_is_no_time_of_the_rollouts(
    tmp_path: Path, first: str
) -> None:
    world = World()
    async with opened(tmp_path, world) as agent_of:
        agent = agent_of(inf)
        outcome = (await played(agent, world, first)).outcome
        assert outcome == ("limit" if first == "hangs" else "error")
        next_one = asyncio.create_task(played(agent, world, "next"))
        await asyncio.sleep(1.25 * LIMIT_S)
        assert not next_one.done()
        (tmp_path / "go-on").touch()
        assert (await next_one).response == "42"


async def test_a_process_that_hangs_as_it_loads_is_replaced(tmp_path: Path) -> None:
    world = World()
    async with opened(tmp_path, world) as agent_of:
        await played(agent_of(inf), world, "ends")
        hung = await played(agent_of(0.2), world, "next")
        assert (hung.outcome, hung.error) == ("error", "the program did not begin within 0.2 s")
        assert (await played(agent_of(inf), world, "next")).response == "42"
