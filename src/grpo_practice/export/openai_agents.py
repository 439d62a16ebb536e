"""The agent as a Python file for the OpenAI Agents SDK, which runs as it is."""

import re
from collections.abc import Mapping
from typing import Any

from grpo_practice.export.enhanced_agent import ExportedAgent
from grpo_practice.export.plain import one_line

KEY = "AGENT_API_KEY"
"""Variable of the key for an address that stands in the file.

Never the one that the config names: in a database of others, that is any variable of yours, sent to
any host of theirs, and here nobody asks whom you trust.
"""
_VARIABLE = re.compile(r"\$\{\s*oc\.env\s*:\s*(\w+)")
_NEED_TOOLS = ("tool_choice", "parallel_tool_calls")
"""Settings that an endpoint refuses in a request without tools."""

_FILE = """\
{facts}#
# pip install openai-agents; then: python agent.py "the question"
import os
import sys

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI

# By default, the SDK also sends all that is said to the tracing of OpenAI.
set_tracing_disabled(True)

INSTRUCTIONS = (
{instructions})

agent = Agent(
    name={name},
    instructions=INSTRUCTIONS,
    model=OpenAIChatCompletionsModel(
        model={model},
        openai_client={client},
    ),
    model_settings=ModelSettings({settings}),
)

if __name__ == "__main__":
    question = " ".join(sys.argv[1:]) or sys.stdin.read()
    print(Runner.run_sync(agent, question, max_turns={max_turns}).final_output)
"""


def to_python(agent: ExportedAgent) -> str:
    """Return the file; the key comes from the environment, and the address where none is known."""
    facts = [*agent.facts]
    if agent.toolkits:
        names = ", ".join(agent.toolkits)
        facts.append(
            f"its tools are not in this file ({names}): give the like of them as tools=[…]"
        )
    named = _VARIABLE.search(str(agent.endpoint.get("api_key", "")))
    if named:
        facts.append(f"its config has the key in {named[1]}; this file takes it from {KEY}")
    settings = {
        key: value
        for key, value in agent.model_settings.items()
        if key not in _NEED_TOOLS and value not in ({}, None)
    }
    return _FILE.format(
        facts="".join(f"# {one_line(fact)}\n" for fact in facts),
        instructions="".join(f"    {line!r}\n" for line in _lines(agent.system_prompt)),
        name=repr(agent.name),
        model=repr(agent.model),
        client=_client(agent.endpoint),
        settings="".join(f"\n        {key}={value!r}," for key, value in settings.items())
        + ("\n    " if settings else ""),
        max_turns=agent.max_turns,
    )


def _lines(text: str) -> list[str]:
    """Return the lines of a text with their ends; one that is empty for an empty text."""
    return [line for line in re.split(r"(?<=\n)", text) if line] or [""]


def _client(endpoint: Mapping[str, Any]) -> str:
    """Return the call that makes the client; no key stands in it."""
    url = endpoint.get("base_url")
    if not url:
        return "AsyncOpenAI()"  # OPENAI_BASE_URL and OPENAI_API_KEY
    # A server without keys takes any.
    return f'AsyncOpenAI(base_url={url!r}, api_key=os.environ.get("{KEY}", "none"))'
