"""Export of the agent as a runnable Python file for the OpenAI Agents SDK."""

import re
from collections.abc import Mapping
from typing import Any

from grpo_practice.core.calls import ApiName
from grpo_practice.core.foreign_text import one_line
from grpo_practice.reports.exported_agent import ExportedAgent

KEY = "AGENT_API_KEY"
"""Environment variable with the API key for an address that is written in the file.

The variable from the config is never used: in a database from someone else, it could be any of the
user's variables, sent to any host, and the exported file has no trust check.
"""
_VARIABLE = re.compile(r"\$\{\s*oc\.env\s*:\s*(\w+)")
_KINDS: Mapping[ApiName, str] = {
    "chat.completions": "OpenAIChatCompletionsModel",
    "responses": "OpenAIResponsesModel",
}
_NEED_TOOLS = ("tool_choice", "parallel_tool_calls")
"""Settings that endpoints reject in a request without tools."""

_FILE = """\
{facts}#
# pip install openai-agents; then: python agent.py "the question"
import os
import sys

from agents import Agent, ModelSettings, {kind}, Runner, set_tracing_disabled
from openai import AsyncOpenAI

# By default, the SDK also sends the whole conversation to OpenAI's tracing service.
set_tracing_disabled(True)

INSTRUCTIONS = (
{instructions})

agent = Agent(
    name={name},
    instructions=INSTRUCTIONS,
    model={kind}(
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
    """Return the Python file.

    The API key comes from the environment. If the config has no address, the address does too.
    """
    facts = [*agent.facts]
    if agent.toolkits:
        names = ", ".join(agent.toolkits)
        facts.append(
            f"its tools are not in this file ({names}): pass equivalent tools as tools=[…]"
        )
    named = _VARIABLE.search(str(agent.endpoint.get("api_key", "")))
    if named:
        facts.append(f"its config takes the key from {named[1]}; this file takes it from {KEY}")
    settings = {
        key: value
        for key, value in agent.model_settings.items()
        if key not in _NEED_TOOLS and value not in ({}, None)
    }
    return _FILE.format(
        facts="".join(f"# {one_line(fact)}\n" for fact in facts),
        instructions="".join(f"    {line!r}\n" for line in _lines(agent.system_prompt)),
        kind=_KINDS[agent.api],
        name=repr(agent.name),
        model=repr(agent.model),
        client=_client(agent.endpoint),
        settings="".join(f"\n        {key}={value!r}," for key, value in settings.items())
        + ("\n    " if settings else ""),
        max_turns=agent.max_turns,
    )


def _lines(text: str) -> list[str]:
    """Return the lines of a text with their line ends; one empty line for an empty text."""
    return [line for line in re.split(r"(?<=\n)", text) if line] or [""]


def _client(endpoint: Mapping[str, Any]) -> str:
    """Return the Python call that creates the client, without the API key itself."""
    url = endpoint.get("base_url")
    if not url:
        return "AsyncOpenAI()"  # reads OPENAI_BASE_URL and OPENAI_API_KEY
    # A default, because the client requires a key even if the server ignores it.
    return f'AsyncOpenAI(base_url={url!r}, api_key=os.environ.get("{KEY}", "none"))'
