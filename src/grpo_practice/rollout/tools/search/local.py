"""A page reader in this program: public pages only, with limits on size and time."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import ClientConnectorError, ClientError, ClientResponse, ClientSession
from yarl import URL

from grpo_practice import __version__
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.processes import CannotStartError, Pool, TimedOutError, WorkerDiedError
from grpo_practice.core.text import brief
from grpo_practice.llm.size_limit import ENCODINGS
from grpo_practice.rollout.tools import ToolError
from grpo_practice.rollout.tools.search.bounded_body import body_of, unread_bodies
from grpo_practice.rollout.tools.search.guard import Guard
from grpo_practice.rollout.tools.search.markup import page_text, start_worker
from grpo_practice.rollout.tools.search.page import Banned, RefusedError, WebPage, domain_of

MOST_BYTES = 2 * 1024 * 1024
"""Maximum size of a decompressed page in bytes; the rest is not read."""
LONGEST_TYPE = 200
"""Maximum length of a Content-Type header, in characters."""
TOTAL_S = 20.0
"""Maximum seconds to fetch a page, including redirects and name lookups."""
READ_S = 10.0
"""Maximum seconds to convert a page to text; 2 MB take 2 seconds."""
WORKERS = 2
REDIRECTS = 5
_MARKUP = ("text/html", "application/xhtml+xml", "application/xml", "text/xml")
_OTHERS = {"application": "is a PDF or a program's file"} | {
    kind: f"is {kind}" for kind in ("audio", "font", "image", "video")
}
_HEADERS = {
    "User-Agent": f"grpo-practice/{__version__}",
    "Accept": "text/html, application/xhtml+xml, text/plain;q=0.9, application/json;q=0.8",
    "Accept-Encoding": ENCODINGS,
}


@dataclass(frozen=True, slots=True)
class _Body:
    """The bytes of a response."""

    url: str
    data: bytes
    charset: str | None
    """Charset given in the header, not validated."""
    whole: bool
    is_markup: bool


@dataclass(frozen=True, slots=True)
class LocalReader:
    """Reads pages over connections that a guard permits."""

    session: ClientSession
    guard: Guard
    banned: Banned
    workers: Pool
    chars: int
    """Maximum length of a page's text, in characters."""
    total_s: float = TOTAL_S

    async def read(self, url: str) -> WebPage:
        """Return the page as text.

        Raises:
            ToolError: The page is forbidden or unreadable; the message is for a model.
        """
        try:
            async with asyncio.timeout(self.total_s):
                body = await self._followed(url)
        except TimeoutError as e:
            raise ToolError(f"the page did not arrive within {self.total_s:g} s") from e
        except (ClientError, OSError, ValueError) as e:
            known = isinstance(e, ClientConnectorError)  # others may quote the server
            why = brief(str(e), 200) if known else type(e).__name__
            raise ToolError(f"the page cannot be read: {why}") from e
        given = (body.data, body.charset, body.url, self.chars, body.is_markup)
        try:  # outside the page's time limit: the first page waits for the workers
            # Parse in a worker process: no time limit could stop a thread.
            text, complete = await self.workers.run(page_text, *given)
        except (TimedOutError, WorkerDiedError, MemoryError, RecursionError) as e:
            raise ToolError("the page is too hard to read") from e
        except CannotStartError as e:
            raise ToolError(
                f"the page cannot be read, because no worker process could be started: {e}"
            ) from e
        return WebPage(body.url, text, body.whole and complete)

    async def _followed(self, asked: str) -> _Body:
        """Return the page after redirects; each hop is checked like a requested URL."""
        text = asked
        for hop in range(REDIRECTS + 1):
            try:
                page = await self._one(text)
            except RefusedError as e:
                if hop == 0:
                    raise
                # its message may quote text from the web
                raise ToolError(f"the page redirects to another one: {e.reason}") from e
            if isinstance(page, _Body):
                return page
            text = page
        raise ToolError(f"the page was not reached within {REDIRECTS} redirects")

    async def _one(self, text: str) -> _Body | str:
        """Return the page at a URL, or the URL it redirects to."""
        url = self.banned.check(self.guard.url(text))
        async with self.session.get(url, headers=_HEADERS, allow_redirects=False) as response:
            to = response.headers.get("location", "")
            if response.status in (301, 302, 303, 307, 308) and to:
                return str(url.join(URL(to)))
            return await self._body(url, response)

    async def _body(self, url: URL, response: ClientResponse) -> _Body:
        if response.status >= 300:
            raise ToolError(f"{domain_of(url)} answers with HTTP status {response.status}")
        if len(response.headers.get("content-type", "")) > LONGEST_TYPE:
            # The library's parser takes quadratic time.
            raise ToolError("the page cannot be read: its content type is too long")
        kind = response.content_type if "content-type" in response.headers else "text/html"
        if kind not in _MARKUP and not kind.startswith("text/") and kind != "application/json":
            shown = _OTHERS.get(kind.partition("/")[0], "is something else")
            raise ToolError(f"only pages of text are read here, and this {shown}")
        data, whole = await body_of(response, MOST_BYTES)
        try:
            charset = response.charset
        except (LookupError, ValueError):
            charset = None
        return _Body(str(url), data, charset, whole, kind in _MARKUP)


@asynccontextmanager
async def open_local(
    guard: Guard, banned: Banned, chars: int, *, total_s: float = TOTAL_S
) -> AsyncIterator[LocalReader]:
    """Yield a reader with its own connections, each used for one request.

    Raises:
        ConfigError: The workers that convert pages cannot start.
    """
    workers = Pool(
        start_worker, workers=WORKERS, timeout_s=READ_S, preload=[start_worker.__module__]
    )
    async with unread_bodies(
        # No proxy: the guard could not check the address that a proxy connects to.
        resolver=guard,
        # Cache neither names nor connections: each request must pass the guard.
        use_dns_cache=False,
        force_close=True,
        socket_factory=guard.socket,
    ) as session:
        try:
            await workers.start()  # start now: by the first page, rollouts have already cost money
        except CannotStartError as e:
            raise ConfigError(f"the workers that read pages cannot start: {e}", hint=e.hint) from e
        try:
            yield LocalReader(session, guard, banned, workers, chars, total_s)
        finally:
            await workers.close()
