"""A rollout's time begins with its program, not with the process that is made for it."""

import asyncio
from pathlib import Path

import pytest

from grpo_practice.agents import RolloutContext
from grpo_practice.agents.custom_agents import CustomAgent, Room, Whereabouts
from grpo_practice.agents.programs import WorkerProgram
from grpo_practice.app.program_files import source_of
from grpo_practice.events import silent
from grpo_practice.llm.ledgered import Model, ledgered
from grpo_practice.types import Trajectory
from tests.agents.custom.helpers import World
from tests.tools.fakes import SCOPE

LIMIT_S = 2.0
SLOW_TO_LOAD = """
import os, time
from pathlib import Path

here = Path(__file__).parent
if (here / "again").exists():
    while not (here / "go-on").exists():
        time.sleep(0.01)
(here / "again").touch()

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


@pytest.mark.parametrize("first", ["ends", "hangs"])
async def test_what_a_new_process_loads_is_no_time_of_the_rollouts(
    tmp_path: Path, first: str
) -> None:
    (tmp_path / "mine.py").write_text(SLOW_TO_LOAD, "utf-8")
    world = World()
    program = WorkerProgram(source_of("mine.py:solve", tmp_path), 1)
    await program.start()
    agent = CustomAgent(
        program, world.proxy, world.notices.append, Room(1), Whereabouts(1, begins=True)
    )
    try:
        async with world.proxy.served():
            outcome = (await played(agent, world, first)).outcome
            assert outcome == ("limit" if first == "hangs" else "error")
            next_one = asyncio.create_task(played(agent, world, "next"))
            await asyncio.sleep(1.25 * LIMIT_S)
            assert not next_one.done()
            (tmp_path / "go-on").touch()
            assert (await next_one).response == "42"
    finally:
        await program.close()
