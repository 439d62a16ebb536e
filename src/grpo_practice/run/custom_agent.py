"""The user's own agent: found by its name in a config, opened here or on a Ray cluster.

Programs reach their model at an address that this module opens, shares and checks. Import this
module only where the user's own agent may play, because other runs need no server.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from grpo_practice.config.schema.agent import AgentConfig, ProxyConfig
from grpo_practice.core.calls import Reply
from grpo_practice.core.errors import AgentError, ConfigError
from grpo_practice.core.processes import cores
from grpo_practice.core.text import LOOPBACK, count
from grpo_practice.core.user_code import STDOUT_TO_STDERR, SharedChange, is_async
from grpo_practice.rollout.agents import Agent, program_endpoint
from grpo_practice.rollout.agents.command import CommandProgram
from grpo_practice.rollout.agents.custom_agents import CustomAgent, Log, Program, Whereabouts
from grpo_practice.rollout.agents.on_node import CommandSource, File, Source
from grpo_practice.rollout.agents.programs import LOADING_S, FunctionProgram, WorkerProgram
from grpo_practice.rollout.agents.ray_cluster import ClusterSettings
from grpo_practice.rollout.agents.ray_program import RayProgram
from grpo_practice.rollout.agents.slots import Room
from grpo_practice.rollout.chat_server.proxy import Guest, Invitation, Listening, Proxy
from grpo_practice.rollout.chat_server.server import ChatRequest, RequestError
from grpo_practice.rollout.chat_server.tls import server_context
from grpo_practice.run.own_code import command_of, files_of, load_function, source_of

SHOWN = 8
"""Maximum number of cluster nodes listed in a notice."""


@asynccontextmanager
async def open_own(
    config: AgentConfig,
    folder: Path,
    notice: Callable[[str], None],
    function: Callable[..., Any] | None = None,
    log: Log | None = None,
) -> AsyncIterator[Agent]:
    """Open the user's program and its model endpoint for the duration of the block.

    Requests from the program to this endpoint bypass proxies set in the environment. Paths in the
    config are relative to `folder`. `function` is the agent itself if it is an object in this
    process. `log` stores the tool calls that the program logs.

    Raises:
        ConfigError: The program cannot be found or loaded.
    """
    async with AsyncExitStack() as stack:
        proxy = await stack.enter_async_context(open_proxy(config.proxy, folder))
        if config.executor == "ray":
            program, room, where = await _open_ray(stack, config, folder, proxy, notice)
            yield CustomAgent(program, proxy, notice, room, where, log)
            return
        if config.function is not None:
            program, workers = await _open_function(stack, config, folder, notice, function)
        else:
            # A command starts a process for each rollout, so it has no workers to wait for.
            program, workers = CommandProgram(command_of(config, folder), folder), None
            stack.callback(program.close)
        computing = config.concurrency
        # If more programs compute than there are cores, they only delay each other. A function in
        # this process needs no such limit.
        if computing is None and workers != 0:
            computing = cores()
        if config.proxy.url is not None:
            try:
                await seconds_to(proxy)
            except AgentError as e:  # only a notice, since the programs may run elsewhere
                notice(
                    f"agent.proxy.url {config.proxy.url} does not reach this program from this"
                    f" machine: {e}"
                )
        # A worker imports the user's modules before its first question, which may take a long time.
        begins_within_s = LOADING_S if workers else None
        where = Whereabouts(workers, config.proxy != ProxyConfig(), begins_within_s)
        yield CustomAgent(program, proxy, notice, Room(workers, computing, notice), where, log)


async def _open_ray(
    stack: AsyncExitStack,
    config: AgentConfig,
    folder: Path,
    proxy: Proxy,
    notice: Callable[[str], None],
) -> tuple[Program, Room, Whereabouts]:
    """Open the program on a Ray cluster, after checking all nodes."""
    program = await stack.enter_async_context(open_ray(config, folder))
    with looked_at(proxy) as (invited, model):
        took_s = await program.probe_nodes(invited, model)
    nodes = [f"{node} ({1000 * seconds:.0f} ms to its model)" for node, seconds in took_s.items()]
    more = f" and {len(nodes) - SHOWN} more" if len(nodes) > SHOWN else ""
    room = count(program.capacity, "program")
    notice(f"the agent plays on Ray, with room for {room}: {', '.join(nodes[:SHOWN])}{more}")
    # A program keeps its place on a node even while it waits for its model. Without this limit,
    # programs would wait for a place while their own time limit runs.
    places = min(config.concurrency or program.capacity, program.capacity)
    where = Whereabouts(begins_within_s=inf)  # other users may occupy the cluster
    return program, Room(places), where


async def _open_function(
    stack: AsyncExitStack,
    config: AgentConfig,
    folder: Path,
    notice: Callable[[str], None],
    function: Callable[..., Any] | None,
) -> tuple[Program, int]:
    """Return a function as a program, with its number of worker processes (0: this process)."""
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


@asynccontextmanager
async def open_ray(config: AgentConfig, folder: Path) -> AsyncIterator[RayProgram]:
    """Open the program while the block runs; raise ConfigError if it cannot be started."""
    of = config.ray
    assert of is not None, "the config checks it"
    environment = _absolute(of.runtime_env, folder)
    settings = ClusterSettings(of.address, of.num_cpus, of.resources, environment)
    program = RayProgram(_source(config, folder), settings)
    await program.start(cores())
    try:
        yield program
    finally:
        await program.close()


def _absolute(runtime_env: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the runtime environment with its paths, which are relative to `folder`, absolute."""
    found = dict(runtime_env)
    if isinstance(text := found.get("working_dir"), str):
        found["working_dir"] = _in(folder, text)
    if isinstance(modules := found.get("py_modules"), list):
        found["py_modules"] = [_in(folder, str(module)) for module in modules]
    return found


def _in(folder: Path, text: str) -> str:
    return text if "://" in text else str(folder / text)


def _source(config: AgentConfig, folder: Path) -> Source:
    if config.function is not None:
        return source_of(config.function, folder)
    files = files_of(config, folder)
    for name, path in files:
        if not path.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(
                f"agent.command: {name} is outside the config's folder, so the nodes do not get it",
                hint="put it next to the config, or use an absolute path that exists on the nodes",
            )
    sent = (File(name, path.read_bytes(), path.stat().st_mode) for name, path in files)
    return CommandSource(config.command or (), tuple(sent))


@dataclass(slots=True)
class _Shared:
    """A proxy on a fixed port that stays open while it has users."""

    proxy: Proxy | None = None
    users: int = 0
    opened: AsyncExitStack = field(default_factory=AsyncExitStack)
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)


# Kept in the module, because the agents of several evaluations are opened independently.
_shared = dict[tuple[asyncio.AbstractEventLoop, ProxyConfig, Path], _Shared]()


@asynccontextmanager
async def open_proxy(config: ProxyConfig, folder: Path) -> AsyncIterator[Proxy]:
    """Open the address while the block runs; agents of one evaluation share a fixed port's address.

    Raises:
        ConfigError: The certificate cannot be used, or the program cannot listen at the address.
    """
    if not config.port:
        async with _served(config, folder) as proxy:
            yield proxy
        return
    # A server belongs to the event loop that opened it.
    key = (asyncio.get_running_loop(), config, folder)
    # Several evaluations may run together, but only one server can listen on a fixed port.
    shared = _shared.setdefault(key, _Shared())
    # Counted before the first await, so that a user who leaves meanwhile does not close the proxy.
    shared.users += 1
    try:
        # A second agent may arrive while the first one is still opening the proxy.
        async with shared.changing:
            if shared.proxy is None:
                shared.proxy = await shared.opened.enter_async_context(_served(config, folder))
        yield shared.proxy
    finally:
        shared.users -= 1
        if not shared.users:
            del _shared[key]
            await shared.opened.aclose()


@asynccontextmanager
async def _served(config: ProxyConfig, folder: Path) -> AsyncIterator[Proxy]:
    tls = None
    if config.tls_cert and config.tls_key:
        name = config.host if config.url is None else None
        tls = server_context(folder / config.tls_cert, folder / config.tls_key, name)
    proxy = Proxy(Listening(config.host, config.port, config.url, tls))
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(proxy.served())
        except OSError as e:
            where = f"{config.host}:{config.port}"
            raise ConfigError(
                f"agent.proxy: cannot listen at {where}: {e.strerror or e}",
                hint="set another agent.proxy.port, or agent.proxy.host to one of this machine's",
            ) from e
        yield proxy


@contextmanager
def looked_at(proxy: Proxy) -> Iterator[tuple[Invitation, str]]:
    """Yield an address that belongs to no rollout, and the name of the model offered there."""
    model = f"reached-{secrets.token_hex(4)}"
    with proxy.address(Guest(model, _nothing)) as invited:
        yield invited, model


async def seconds_to(proxy: Proxy) -> float:
    """Return the duration in seconds of a request from here; raise AgentError if it fails."""
    with looked_at(proxy) as (invited, model):
        return await asyncio.to_thread(
            program_endpoint.reach, invited.base_url, invited.token, model
        )


async def _nothing(request: ChatRequest) -> Reply:
    await asyncio.sleep(0)
    raise RequestError("this address only shows that it can be reached; it answers no requests")
