"""Pages of the viewer and of a report, taken apart."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import aiohttp
from typing_extensions import override
from yarl import URL

from grpo_practice import Workspace
from tests.contract.project import running

VOID = {"meta", "link", "br", "input", "line", "circle", "rect", "wbr"}


class Page(HTMLParser):
    """A page: its elements, the text that is seen, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.attributes = set[str](), list[tuple[str, str | None]]()
        self.ids, self.links, self.open = list[str](), list[str](), list[str]()
        self.text, self.policy, self.style = "", "", ""
        self.headings = list[int]()
        self.feed(text)
        self.close()
        assert self.open == [], "each element is closed"

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        given = dict(attrs)
        if tag == "meta" and given.get("http-equiv"):
            self.policy = given["content"] or ""
        if tag == "a":
            self.links.append(given["href"] or "")
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if "id" in given:
            self.ids.append(given["id"] or "")
        if tag not in VOID:
            self.open.append(tag)

    @override
    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    @override
    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.text += data


@dataclass
class Viewer:
    """Pages of a database, and who looks at them."""

    report: Any
    session: aiohttp.ClientSession
    failures: list[str] = field(default_factory=list)
    """Defects that were said."""

    @property
    def url(self) -> str:
        """Address that is told, with the token."""
        url: str = self.report.url
        return url

    @property
    def token(self) -> str:
        return self.url.split("/")[3]

    @property
    def origin(self) -> str:
        return self.url.removesuffix(f"/{self.token}/")

    @property
    def base(self) -> str:
        """Address below which the pages lie."""
        return self.url.removesuffix("/")

    async def get(self, path: str, **values: object) -> tuple[int, str]:
        """Return the status and the text of a page."""
        given = {name: value for name, value in values.items() if value is not None}
        url = f"{self.base}{path}" + (f"?{urlencode(given)}" if given else "")
        # As it stands: a browser's own reading of `..` would come before ours.
        async with self.session.get(URL(url, encoded=True)) as response:
            return response.status, await response.text()

    async def page(self, path: str, **values: object) -> Page:
        """Return a page that is there, taken apart."""
        status, text = await self.get(path, **values)
        assert (status, self.failures) == (200, []), (path, values, unescape(text)[-400:])
        return Page(text)

    async def all_pages(self, path: str, **given: object) -> list[str]:
        """Return the links to rollouts on all pages of a list, in order."""
        found = list[str]()
        while True:
            status, text = await self.get(path, **given)
            assert (status, self.failures) == (200, [])
            found += [link for link in Page(text).links if link.startswith("./rollout?")]
            more = re.search(r'rel="next" href="[^"]*after=([^"&]+)', text)
            if more is None:
                return found
            given["after"] = unquote(more[1])


@asynccontextmanager
async def viewing(path: Path, *, open_browser: bool = False) -> AsyncIterator[Viewer]:
    """Show the pages of a database for the block."""
    said = list[str]()

    def notice(event: Any) -> None:
        said.append(event.text)

    begin = partial(Workspace(path).view_async, port=0, open_browser=open_browser, on_event=notice)
    async with (
        running(lambda ready: begin(on_ready=ready)) as viewed,
        aiohttp.ClientSession() as session,
    ):
        yield Viewer(viewed, session, said)


async def crawl(viewer: Viewer, *begin: str) -> dict[str, Page]:
    """Return each page that links lead to, one of each kind of list and filter."""
    todo, seen = ["/", *begin], dict[str, Page]()
    kinds = dict[tuple[str, ...], int]()
    while todo:
        url = todo.pop()
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query))
        kind = (parts.path, *given, given.get("only", ""), given.get("sort", ""))
        if url in seen or kinds.get(kind, 0) >= 2 or parts.path in ("/style.css", "/icon.svg"):
            continue
        kinds[kind] = kinds.get(kind, 0) + 1
        page = seen[url] = await viewer.page(parts.path, **given)
        todo += [link.removeprefix(".") for link in page.links if not link.startswith("#")]
    return seen


def is_well_made(page: Page) -> None:
    """Fail for a page that scripts, styles or other hosts could act in, or a reader be lost in."""
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(page.headings)), page.headings
    assert len(page.ids) == len(set(page.ids))
    names = {name for name, _ in page.attributes}
    assert not [name for name in names if name.startswith("on") or name == "style"]
    assert not page.tags & {"iframe", "object", "embed", "img", "base", "style"}
    sources = [value for name, value in page.attributes if name == "src"]
    assert sources == ["./htmx.js"]
    assert all(re.match(r"\./(?!/)|#", link) for link in page.links), page.links
    assert "skip" in [value for name, value in page.attributes if name == "class"]
