"""Haystack."""

from pathlib import Path

from tests.programs.library import play

REQUIRES = ("haystack-ai",)

AGENT = """
import os

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
from haystack.components.agents import Agent
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret


def solve(question, system, context):
    generator = OpenAIChatGenerator(
        model=context.model,
        api_base_url=context.base_url,
        api_key=Secret.from_token(context.api_key),
    )
    agent = Agent(chat_generator=generator, system_prompt=system)
    return agent.run(messages=[ChatMessage.from_user(question)])["last_message"].text
"""


def check(python: Path, folder: Path) -> str:
    """Play rollouts with an agent of the library."""
    return play(python, folder, AGENT)
