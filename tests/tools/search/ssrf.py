"""What the local reader refuses, and proof that it connected nowhere.

    python -m tests.tools.search.ssrf

prints a line for each form of address, asked for directly and as a redirect. A trap listens on this
machine and counts who comes; the guard counts the sockets it lets open.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from socket import socket
from typing import Any
from urllib.parse import quote

from aiohttp import web
from typing_extensions import override

from grpo_practice.text import brief
from grpo_practice.tools import ToolError
from grpo_practice.tools.search.guard import Guard
from grpo_practice.tools.search.local import LocalReader, open_local
from grpo_practice.tools.search.page import Banned

NAMES: dict[str, list[str]] = {
    "rebind.example": ["127.0.0.1"],
    "127.0.0.1.nip.io": ["127.0.0.1"],
    "one-of-two.example": ["93.184.216.34", "127.0.0.1"],
    "metadata.example": ["169.254.169.254"],
    "private.example": ["10.0.0.7"],
    "shared.example": ["100.64.0.1"],
    "zero.example": ["0.0.0.0"],
    "multicast.example": ["224.0.0.251"],
    "six.example": ["::1"],
    "unique-local.example": ["fd00::1"],
    "link-local.example": ["fe80::1"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "nat64.example": ["64:ff9b::7f00:1"],
    "six-to-four.example": ["2002:7f00:1::"],
    "teredo.example": ["2001:0:4136:e378:8000:63bf:80ff:fffe"],
    "xn--lcalhost-54g.example": ["127.0.0.1"],
    "nowhere.example": [],
}
"""What the resolver says."""

FORMS = [
    "file:///etc/passwd",
    "ftp://127.0.0.1:{port}/",
    "gopher://127.0.0.1:{port}/",
    "data:text/html,x",
    "//127.0.0.1:{port}/",
    "http://127.0.0.1:{port}/",
    "http://localhost:{port}/",
    "http://LOCALHOST.:{port}/",
    "http://a.localhost:{port}/",
    "http://trap:{port}/",
    "http://[::1]:{port}/",
    "http://[::]:{port}/",
    "http://[::ffff:127.0.0.1]:{port}/",
    "http://[64:ff9b::7f00:1]:{port}/",
    "http://[fe80::1%25lo]:{port}/",
    "http://0:{port}/",
    "http://0.0.0.0:{port}/",
    "http://2130706433:{port}/",
    "http://0x7f000001:{port}/",
    "http://0x7f.1:{port}/",
    "http://017700000001:{port}/",
    "http://0177.0.0.1:{port}/",
    "http://127.1:{port}/",
    "http://127.0.0.1.:{port}/",
    "http://\u2460\u2461\u2466.0.0.1:{port}/",
    "http://\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3:{port}/",
    "http://l\u03bfcalhost.example:{port}/",
    "http://127.0.0.1%2f@public.example:{port}/",
    "http://user:word@public.example:{port}/",
    "http://public.example:{port}@127.0.0.1/",
    "http://127.0.0.1:{port}\\@public.example/",
    "http://public.example#@127.0.0.1:{port}/",
    "http://169.254.169.254:{port}/latest/meta-data/",
    "http://metadata.google.internal:{port}/",
    "http://public.example:22/",
    *(f"http://{name}:{{port}}/" for name in NAMES),
]
"""Addresses that no page has; `{port}` is the trap's."""


@dataclass
class World:
    """A public server, a trap, and what was counted."""

    port: int = 0
    """The public server's."""
    trap_port: int = 0
    came: int = 0
    """Connections to the trap."""
    opened: list[tuple[str, int]] = field(default_factory=list)
    """Addresses that a socket was opened for."""
    looked_up: Counter[str] = field(default_factory=Counter)
    served: list[str] = field(default_factory=list)
    """Paths asked of the public server."""
    names: dict[str, list[list[str]]] = field(default_factory=dict)
    """What the resolver says, answer by answer; the last one stays."""

    async def lookup(self, name: str, port: int) -> list[str]:
        """What the resolver says: it lies as it is told to."""
        await asyncio.sleep(0)
        self.looked_up[name] += 1
        if name in self.names:
            answers = self.names[name]
            return answers.pop(0) if len(answers) > 1 else answers[0]
        return NAMES.get(name, ["127.0.0.1"])

    def guard(self) -> Guard:
        """A guard that lets the public server through, and takes the trap's port for the web's."""
        return _Watched(self)

    @asynccontextmanager
    async def reader(self, **more: Any) -> AsyncIterator[LocalReader]:
        """The reader under test."""
        async with open_local(self.guard(), Banned(["banned.example"]), 40_000, **more) as reader:
            yield reader


class _Watched(Guard):
    def __init__(self, world: World) -> None:
        super().__init__(
            world.lookup, allow=[("127.0.0.1", world.port)], ports=(80, 443, world.trap_port)
        )
        self._world = world

    @override
    def socket(self, info: tuple[Any, ...]) -> socket:
        made = super().socket(info)
        self._world.opened.append(info[4][:2])
        return made


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    """Both servers, on this machine, until the block ends."""
    it = World()

    async def page(request: web.Request) -> web.Response:
        it.served.append(request.path_qs)
        if to := request.query.get("to"):
            return web.Response(status=302, headers={"Location": to})
        return web.Response(text="<title>Public</title><p>Hello.", content_type="text/html")

    async def trap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        it.came += 1
        writer.close()

    app = web.Application()
    app.router.add_get("/{rest:.*}", page)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    it.port = runner.addresses[0][1]
    async with await asyncio.start_server(trap, "127.0.0.1", 0) as server:
        it.trap_port = server.sockets[0].getsockname()[1]
        try:
            yield it
        finally:
            await runner.cleanup()


def forms(it: World) -> Iterator[tuple[str, str]]:
    """Each form, and the URL that a model gives for it: directly, and behind a redirect."""
    for form in FORMS:
        url = form.replace("{port}", str(it.trap_port))
        yield form, url
        yield f"302 to {form}", f"http://public.example:{it.port}/?to={quote(url)}"


async def attempt(reader: LocalReader, url: str) -> str | None:
    """What the model is told; None where a page was read."""
    try:
        await reader.read(url)
    except ToolError as e:
        return str(e)
    return None


async def table() -> int:
    """Print it; how many forms got through."""
    wrong = 0
    async with world() as it, it.reader() as reader:
        for form, url in forms(it):
            redirect = form.startswith("302")
            before = len(it.opened)
            said = await attempt(reader, url)
            await asyncio.sleep(0.01)
            opened = len(it.opened) - before - redirect  # the redirecting server's own
            wrong += said is None or opened > 0 or it.came > 0
            told = "READ" if said is None else f"refused: {said}"
            print(f"{brief(form, 60):62} {brief(told, 78):80} sockets {opened}")  # noqa: T201
        page = await reader.read(f"http://public.example:{it.port}/")
        print(f"\na public page: {page.text!r}")  # noqa: T201
        print(f"{2 * len(FORMS)} forms, {it.came} connections to the trap")  # noqa: T201
    return wrong


if __name__ == "__main__":
    sys.exit(min(1, asyncio.run(table())))
