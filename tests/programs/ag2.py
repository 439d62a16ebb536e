"""AG2."""

from pathlib import Path

from tests.programs.library import play

REQUIRES = ("ag2[openai]",)

AGENT = """
from ag2 import Agent
from ag2.config import OpenAIConfig


async def solve(question, system, context):
    config = OpenAIConfig(
        model=context.model, base_url=context.base_url, api_key=context.api_key
    )
    agent = Agent("a", prompt=system, config=config)
    return (await agent.ask(question)).body
"""


def check(python: Path, folder: Path) -> str:
    """Play rollouts with an agent of the library."""
    return play(python, folder, AGENT)
