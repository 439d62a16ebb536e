"""A published MCP server: its tools are called in each rollout; the last result is the answer."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.programs.library import FENCE, Message, evaluated, text


@dataclass(frozen=True)
class Case:
    """A server, the calls of each rollout, and what must be read in the end."""

    args: tuple[str, ...]
    calls: tuple[tuple[str, Mapping[str, Any]], ...]
    reads: str
    env: Mapping[str, str] = field(default_factory=dict)
    own_folder: bool = False
    """Whether it is given `workdir: rollout`."""


def ask(program: Path, folder: Path, case: Case) -> str:
    """Let an agent call its tools; say how many there are.

    Raises:
        AssertionError: A rollout did not read what it must.
    """
    (folder / "sitecustomize.py").write_text(FENCE.replace('"elsewhere', f'"{folder}/elsewhere'))
    env = {"PYTHONPATH": str(folder), **case.env}
    config: dict[str, Any] = {"command": str(program), "args": case.args, "env": env}
    if case.own_folder:
        config["workdir"] = "rollout"
    toolkit = {"mode": "mcp", "stateful": case.own_folder, "config": config}
    agent = {"type": "simple", "toolkits": {"server": toolkit}}
    bodies = evaluated(folder, agent, calling(case), reads=case.reads)
    names = ", ".join(tool["function"]["name"] for tool in bodies[0]["tools"])
    return f"{len(case.calls)} calls in each rollout, of {names}"


def calling(case: Case) -> Callable[[dict[str, Any]], Message]:
    """Call the tools one after the other, and answer with what the last one gave."""

    def answer(body: dict[str, Any]) -> Message:
        read = [m["content"] for m in body["messages"] if m["role"] == "tool"]
        if len(read) == len(case.calls):
            return text(body) | {"content": read[-1]}
        name, given = case.calls[len(read)]
        function = {"name": name, "arguments": json.dumps(given)}
        call = {"id": f"c{len(read)}", "type": "function", "function": function}
        return {"role": "assistant", "content": None, "tool_calls": [call]}

    return answer
