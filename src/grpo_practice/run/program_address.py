"""Address of the model endpoint for the user's programs: opened, shared and checked."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from grpo_practice.config.schema.agent import ProxyConfig
from grpo_practice.core.calls import Reply
from grpo_practice.core.errors import ConfigError
from grpo_practice.rollout.agents import program_endpoint
from grpo_practice.rollout.chat_server.proxy import Guest, Invitation, Listening, Proxy
from grpo_practice.rollout.chat_server.server import ChatRequest, RequestError
from grpo_practice.rollout.chat_server.tls import server_context


@dataclass(slots=True)
class _Shared:
    """A proxy on a fixed port that stays open while it has users."""

    proxy: Proxy | None = None
    users: int = 0
    opened: AsyncExitStack = field(default_factory=AsyncExitStack)
    changing: asyncio.Lock = field(default_factory=asyncio.Lock)


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
            program_endpoint.look, invited.base_url, invited.token, model
        )


async def _nothing(request: ChatRequest) -> Reply:
    await asyncio.sleep(0)
    raise RequestError("this address is looked at, and answers nothing")
