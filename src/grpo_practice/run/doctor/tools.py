"""Checks of the agent's toolkits: each is opened, but no tool is called."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.config.schema.provider import ModelConfig
from grpo_practice.config.schema.tools import McpToolkit, Toolkit
from grpo_practice.config.trust.foreign import agent_programs
from grpo_practice.core.calls import UNASKED, Address, Chat, Message, Reply, Scope
from grpo_practice.core.errors import AgentError, GrpoPracticeError
from grpo_practice.core.fences import Fences
from grpo_practice.core.findings import Finding, ok, problem, problems, warning
from grpo_practice.core.text import count, is_loopback
from grpo_practice.core.types import Trajectory
from grpo_practice.llm.ledgered import Play
from grpo_practice.rollout.agents import RolloutContext
from grpo_practice.rollout.agents.ray_cluster import LOCAL
from grpo_practice.rollout.attempts import SEND_IT, is_sent
from grpo_practice.rollout.tools import Tool
from grpo_practice.rollout.tools.toolbox import check_names
from grpo_practice.run.custom_agent import looked_at, open_own, open_proxy, open_ray, seconds_to
from grpo_practice.run.own_code import sha_of
from grpo_practice.run.player import chosen, open_toolkit

_SYSTEM = "Answer with the number alone."
PLAY_S = 30.0
"""Timeout for one question to the user's own agent."""


def not_run(about: str, what: str) -> Finding:
    """Return the finding for a program that was not run."""
    return warning(about, f"{what}: not run", "add --run to try the programs that a config names")


async def diagnose_tools(agent: AgentConfig, folder: Path, *, run: bool) -> list[Finding]:
    """Check the tools of each toolkit, or check that the user's own agent can be started.

    Args:
        agent: The agent.
        folder: Folder to which paths in its configuration are relative.
        run: Whether the programs that the agent's configuration names may be run.
    """
    if agent.type != "simple":
        return await _own(agent, folder, run=run)
    found, tools = list[Finding](), list[Tool]()
    # Toolkits that start a program or contact a server which the config names.
    left = {demand.key[1] for demand in agent_programs(agent, ())} if not run else set()
    for name, toolkit in agent.toolkits.items():
        about = f"toolkit {name}"
        found += _in_clear(about, toolkit)
        if name in left:
            found.append(not_run(about, "a program or server of its own"))
            continue
        try:
            async with AsyncExitStack() as stack:
                opened = await open_toolkit(toolkit, _nobody, folder, Fences.with_new_key())
                given = chosen(name, toolkit, await stack.enter_async_context(opened))
        except GrpoPracticeError as e:
            found.append(problem(about, e))
            continue
        found.append(ok(about, _by_place(given)))
        tools += given
    try:
        check_names(tools)
    except GrpoPracticeError as e:
        found.append(problem("toolkits", e))
    return found if left else found + _unknown(agent, tools, found)


async def _own(agent: AgentConfig, folder: Path, *, run: bool) -> list[Finding]:
    what = agent.function or " ".join(agent.command or ())
    found = list[Finding]()
    try:
        if not run:
            sha_of(agent, folder)  # finds a missing file without running anything
            return [not_run("agent", what)]
        async with AsyncExitStack() as stack:
            found += await _reached(stack, agent, folder)
            played = await _played(agent, folder)
    except GrpoPracticeError as e:
        return [*found, problem("agent", e)]
    if played.unasked:
        text = f"{what} answered a made-up question without a request"
        return [*found, warning("agent", text, UNASKED)]
    if played.outcome == "error":
        # A warning, not a problem, because an agent may rightly reject a made-up reply.
        return [*found, warning("agent", f"failed on a made-up question and reply: {played.error}")]
    asked = count(played.turns, "request")
    if not (agent.ignores_system or is_sent(_SYSTEM, played)):
        text = f"{what} answered a made-up question, but no request contained its system prompt"
        return [*found, warning("agent", text, SEND_IT)]
    return [*found, ok("agent", f"{what} answered a made-up question with {asked}")]


async def _reached(stack: AsyncExitStack, agent: AgentConfig, folder: Path) -> list[Finding]:
    """Check that the agent's address can be reached from here and from each node of a cluster.

    The stack keeps the proxy and the cluster open, because the agent is played next.
    """
    found = list[Finding]()
    proxy = await stack.enter_async_context(open_proxy(agent.proxy, folder))
    if url := agent.proxy.url:
        try:
            took_s = await seconds_to(proxy)
            found.append(
                ok("agent.proxy.url", f"{url} reaches this program ({1000 * took_s:.0f} ms)")
            )
        except AgentError as e:
            text = f"{url} does not reach this program from this machine: {e}"
            # Only a warning, because the URL may be reachable from the cluster but not from here.
            found.append(warning("agent.proxy.url", text, "programs elsewhere may reach it"))
    if agent.executor == "ray":
        program = await stack.enter_async_context(open_ray(agent, folder))
        with looked_at(proxy) as (invited, model):
            nodes = await program.probe_nodes(invited, model)
        for node, took_s in nodes.items():
            text = f"has the agent, and reaches its address in {1000 * took_s:.0f} ms"
            found.append(ok(f"node {node}", text))
        if agent.ray is not None and agent.ray.address == LOCAL:
            text = (
                "Ray listens beyond this machine, but accepts no command without this run's token"
            )
            found.append(ok("agent.ray", text))
    return found


async def _played(agent: AgentConfig, folder: Path) -> Trajectory:
    """Play one question with the user's own agent; every request gets the same made-up reply."""
    scope = Scope(Address(0, 0, 0, 0, "play"), 0, "", 0)
    model = _MadeUp()
    async with open_own(agent, folder, lambda _: None) as own:
        played = await own("What is 6 times 7?", _SYSTEM, RolloutContext(model, scope, PLAY_S))
    return replace(played, transcript=model.asked)


class _MadeUp:
    """A model that always gives the same reply (an `AgentChat`)."""

    model = "made-up"
    params: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self.asked = list[Message]()

    async def __call__(self, messages: Sequence[Message], **_: Any) -> Reply:
        """Return the fixed reply."""
        self.asked += messages
        await asyncio.sleep(0)
        return Reply({"role": "assistant", "content": "42"})

    def with_model(self, name: str, params: Mapping[str, Any], play: Play) -> Chat:
        """Return the same object, because every model is made up."""
        return self


def _by_place(tools: Sequence[Tool]) -> str:
    """Return the tools as text, grouped by where they run."""
    places = dict.fromkeys(tool.runs_in for tool in tools)
    named = {p: ", ".join(tool.name for tool in tools if tool.runs_in == p) for p in places}
    return "; ".join(f"{names} ({place})" for place, names in named.items())


def _unknown(agent: AgentConfig, tools: Sequence[Tool], found: Sequence[Finding]) -> list[Finding]:
    """Check that `stop_at_tool_names` names existing tools, if every toolkit was opened."""
    if problems(found):
        return []
    known = {tool.name for tool in tools}
    return [
        warning("agent", f"stop_at_tool_names: there is no tool {name!r}")
        for name in agent.stop_at_tool_names
        if name not in known
    ]


def _in_clear(about: str, toolkit: Toolkit) -> list[Finding]:
    if not isinstance(toolkit, McpToolkit) or toolkit.mcp_transport == "stdio":
        return []
    parts = urlsplit(toolkit.config.url or "")
    secret = toolkit.config.headers or "@" in parts.netloc or parts.query
    if parts.scheme == "https" or not secret or is_loopback(parts.hostname or ""):
        return []
    return [warning(about, f"its headers are sent to {parts.hostname} unencrypted", "use https://")]


async def _nobody(model: ModelConfig) -> Callable[[Scope], Chat]:
    """Return a stand-in for a model that this check never calls."""
    await asyncio.sleep(0)

    def ask(scope: Scope) -> Chat:
        raise AssertionError("no tool is called")

    return ask
