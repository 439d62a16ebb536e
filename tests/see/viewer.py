"""A viewer on loopback, and a client that reads its pages."""

import re
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path
from urllib.parse import unquote, urlencode

import aiohttp
from yarl import URL

from grpo_practice.chat_server.server import listening
from grpo_practice.see.server import Door, application
from tests.see.test_report import Page


@dataclass
class Viewer:
    """Pages of a database, and who looks at them."""

    origin: str
    door: Door
    session: aiohttp.ClientSession
    failures: list[Exception] = field(default_factory=list)

    @property
    def base(self) -> str:
        """Address below which the pages lie."""
        return f"{self.origin}/{self.door.token}"

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
async def viewing(path: Path) -> AsyncIterator[Viewer]:
    """Show the pages of a database for the block."""
    door, failures = Door(), list[Exception]()
    with ThreadPoolExecutor(4) as readers:
        app = application(path, door, readers, set(), unexpected=failures.append)
        async with listening(app) as port, aiohttp.ClientSession() as session:
            yield Viewer(f"http://127.0.0.1:{port}", door, session, failures)


class Gate:
    """A wait in one thread that another thread, or a test, ends."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.opened.wait(600)
