"""An agent whose model calls the tools that a test names, and what it reads of them."""

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.contract.command import Gp, Ran
from tests.contract.endpoint.actions import Action, Asked, ok
from tests.contract.endpoint.server import serving

QUESTION = {"question": "How many apples are there?", "answer": "3"}
Call = tuple[str, Mapping[str, Any] | str]
"""Name of a tool and its arguments; a text is sent as it is."""


def config(agent: Mapping[str, Any], url: str, **more: Any) -> None:
    """Write a config of one question for an agent; JSON is YAML."""
    model = {"model_provider": {"model": "m", "base_url": url, "api_key": "sk-of-nobody-1"}}
    whole = {"model": model, "agent": {"name": "clerk", "instructions": "Look it up."}, **agent}
    told = {"exp_id": "x", "verify": "math", "data": {"dataset": "one.jsonl"}, "agent": whole}
    Path("one.jsonl").write_text(json.dumps(QUESTION))
    Path("c.yaml").write_text(json.dumps(told | more))


def calling(name: str, **arguments: Any) -> Action:
    """Return an answer that calls a tool."""
    return turn((name, arguments))


def turn(*calls: Call) -> Action:
    """Return an answer that calls tools, all of them at once."""
    said = [
        {"name": name, "arguments": given if isinstance(given, str) else json.dumps(given)}
        for name, given in calls
    ]
    made = [{"id": f"c{n}", "type": "function", "function": each} for n, each in enumerate(said)]
    return ok({"role": "assistant", "content": None, "tool_calls": made}, finish="tool_calls")


class Student:
    """Makes these calls, turn by turn, and then answers; any other request is to read a page."""

    def __init__(self, *turns: Action, reads: Callable[[str], Action] | None = None) -> None:
        self.turns, self.reads = turns, reads or (lambda _: ok("It has 3 apples."))
        self.results = list[str]()
        """What the tools gave, in the last request."""
        self.tools = dict[str, Any]()
        """Name → function, as the request describes it."""
        self.read = list[str]()
        """Requests to read a page."""
        self.notices = ""
        """What the command said beside its results."""

    def __call__(self, asked: Asked) -> Action:
        said = asked.body["messages"]
        if not asked.body.get("tools"):
            self.read.append(said[-1]["content"])
            return self.reads(self.read[-1])
        self.tools = {tool["function"]["name"]: tool["function"] for tool in asked.body["tools"]}
        self.results = [m["content"] for m in said if m["role"] == "tool"]
        done = sum(1 for m in said if m.get("tool_calls"))
        return self.turns[done] if done < len(self.turns) else ok("\\boxed{3}")


def evaluated(gp: Gp) -> dict[str, Any]:
    """Evaluate, and again: the second one asks nothing. Return the first one's document."""
    first, again = (gp("eval", "--config", "c.yaml", "--json") for _ in range(2))
    assert (first.code, again.code) == (0, 0), first.err
    assert again.document["requests"]["new"] == 0
    assert again.document["score"] == first.document["score"]
    return first.document


def played(
    gp: Gp,
    toolkits: Mapping[str, Any],
    *turns: Action,
    reads: Callable[[str], Action] | None = None,
) -> Student:
    """Play one rollout whose model makes these calls; return the model, which has read them."""
    clerk = Student(*turns, reads=reads)
    ran = evaluated_with(gp, clerk, toolkits)
    assert ran.code == 0, ran.err
    clerk.notices = ran.err
    return clerk


def evaluated_with(gp: Gp, clerk: Student, toolkits: Mapping[str, Any]) -> Ran:
    """Evaluate one question with that model, of which nothing is stored yet."""
    for file in Path().glob("grpo-practice.db*"):
        with suppress(FileNotFoundError):
            file.unlink()
    with serving(clerk) as server:
        config({"toolkits": toolkits}, server.url)
        return gp("eval", "--config", "c.yaml")


def refused(gp: Gp, toolkit: Mapping[str, Any]) -> Ran:
    """Evaluate with a toolkit that cannot be used; check that it costs no request."""
    ran = evaluated_with(gp, nobody := Student(), toolkit)
    assert (ran.code, nobody.tools) == (2, {}), ran.err
    return ran


def misses(said: Mapping[str, str], wanted: Mapping[str, str | Iterable[str]]) -> dict[str, str]:
    """Return what is not as wanted: a text is wanted whole, of several each as a part."""
    return {
        key: said[key]
        for key, want in wanted.items()
        if (said[key] != want if isinstance(want, str) else not all(w in said[key] for w in want))
    }
