"""The user's own agent: from its name in a config to what plays, checked before it costs."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_practice.agents import Agent
from grpo_practice.app.own_code import command_of, load_function, source_of
from grpo_practice.config.schema.agent import AgentConfig, ProxyConfig
from grpo_practice.errors import AgentError
from grpo_practice.processes import cores
from grpo_practice.text import LOOPBACK, count
from grpo_practice.user_code import (
    STDOUT_TO_STDERR,
    SharedChange,
    is_async,
)

if TYPE_CHECKING:
    from grpo_practice.agents.custom_agents import Program
    from grpo_practice.chat_server.proxy import Proxy


SHOWN = 8
"""Nodes of a cluster that a person is told of."""


@asynccontextmanager
async def open_own(
    config: AgentConfig,
    folder: Path,
    notice: Callable[[str], None],
    function: Callable[..., Any] | None = None,
) -> AsyncIterator[Agent]:
    """Open the user's program, and the address where it asks its model, for the block.

    Proxies of the environment are not between it and this machine. Paths in the config are relative
    to `folder`; the function is given where it is an object of this process.

    Raises:
        ConfigError: The program cannot be had.
    """
    from grpo_practice.agents.command import CommandProgram
    from grpo_practice.agents.custom_agents import CustomAgent, Whereabouts
    from grpo_practice.agents.programs import LOADING_S
    from grpo_practice.agents.room import Room
    from grpo_practice.app.program_address import open_proxy

    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(open_proxy(config.proxy, folder))
        if config.executor == "ray":
            yield await _open_ray(stack, config, folder, proxy, notice)
            return
        if config.function is not None:
            program, workers = await _open_function(stack, config, folder, notice, function)
        else:
            program, workers = CommandProgram(command_of(config, folder), folder), None
            stack.callback(program.close)
        computing = config.concurrency
        if computing is None and workers != 0:
            computing = cores()
        if config.proxy.url is not None:
            await _look(proxy, config.proxy.url, notice)
        begins_within_s = LOADING_S if workers else None
        where = Whereabouts(workers, config.proxy != ProxyConfig(), begins_within_s)
        yield CustomAgent(program, proxy, notice, Room(workers, computing, notice), where)


async def _open_ray(
    stack: AsyncExitStack,
    config: AgentConfig,
    folder: Path,
    proxy: "Proxy",
    notice: Callable[[str], None],
) -> Agent:
    """Open the program on a cluster, whose nodes have all been looked at."""
    from grpo_practice.agents.custom_agents import CustomAgent, Whereabouts
    from grpo_practice.agents.room import Room
    from grpo_practice.app.program_address import looked_at
    from grpo_practice.app.ray_agent import open_ray

    program = await stack.enter_async_context(open_ray(config, folder))
    with looked_at(proxy) as (invited, model):
        took_s = await program.look(invited, model)
    nodes = [f"{node} ({1000 * seconds:.0f} ms to its model)" for node, seconds in took_s.items()]
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    room = count(program.capacity, "program")
    notice(f"the agent plays on Ray, with room for {room}: {', '.join(nodes[:SHOWN])}{more}")
    # A program holds its place on a node also while it waits for its model. One without a place
    # would wait for it in its own time.
    places = min(config.concurrency or program.capacity, program.capacity)
    where = Whereabouts(begins_within_s=inf)  # others may use the cluster
    return CustomAgent(program, proxy, notice, Room(places), where)


async def _look(proxy: "Proxy", url: str, notice: Callable[[str], None]) -> None:
    """Say so where a configured address does not lead here; others may still reach it."""
    from grpo_practice.app.program_address import seconds_to

    try:
        await seconds_to(proxy)
    except AgentError as e:
        notice(f"agent.proxy.url {url} does not lead here, asked from this machine: {e}")


async def _open_function(
    stack: AsyncExitStack,
    config: AgentConfig,
    folder: Path,
    notice: Callable[[str], None],
    function: Callable[..., Any] | None,
) -> tuple["Program", int]:
    """Return the program of a function, and in how many processes it runs; 0 is in this one."""
    from grpo_practice.agents.programs import FunctionProgram, WorkerProgram

    name = config.function or ""
    stack.enter_context(STDOUT_TO_STDERR.entered())
    workers, of_process = config.workers, function is not None
    if function is None:
        function = load_function(name, folder)
    if workers is None:
        workers = 0 if of_process or is_async(function) else cores()
    if not workers:
        stack.enter_context(_NO_DETOUR.entered())
        return FunctionProgram(name, function, notice), 0
    program = WorkerProgram(source_of(name, folder), workers)
    stack.push_async_callback(program.close)
    await program.start()
    return program, workers


@contextmanager
def _no_detour() -> Iterator[None]:
    """Let a function's own client reach this machine without a proxy in between, in the block."""
    before = {name: os.environ.get(name) for name in ("NO_PROXY", "no_proxy")}
    known = [text for text in before.values() if text]
    for name in before:
        # In both spellings: client libraries differ in which they read.
        os.environ[name] = ",".join([*known, LOOPBACK])
    try:
        yield
    finally:
        for name, text in before.items():
            if text is None:
                del os.environ[name]
            else:
                os.environ[name] = text


_NO_DETOUR = SharedChange(_no_detour)
