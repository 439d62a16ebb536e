"""AutoGen."""

from pathlib import Path

from tests.programs.library import play

REQUIRES = ("autogen-agentchat", "autogen-ext[openai]")

AGENT = """
from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelFamily
from autogen_ext.models.openai import OpenAIChatCompletionClient

ABLE = {
    "vision": False,
    "function_calling": True,
    "json_output": True,
    "structured_output": True,
    "family": ModelFamily.UNKNOWN,
}


async def solve(question, system, context):
    client = OpenAIChatCompletionClient(
        model=context.model,
        base_url=context.base_url,
        api_key=context.api_key,
        model_info=ABLE,
    )
    agent = AssistantAgent("a", model_client=client, system_message=system)
    return (await agent.run(task=question)).messages[-1].content
"""


def check(python: Path, folder: Path) -> str:
    """Play rollouts with an agent of the library."""
    return play(python, folder, AGENT)
