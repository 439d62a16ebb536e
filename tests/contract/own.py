"""Projects whose rollouts are played by a program of the user's own."""

import sys
import textwrap
from pathlib import Path

from tests.contract.project import Project

ASK = """
import asyncio, json
from aiohttp import ClientSession

async def ask(context, *messages):
    body = {"model": context.model, "messages": list(messages)}
    async with ClientSession() as session:
        reply = await session.post(context.base_url + "/chat/completions", json=body)
        return (await reply.json())["choices"][0]["message"]

def user(text):
    return {"role": "user", "content": text}
"""
ONCE = """
async def solve(question, system, context):
    message = await ask(context, {"role": "system", "content": system}, user(question))
    return message["content"]
"""
MANY = """
async def solve(question, system, context):
    told = {"role": "system", "content": system}
    several = await asyncio.gather(*(ask(context, told, user(question)) for _ in range(3)))
    notes = await asyncio.gather(*(ask(context, user(f"note {n}: {question}")) for n in range(2)))
    last = [told, user(question), several[0], user("again")]
    return (await ask(context, *last))["content"] + several[0]["content"]
"""


AGENT = """
import json, sys
from urllib.request import Request, urlopen

def ask(base_url, model, messages):
    body = json.dumps({"model": model, "messages": messages}).encode()
    request = Request(base_url + "/chat/completions", body, {"content-type": "application/json"})
    with urlopen(request, timeout=60) as reply:
        return json.load(reply)["choices"][0]["message"]

def play(question, system, base_url, model):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    for text in ("Are you sure?", "And now the answer."):
        messages += [ask(base_url, model, messages), {"role": "user", "content": text}]
    return ask(base_url, model, messages)["content"]

def solve(question, system, context):
    return play(question, system, context.base_url, context.model)

if __name__ == "__main__":
    given = json.load(sys.stdin)
    told = [given[key] for key in ("question", "system", "base_url", "model")]
    print(json.dumps({"answer": play(*told)}))
"""
"""A program that asks three times, as a function and as a command."""
FUNCTION = ("type=python", "function=mine.py:solve")
COMMAND = ("type=command", f"command=[{sys.executable}, mine.py]")
THREADS = (*FUNCTION, "workers=0")


def keys(way: tuple[str, ...]) -> list[str]:
    """Return the overrides of a short practice whose agent is configured so."""
    return [f"evaluation.agent.{key}" for key in way] + ["practice.epochs=1"]


class Programs:
    """A folder of a project, with programs in it."""

    folder: Path

    def agent(self, text: str, name: str = "mine.py") -> list[str]:
        """Return overrides for an evaluation that is played by this program."""
        (self.folder / name).write_text(ASK + textwrap.dedent(text), "utf-8")
        return ["agent.type=python", f"agent.function={name}:solve"]

    def practising(self, text: str) -> list[str]:
        """Return overrides for a practice that is played by this program."""
        return [f"evaluation.{override}" for override in self.agent(text)]


class Own(Programs, Project):
    """A project of the contract that is played by programs."""


def asking(folder: Path) -> Own:
    """Return a project whose program asks three times."""
    made = Own(folder)
    (folder / "mine.py").write_text(AGENT, "utf-8")
    return made
