"""A server over streamable HTTP: its headers, its sessions, its refusals and its deaths."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from grpo_practice.config.schema.tools import McpToolkit
from grpo_practice.core.errors import ConfigError, EndpointRefusedError
from grpo_practice.rollout.tools import ToolError
from tests.late import Late
from tests.rollout.tools.fakes import SCOPE, FakeLedger, box
from tests.rollout.tools.mcp.kits import ask, opened
from tests.rollout.tools.mcp.test_stateful import OTHER

if TYPE_CHECKING:
    import uvicorn
    from mcp.server import mcpserver
else:
    uvicorn = Late("uvicorn")
    mcpserver = Late("mcp.server.mcpserver")

TOKEN = "Bearer tkn-4711-of-nobody"


@dataclass
class Served:
    """A server that runs, and what it was asked."""

    port: int = 0
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Method and `mcp-session-id` of each request."""
    refuse: int = 0
    """Answer with this status."""
    legacy: bool = False
    """Speak the protocol of 2025 alone, which has sessions."""
    counts: dict[str, int] = field(default_factory=dict)

    def kit(self, **more: Any) -> McpToolkit:
        config = {"url": f"http://127.0.0.1:{self.port}/mcp", "headers": {"authorization": TOKEN}}
        given = {"name": "web", "mode": "mcp", "mcp_transport": "streamable_http"}
        return McpToolkit.model_validate(given | {"config": config} | more)


def server_of(seen: Served) -> "mcpserver.MCPServer":
    server = mcpserver.MCPServer("http-teller", version="2", log_level="CRITICAL")

    @server.tool()
    async def count(n: int, ctx: mcpserver.Context[Any, Any]) -> str:
        """Counts in a session."""
        assert ctx.headers is not None
        key = ctx.headers.get("mcp-session-id", "")
        seen.counts[key] = seen.counts.get(key, 0) + n
        await asyncio.sleep(0.01)
        return str(seen.counts[key])

    return server


def asgi_of(app: Any, seen: Served) -> Callable[..., Awaitable[None]]:
    """The app, for those who have the token."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            headers = {k.decode(): v.decode() for k, v in scope["headers"]}
            seen.asked.append((scope["method"], headers.get("mcp-session-id", "")))
            newer = headers.get("mcp-protocol-version", "").startswith("2026")
            status = seen.refuse or (400 if seen.legacy and newer else 0)
            status = status or (401 if headers.get("authorization") != TOKEN else 0)
            if status:
                await send({"type": "http.response.start", "status": status, "headers": []})
                await send({"type": "http.response.body", "body": b""})
                return
        await app(scope, receive, send)

    return answer


@asynccontextmanager
async def served(seen: Served, **how: Any) -> AsyncIterator[Served]:
    app = asgi_of(server_of(seen).streamable_http_app(**how), seen)
    config = uvicorn.Config(
        app, host="127.0.0.1", port=seen.port, log_level="critical", ws="none", lifespan="on"
    )
    config.timeout_graceful_shutdown = 1
    running = uvicorn.Server(config)
    running.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(running.serve())
    while not running.started:  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.01)
    seen.port = running.servers[0].sockets[0].getsockname()[1]
    try:
        yield seen
    finally:
        running.should_exit = running.force_exit = True
        with suppress(asyncio.CancelledError):
            await task


@pytest.mark.long_after(1)
@pytest.mark.parametrize("legacy", [True, False])
async def test_a_server_that_comes_back_is_used_again(legacy: bool) -> None:
    seen = Served(legacy=legacy)
    async with served(seen):
        kit = seen.kit()
        context = opened(kit)
        tools = await context.__aenter__()
        assert await ask(tools["count"], n=1)
    try:
        async with served(seen):  # it knows nothing of us
            assert await ask(tools["count"], n=1) == ("1" if legacy else "2")
            assert bool(seen.asked[-1][1]) == legacy
    finally:
        await context.__aexit__(None, None, None)


async def test_a_server_that_stays_away_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpo_practice.rollout.tools.mcp.server.WAITS_S", (0.0, 0.1))
    seen = Served()
    async with served(seen):
        context = opened(seen.kit())
        tools = await context.__aenter__()
    try:
        with pytest.raises(ToolError):
            await ask(tools["count"], n=1)
        with pytest.raises(EndpointRefusedError, match="connection attempts failed"):
            await ask(tools["count"], n=1)
    finally:
        await context.__aexit__(None, None, None)


async def test_a_stateful_server_has_a_session_for_each_rollout() -> None:
    async with served(Served()) as seen, opened(seen.kit(stateful=True)) as tools:
        all_of = box(*tools.values(), ledger=FakeLedger())
        async with all_of.open(SCOPE) as mine, all_of.open(OTHER) as other:
            counts = [await at("count", '{"n": 2}') for at in (mine, mine, other)]
            assert [c.text for c in counts] == ["2", "4", "2"]
        ended = {session for method, session in seen.asked if method == "DELETE"}
    assert len(ended) == 3  # the one that listed, too


async def test_a_server_without_sessions_cannot_be_stateful() -> None:
    async with served(Served(), stateless_http=True) as seen:
        with pytest.raises(ConfigError, match="creates no sessions"):
            async with opened(seen.kit(stateful=True)):
                pass
