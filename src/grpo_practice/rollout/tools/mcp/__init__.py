"""Tools from servers that speak the Model Context Protocol."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_practice.core.calls import Scope
from grpo_practice.core.errors import AgentError, ConfigError
from grpo_practice.core.hashing import clean, clean_json
from grpo_practice.core.reaper import Reaper
from grpo_practice.rollout.tools import Output, Tool

if TYPE_CHECKING:
    # Not at run time: workers import this module, and importing the schema takes 0.2 s.
    from grpo_practice.config.schema.tools import McpToolkit
    from grpo_practice.rollout.tools.mcp.result_check import ResultChecker

ToolCall = Callable[[str, Mapping[str, Any]], Awaitable[Output]]
"""Calls a tool by the name that the model uses."""


@asynccontextmanager
async def open_mcp(toolkit: "McpToolkit", folder: Path) -> AsyncIterator[list[Tool]]:
    """Start the server or connect to it, and yield the tools it lists.

    All rollouts share one connection, which is reopened when it is lost. With `stateful`, each
    rollout has its own server process, or its own session if the server is remote. If that process
    or session is lost, the rollout fails, because the state from its earlier calls is lost too. The
    program runs in `folder`, or in the config's `cwd`, which is relative to `folder`.

    Raises:
        ConfigError: The server cannot be reached, or its tools cannot be used.
    """
    try:
        from mcp import Client  # noqa: F401 - older versions lack it
    except ImportError as e:
        raise ConfigError(
            f"toolkits.{toolkit.name} needs the package mcp, version 2",
            hint="pip install 'grpo-practice[mcp]'",
        ) from e
    from grpo_practice.rollout.tools.mcp.result_check import ResultChecker

    for name in ("mcp", "client"):  # keep the library's log messages off the terminal
        logging.getLogger(name).addHandler(logging.NullHandler())
    checker, reaper = ResultChecker(), Reaper()
    try:
        async with _opened(toolkit, folder, checker, reaper) as tools:
            yield tools
    finally:
        reaper.close()
        await checker.close()


@asynccontextmanager
async def _opened(
    toolkit: "McpToolkit", folder: Path, checker: "ResultChecker", reaper: Reaper
) -> AsyncIterator[list[Tool]]:
    from grpo_practice.rollout.tools.mcp.connection import Connection, UnreachableError
    from grpo_practice.rollout.tools.mcp.listing import usable, version_of
    from grpo_practice.rollout.tools.mcp.server import Server
    from grpo_practice.rollout.tools.mcp.transport import reaching

    reach, timeout_s = reaching(toolkit, folder, reaper), toolkit.mcp_client_session_timeout_seconds
    connect = partial(Connection.open, toolkit.name, reach, timeout_s, checker)
    try:
        first = await connect()
    except UnreachableError as e:
        raise ConfigError(f"toolkits.{toolkit.name}: {e}", hint=e.hint) from e
    server = Server(first, connect)
    try:
        listed = usable(toolkit, first.tools)
        original = {name: tool.name for name, tool in listed.items()}
        runs_in = f"mcp {version_of(first.client, toolkit.name)}"

        @asynccontextmanager
        async def session() -> AsyncIterator[ToolCall]:
            try:
                connection = await connect()
            except UnreachableError as e:
                raise AgentError(f"toolkits.{toolkit.name}: {e}") from e
            try:
                yield lambda name, arguments: connection.call_alone(original[name], arguments)
            finally:
                await connection.close()

        async def run(name: str, arguments: Mapping[str, Any], at: Scope) -> Output:
            return await server.call(name, arguments)

        if toolkit.stateful:
            await server.close()  # it only listed the tools
        yield [
            Tool(
                name=name,
                description=clean(tool.description or tool.title or ""),
                parameters=clean_json(tool.input_schema),
                run=partial(run, tool.name),
                version=f"mcp {toolkit.name}",
                runs_in=runs_in,
                session=session if toolkit.stateful else None,
                unlike=_unlike(toolkit),
            )
            for name, tool in listed.items()
        ]
    finally:
        await server.close()


def _unlike(toolkit: "McpToolkit") -> str:
    """Return why a new server may give different results for stored calls, with the remedy."""
    if toolkit.mcp_transport == "stdio" and toolkit.config.workdir is None:
        return (
            "its server keeps state beyond the rollout, such as a file that rollouts share;"
            " to give each rollout its own folder, set `workdir: rollout` under"
            f" toolkits.{toolkit.name}.config"
        )
    return (
        f"the answers of toolkits.{toolkit.name} depend on more than the calls of a rollout"
        " (time, chance, external state); the same command will fail again, but --restart-step"
        " replays the step"
    )
