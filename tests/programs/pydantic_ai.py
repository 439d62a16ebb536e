"""Pydantic AI."""

from pathlib import Path

from tests.programs.library import play

REQUIRES = ("pydantic-ai-slim[openai]",)

AGENT = """
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


async def solve(question, system, context):
    provider = OpenAIProvider(base_url=context.base_url, api_key=context.api_key)
    agent = Agent(OpenAIChatModel(context.model, provider=provider), instructions=system)
    return (await agent.run(question)).output
"""


def check(python: Path, folder: Path) -> str:
    """Play rollouts with an agent of the library."""
    return play(python, folder, AGENT)
