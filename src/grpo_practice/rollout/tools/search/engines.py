"""Search engines and remote page readers: Serper, Jina search, Jina's reader."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from grpo_practice.rollout.tools import ToolError
from grpo_practice.rollout.tools.search.page import (
    Banned,
    RefusedError,
    SearchHit,
    WebPage,
    found_at,
    page_url,
)
from grpo_practice.rollout.tools.search.service import Service


class Engine(Protocol):
    """A search engine for the web."""

    async def search(self, query: str, n: int) -> list[SearchHit]:
        """Return at most `n` results, best first.

        Raises:
            ToolError: The search failed; the message is for a model.
            EndpointRefusedError: The engine refuses all requests.
        """
        ...


class PageReader(Protocol):
    """A reader of web pages."""

    @property
    def cost_micro(self) -> int | None:
        """Cost of one page in micro-dollars; None if unknown."""
        ...

    async def read(self, url: str) -> WebPage:
        """Return the page as text.

        Raises:
            ToolError: The page is forbidden or unreadable; the message is for a model.
            EndpointRefusedError: The service behind the reader refuses all requests.
        """
        ...


@dataclass(frozen=True, slots=True)
class Serper:
    """Google search by Serper."""

    service: Service
    url: str
    params: Mapping[str, Any]

    async def search(self, query: str, n: int) -> list[SearchHit]:
        """Search the web; see `Engine`."""
        asked = {"q": query, "num": n, **self.params}
        body = await self.service.ask("POST", f"{self.url}/search", json=asked)
        return _readable_hits(body.get("organic"), "link", "snippet")[:n]


@dataclass(frozen=True, slots=True)
class JinaSearch:
    """Jina search without the text of the pages, which is cheaper."""

    service: Service
    url: str
    params: Mapping[str, Any]

    async def search(self, query: str, n: int) -> list[SearchHit]:
        """Search the web; see `Engine`."""
        asked = {"q": query, "num": str(n), **_as_texts(self.params)}
        headers = {"X-Respond-With": "no-content"}
        body = await self.service.ask("GET", f"{self.url}/", params=asked, headers=headers)
        return _readable_hits(body.get("data"), "url", "description")[:n]


@dataclass(frozen=True, slots=True)
class JinaReader:
    """Jina's page reader."""

    service: Service
    url: str
    params: Mapping[str, Any]
    headers: Mapping[str, Any]
    banned: Banned
    chars: int
    """Maximum length of a page's text, in characters."""
    cost_micro: int | None

    async def read(self, url: str) -> WebPage:
        """Read a page; see `PageReader`. The address it redirects to is checked as well."""
        asked = self.banned.check(page_url(url))
        what = {**self.params, "url": str(asked)}
        body = await self.service.ask(
            "POST", f"{self.url}/", json=what, headers=_as_texts(self.headers)
        )
        data = body.get("data")
        text = data.get("content") if isinstance(data, dict) else None
        if not isinstance(text, str) or not isinstance(data, dict):
            raise ToolError("the reader found no text there")
        led = data.get("url")
        try:
            at = self.banned.check(page_url(led)) if isinstance(led, str) else asked
        except RefusedError as e:  # its message may quote text from the web
            raise ToolError(f"the page leads to another one: {e.reason}") from e
        title = data.get("title")
        whole = f"# {title}\n\n{text}" if isinstance(title, str) and title else text
        return WebPage(str(at), whole[: self.chars], len(whole) <= self.chars)


def _readable_hits(results: object, link: str, snippet: str) -> list[SearchHit]:
    """Return the results whose address can be read as a page."""
    found = []
    for result in results if isinstance(results, list) else ():
        values = result if isinstance(result, dict) else {}
        url, title, text = (values.get(key) for key in (link, "title", snippet))
        if isinstance(url, str) and found_at(url) is not None:
            said = [t if isinstance(t, str) else "" for t in (title, text)]
            found.append(SearchHit(said[0], url, said[1]))
    return found


def _as_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Format values for headers and queries: `true`, not `True`."""
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in values.items()}
