"""The search toolkit: the engine, the page reader, and the tools that models call.

This module is not part of the package's `__init__`, because the workers that read pages import the
package and start half a second faster without it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import ClientSession
from yarl import URL

from grpo_practice.config.schema.tools import SearchConfig
from grpo_practice.core.calls import Chat, Scope
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.fences import Fences
from grpo_practice.core.text import CHARS_PER_TOKEN
from grpo_practice.llm.endpoint import environment_proxy, refuse_socks
from grpo_practice.rollout.tools import Tool
from grpo_practice.rollout.tools.search.bounded_body import unread_bodies
from grpo_practice.rollout.tools.search.engines import (
    ReadPage,
    Search,
    jina_reader,
    jina_search,
    serper,
)
from grpo_practice.rollout.tools.search.guard import Guard
from grpo_practice.rollout.tools.search.local import open_local
from grpo_practice.rollout.tools.search.page import Banned
from grpo_practice.rollout.tools.search.qa import search_tool, web_qa_tool
from grpo_practice.rollout.tools.search.service import Service

_SEARCH_S, _READ_S = 30.0, 60.0


@asynccontextmanager
async def open_search(
    config: SearchConfig, ask: Callable[[Scope], Chat], fences: Fences, guard: Guard | None = None
) -> AsyncIterator[list[Tool]]:
    """Yield the two tools; close their connections after the block.

    Requests to the model that answers questions from pages go through the ledger. The guard decides
    which addresses the local reader may connect to; tests pass a guard that permits their own
    server.

    Raises:
        ConfigError: A banned site is not a domain, or a service's proxy is not supported.
    """
    try:
        banned = Banned(config.search_banned_sites)
    except ValueError as e:
        raise ConfigError(f"search_banned_sites: {e}", hint="name domains: example.com") from e
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(unread_bodies())
        find, found_by = _engine(config, session)
        read: ReadPage
        if config.crawl_engine == "local":
            chars = config.summary_token_limit * CHARS_PER_TOKEN
            local = await stack.enter_async_context(open_local(guard or Guard(), banned, chars))
            read, read_by, read_micro = local.read, "local reader", _micro(0)
        else:
            read, read_by = _jina_reader(config, session, banned)
            read_micro = _micro(config.crawl_price_usd)
        yield [
            search_tool(
                find,
                banned,
                _micro(config.search_price_usd),
                fences,
                runs_in=found_by,
                limit=asyncio.Semaphore(config.at_once),
            ),
            web_qa_tool(
                read,
                ask,
                read_micro,
                fences,
                runs_in=read_by,
                limit=asyncio.Semaphore(config.at_once),
            ),
        ]


def _engine(config: SearchConfig, session: ClientSession) -> tuple[Search, str]:
    key = config.search_api_key.get_secret_value() if config.search_api_key else ""
    url = _reachable(config.search_address)
    if config.search_engine == "google":
        headers = {"X-API-KEY": key} if key else {}
        service = Service("Serper", session, headers, _hint("SERPER_API_KEY"), _SEARCH_S)
        return serper(service, url, config.search_params), _host(url)
    service = Service("Jina search", session, _jina(key), _hint("JINA_API_KEY"), _SEARCH_S)
    return jina_search(service, url, config.search_params), _host(url)


def _jina_reader(
    config: SearchConfig, session: ClientSession, banned: Banned
) -> tuple[ReadPage, str]:
    key = config.crawl_api_key.get_secret_value() if config.crawl_api_key else ""
    url = _reachable(config.crawl_address)
    service = Service("Jina's reader", session, _jina(key), _hint("JINA_API_KEY"), _READ_S)
    chars = config.summary_token_limit * CHARS_PER_TOKEN
    params, headers = config.crawl_params, config.crawl_jina_params
    return jina_reader(service, url, params, headers, banned, chars), _host(url)


def _reachable(address: str) -> str:
    """Return the URL without its final slash; raise ConfigError if a SOCKS proxy is set for it."""
    url = address.rstrip("/")
    refuse_socks(url, environment_proxy(url))
    return url


def _jina(key: str) -> dict[str, str]:
    return {"Accept": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})


def _hint(name: str) -> str:
    return f"check {name} and the credits of its account, then run the same command again to resume"


def _host(url: str) -> str:
    return URL(url).host or url


def _micro(usd: float | None) -> int | None:
    return None if usd is None else round(usd * 1_000_000)
