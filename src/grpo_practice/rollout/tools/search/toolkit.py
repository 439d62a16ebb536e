"""The search toolkit: the engine, the page reader, and the tools that models call.

This module is not part of the package's `__init__`, because the workers that read pages import the
package and start half a second faster without it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from grpo_practice.config.schema.tools import SearchConfig
from grpo_practice.core.calls import Chat, Scope
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.fences import Fences
from grpo_practice.core.text import CHARS_PER_TOKEN
from grpo_practice.llm.endpoint import environment_proxy, refuse_socks
from grpo_practice.rollout.tools import Tool
from grpo_practice.rollout.tools.search.bounded_body import unread_bodies
from grpo_practice.rollout.tools.search.engines import (
    Engine,
    JinaReader,
    JinaSearch,
    PageReader,
    Serper,
)
from grpo_practice.rollout.tools.search.guard import Guard
from grpo_practice.rollout.tools.search.local import open_local
from grpo_practice.rollout.tools.search.page import Banned
from grpo_practice.rollout.tools.search.qa import search_tool, web_qa_tool
from grpo_practice.rollout.tools.search.service import Service

if TYPE_CHECKING:
    from aiohttp import ClientSession

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
        engine, found_by = _engine(config, session)
        reader: PageReader
        if config.crawl_engine == "local":
            chars = config.summary_token_limit * CHARS_PER_TOKEN
            opened = open_local(guard or Guard(), banned, chars)
            reader, read_by = await stack.enter_async_context(opened), "local reader"
        else:
            reader, read_by = _jina_reader(config, session, banned)
        yield [
            search_tool(
                engine,
                banned,
                _micro(config.search_price_usd),
                fences,
                runs_in=found_by,
                slots=asyncio.Semaphore(config.at_once),
            ),
            web_qa_tool(
                reader, ask, fences, runs_in=read_by, slots=asyncio.Semaphore(config.at_once)
            ),
        ]


def _engine(config: SearchConfig, session: "ClientSession") -> tuple[Engine, str]:
    key = config.search_api_key.get_secret_value() if config.search_api_key else ""
    google = config.search_engine == "google"
    url = config.search_address.rstrip("/")
    refuse_socks(url, environment_proxy(url))
    if google:
        headers = {"X-API-KEY": key} if key else {}
        service = Service("Serper", session, headers, _hint("SERPER_API_KEY"), _SEARCH_S)
        return Serper(service, url, config.search_params), _host(url)
    service = Service("Jina search", session, _jina(key), _hint("JINA_API_KEY"), _SEARCH_S)
    return JinaSearch(service, url, config.search_params), _host(url)


def _jina_reader(
    config: SearchConfig, session: "ClientSession", banned: Banned
) -> tuple[PageReader, str]:
    key = config.crawl_api_key.get_secret_value() if config.crawl_api_key else ""
    url = config.crawl_address.rstrip("/")
    refuse_socks(url, environment_proxy(url))
    reader = JinaReader(
        Service("Jina's reader", session, _jina(key), _hint("JINA_API_KEY"), _READ_S),
        url,
        config.crawl_params,
        config.crawl_jina_params,
        banned,
        config.summary_token_limit * CHARS_PER_TOKEN,
        _micro(config.crawl_price_usd),
    )
    return reader, _host(url)


def _jina(key: str) -> dict[str, str]:
    return {"Accept": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})


def _hint(name: str) -> str:
    return f"check {name} and the credits of its account, then run the same command again to resume"


def _host(url: str) -> str:
    from yarl import URL

    return URL(url).host or url


def _micro(usd: float | None) -> int | None:
    return None if usd is None else round(usd * 1_000_000)
