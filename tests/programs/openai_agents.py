"""OpenAI Agents SDK."""

from pathlib import Path

from tests.programs.library import play

REQUIRES = ("openai-agents",)

AGENT = """
from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

set_tracing_disabled(True)


async def solve(question, system, context):
    async with AsyncOpenAI(base_url=context.base_url, api_key=context.api_key) as client:
        model = OpenAIResponsesModel(context.model, client)
        agent = Agent(name="a", instructions=system, model=model)
        return (await Runner.run(agent, question)).final_output
"""


def check(python: Path, folder: Path) -> str:
    """Play rollouts with an agent of the library."""
    return play(python, folder, AGENT)
