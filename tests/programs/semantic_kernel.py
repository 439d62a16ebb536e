"""Semantic Kernel."""

from pathlib import Path

from tests.programs.library import play

REQUIRES = ("semantic-kernel",)

AGENT = """
from openai import AsyncOpenAI
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion


async def solve(question, system, context):
    client = AsyncOpenAI(base_url=context.base_url, api_key=context.api_key)
    service = OpenAIChatCompletion(ai_model_id=context.model, async_client=client)
    agent = ChatCompletionAgent(service=service, name="a", instructions=system)
    return str((await agent.get_response(question)).content)
"""


def check(python: Path, folder: Path) -> str:
    """Play rollouts with an agent of the library."""
    return play(python, folder, AGENT)
