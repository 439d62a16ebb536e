"""Search engines and remote page readers: Serper, Jina search, Jina's reader."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

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

Search = Callable[[str, int], Awaitable[list[SearchHit]]]
"""Returns at most the given number of results for a query, best first.

Raises:
    ToolError: The search failed; the message is for a model.
    EndpointRefusedError: The engine refuses all requests.
"""
ReadPage = Callable[[str], Awaitable[WebPage]]
"""Returns the page at a URL as text.

Raises:
    ToolError: The page is forbidden or unreadable; the message is for a model.
    EndpointRefusedError: The service behind the reader refuses all requests.
"""


def serper(service: Service, url: str, params: Mapping[str, Any]) -> Search:
    """Return Google search by Serper."""

    async def search(query: str, n: int) -> list[SearchHit]:
        asked = {"q": query, "num": n, **params}
        body = await service.ask("POST", f"{url}/search", json=asked)
        return _readable_hits(body.get("organic"), "link", "snippet")[:n]

    return search


def jina_search(service: Service, url: str, params: Mapping[str, Any]) -> Search:
    """Return Jina search without the text of the pages, which is cheaper."""

    async def search(query: str, n: int) -> list[SearchHit]:
        asked = {"q": query, "num": str(n), **_as_texts(params)}
        headers = {"X-Respond-With": "no-content"}
        body = await service.ask("GET", f"{url}/", params=asked, headers=headers)
        return _readable_hits(body.get("data"), "url", "description")[:n]

    return search


def jina_reader(
    service: Service,
    url: str,
    params: Mapping[str, Any],
    headers: Mapping[str, Any],
    banned: Banned,
    chars: int,
) -> ReadPage:
    """Return Jina's page reader, which reads at most `chars` characters of a page."""

    async def read(page: str) -> WebPage:
        asked = banned.check(page_url(page))
        what = {**params, "url": str(asked)}
        body = await service.ask("POST", f"{url}/", json=what, headers=_as_texts(headers))
        data = body.get("data")
        text = data.get("content") if isinstance(data, dict) else None
        if not isinstance(text, str) or not isinstance(data, dict):
            raise ToolError("the reader found no text there")
        # Jina follows redirects itself, so the address where it arrived is checked as well.
        led = data.get("url")
        try:
            at = banned.check(page_url(led)) if isinstance(led, str) else asked
        except RefusedError as e:  # its message may quote text from the web
            raise ToolError(f"the page redirects to another one: {e.reason}") from e
        title = data.get("title")
        whole = f"# {title}\n\n{text}" if isinstance(title, str) and title else text
        return WebPage(str(at), whole[:chars], len(whole) <= chars)

    return read


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
