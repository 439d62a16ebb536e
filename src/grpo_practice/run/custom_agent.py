"""The user's own agent: found by the name in a config, checked in advance, and opened."""

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_practice.config.schema.agent import AgentConfig, ProxyConfig
from grpo_practice.core.errors import AgentError
from grpo_practice.core.processes import cores
from grpo_practice.core.text import LOOPBACK, count
from grpo_practice.core.user_code import (
    STDOUT_TO_STDERR,
    SharedChange,
    is_async,
)
from grpo_practice.rollout.agents import Agent
from grpo_practice.run.own_code import command_of, load_function, source_of

if TYPE_CHECKING:
    from grpo_practice.rollout.agents.custom_agents import Program
    from grpo_practice.rollout.chat_server.proxy import Proxy


SHOWN = 8
"""Maximum number of cluster nodes listed in a notice."""


@asynccontextmanager
async def open_own(
    config: AgentConfig,
    folder: Path,
    notice: Callable[[str], None],
    function: Callable[..., Any] | None = None,
) -> AsyncIterator[Agent]:
    """Open the user's program and its model endpoint for the duration of the block.

    Requests from the program to this endpoint bypass proxies set in the environment. Paths in the
    config are relative to `folder`. `function` is the agent itself if it is an object in this
    process.

    Raises:
        ConfigError: The program cannot be found or loaded.
    """
    from grpo_practice.rollout.agents.command import CommandProgram
    from grpo_practice.rollout.agents.custom_agents import CustomAgent, Whereabouts
    from grpo_practice.rollout.agents.programs import LOADING_S
    from grpo_practice.rollout.agents.slots import Room
    from grpo_practice.run.program_address import open_proxy

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
        # If more programs compute than there are cores, they only delay each other. A function in
        # this process needs no such limit.
        if computing is None and workers != 0:
            computing = cores()
        if config.proxy.url is not None:
            await _look(proxy, config.proxy.url, notice)
        # A worker imports the user's modules before its first question, which may take long.
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
    """Open the program on a Ray cluster, after checking all nodes."""
    from grpo_practice.rollout.agents.custom_agents import CustomAgent, Whereabouts
    from grpo_practice.rollout.agents.slots import Room
    from grpo_practice.run.program_address import looked_at
    from grpo_practice.run.ray_agent import open_ray

    program = await stack.enter_async_context(open_ray(config, folder))
    with looked_at(proxy) as (invited, model):
        took_s = await program.look(invited, model)
    nodes = [f"{node} ({1000 * seconds:.0f} ms to its model)" for node, seconds in took_s.items()]
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    room = count(program.capacity, "program")
    notice(f"the agent plays on Ray, with room for {room}: {', '.join(nodes[:SHOWN])}{more}")
    # A program keeps its place on a node even while it waits for its model. Without this limit,
    # programs would wait for a place while their own time limit runs.
    places = min(config.concurrency or program.capacity, program.capacity)
    where = Whereabouts(begins_within_s=inf)  # other users may occupy the cluster
    return CustomAgent(program, proxy, notice, Room(places), where)


async def _look(proxy: "Proxy", url: str, notice: Callable[[str], None]) -> None:
    """Emit a notice if a configured address is not reachable from here; programs may reach it."""
    from grpo_practice.run.program_address import seconds_to

    try:
        await seconds_to(proxy)
    except AgentError as e:
        notice(f"agent.proxy.url {url} does not lead here from this machine: {e}")


async def _open_function(
    stack: AsyncExitStack,
    config: AgentConfig,
    folder: Path,
    notice: Callable[[str], None],
    function: Callable[..., Any] | None,
) -> tuple["Program", int]:
    """Return a function as a program, with its number of worker processes (0: this process)."""
    from grpo_practice.rollout.agents.programs import FunctionProgram, WorkerProgram

    name = config.function or ""
    # A print in the user's function must not end up in the output of the command, such as --json.
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
    """Let a function's HTTP clients reach this machine without a proxy while the block runs."""
    before = {name: os.environ.get(name) for name in ("NO_PROXY", "no_proxy")}
    known = [text for text in before.values() if text]
    for name in before:
        # Set both spellings, because client libraries differ in which one they read.
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
