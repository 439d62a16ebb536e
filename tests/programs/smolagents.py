"""smolagents."""

import json
from pathlib import Path
from typing import Any

from tests.programs.library import ANSWER, Message, play

REQUIRES = ("smolagents[openai]",)

AGENT = """
from smolagents import OpenAIModel, ToolCallingAgent


def solve(question, system, context):
    model = OpenAIModel(context.model, api_base=context.base_url, api_key=context.api_key)
    agent = ToolCallingAgent(tools=[], model=model, instructions=system, verbosity_level=0)
    return str(agent.run(question))
"""


def final(_: dict[str, Any]) -> Message:
    """Answer by the tool that ends the library's loop."""
    function = {"name": "final_answer", "arguments": json.dumps({"answer": ANSWER})}
    call = {"id": "c1", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def check(python: Path, folder: Path) -> str:
    """Play rollouts with an agent of the library."""
    return play(python, folder, AGENT, final)
