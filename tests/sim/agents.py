"""An agent with tools by hand: what the simulated endpoint says, turn by turn."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_practice.core.calls import Message
from grpo_practice.sim import DEFAULT, World, answer

Tool = Callable[..., str]


@dataclass
class Played:
    """A conversation, and the functions called in it, in order."""

    messages: list[Message]
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    finishes: list[str] = field(default_factory=list)

    @property
    def answer(self) -> str:
        return str(self.messages[-1]["content"])

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.calls]


def run_code(code: str) -> str:
    """What the program prints. The programs are the simulation's own."""
    printed: list[str] = []
    exec(code, {"print": lambda value: printed.append(str(value))})
    return "\n".join(printed)


def offered(*names: str) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": name, "parameters": {}}} for name in names]


def play(
    question: str,
    tools: Mapping[str, Tool],
    *,
    seed: int = 0,
    world: World = DEFAULT,
    system: str = "Solve it.",
    **body: Any,
) -> Played:
    """The conversation until the model answers."""
    played = Played([{"role": "system", "content": system}, {"role": "user", "content": question}])
    for _ in range(20):
        asked = {"messages": played.messages, "seed": seed, "tools": offered(*tools), **body}
        choice = answer(asked, world)["choices"][0]
        played.messages.append(choice["message"])
        played.finishes.append(choice["finish_reason"])
        if not choice["message"].get("tool_calls"):
            return played
        played.messages += [_result(call, tools, played) for call in _calls(choice)]
    raise AssertionError("it never answered")


def _calls(choice: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    calls: Sequence[Mapping[str, Any]] = choice["message"]["tool_calls"]
    return calls


def _result(call: Mapping[str, Any], tools: Mapping[str, Tool], played: Played) -> Message:
    name, given = call["function"]["name"], json.loads(call["function"]["arguments"])
    played.calls.append((name, given))
    return {"role": "tool", "tool_call_id": call["id"], "content": tools[name](**given)}
