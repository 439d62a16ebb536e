"""The local viewer: who may ask, and how a page is read and sent."""

import asyncio
import hmac
import os
import secrets
import webbrowser
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, ClassVar

from aiohttp import web
from typing_extensions import override
from yarl import URL

from grpo_practice.chat_server.server import RequestError, check_caller, listening
from grpo_practice.errors import ConfigError, GrpoPracticeError
from grpo_practice.redact import redactor
from grpo_practice.reports.base import Report
from grpo_practice.see import views
from grpo_practice.see.address import Query, link
from grpo_practice.see.pages import render
from grpo_practice.store import Store
from grpo_practice.store.check import damage_explained
from grpo_practice.text import LOOPBACK

READERS = 4
"""Pages that are read at once."""
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every answer."""
_OPEN_AGAIN = "open the address that `grpo-practice view` printed, or start it again"


@dataclass(frozen=True, slots=True, repr=False)
class Viewed(Report):
    """A database whose runs can be looked at in a browser."""

    schema: ClassVar = "grpo-practice.view/1"

    url: str = field(repr=False)
    """First address, with the token that lets a browser in: a secret."""
    database: Path

    @property
    @override
    def exit_code(self) -> None:
        """None: the document is printed before the command ends."""

    @override
    def summary(self) -> list[tuple[str, str]]:
        """Return where the pages are, without the token."""
        return [("pages of", str(self.database)), ("at", str(URL(self.url).origin()))]


class Door:
    """The way in: pages lie below a secret path, and requests come from this machine."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        """First part of the path of each page: cookies would reach every port of this host."""
        self._tickets = set[str]()

    def ticket(self) -> str:
        """Return a path that leads in once: other users see the arguments of a browser's start."""
        ticket = secrets.token_urlsafe(32)
        self._tickets.add(ticket)
        return ticket

    def check(self, request: web.Request) -> web.Response | None:
        """Return the redirect of a ticket, or None for a request that may have its page.

        Raises:
            RequestError: The request may not be answered.
        """
        check_caller(request.headers)
        if request.method not in ("GET", "HEAD"):
            raise RequestError(
                f"{request.method} is not taken here: pages are only read", status=405
            )
        first, _, rest = request.path.removeprefix("/").partition("/")
        if hmac.compare_digest(first.encode(errors="replace"), self.token.encode()):
            return None
        if first not in self._tickets or rest:
            raise RequestError("this address lacks the token of these pages", status=403)
        self._tickets.discard(first)
        return web.Response(status=303, headers={"Location": f"/{self.token}/"})


def _asset(text: str, kind: str) -> Callable[[web.Request], Any]:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=text, content_type=kind)

    return answer


ASSETS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "/style.css": (("templates/style.css", "templates/view/view.css"), "text/css"),
    "/htmx.js": (("vendored/htmx.min.js",), "text/javascript"),
    "/icon.svg": (("vendored/icon.svg",), "image/svg+xml"),
}
"""Paths of fixed files, with the files that each is made of, and its type."""


def application(
    path: Path,
    door: Door,
    readers: ThreadPoolExecutor,
    under_way: set[Store],
    *,
    unexpected: Callable[[Exception], None] = lambda _: None,
) -> web.Application:
    """Return the pages of a database, below the door's token; errors are pages, too.

    `under_way` holds the databases that pages are being read from.
    """

    def page(view: views.View) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.Response:
            query = Query(dict(request.query))
            work = partial(_read, path, view, query, under_way)
            text = await asyncio.get_running_loop().run_in_executor(readers, work)
            return web.Response(text=text, content_type="text/html")

        return answer

    app = web.Application(middlewares=[_guard(door, unexpected)])
    app.add_routes([web.get(f"/{door.token}{at}", page(v)) for at, v in views.VIEWS.items()])
    room = files("grpo_practice.see")
    for at, (names, kind) in ASSETS.items():
        text = "".join(room.joinpath(name).read_text("utf-8") for name in names)
        app.router.add_get(f"/{door.token}{at}", _asset(text, kind))
    return app


def _guard(door: Door, unexpected: Callable[[Exception], None]) -> Any:
    """Return the middleware that lets requests in, and makes a page of what goes wrong."""

    @web.middleware
    async def guarded(request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            response: web.StreamResponse = door.check(request) or await handler(request)
        except ConnectionError:
            raise  # the browser is gone
        except Exception as e:  # noqa: BLE001 - somebody waits for the page
            if not isinstance(e, (RequestError, GrpoPracticeError, web.HTTPException)):
                unexpected(e)
            response = _failure(e)
        response.headers.update(HEADERS)
        if response.status == 405:
            response.headers["Allow"] = "GET, HEAD"
        return response

    return guarded


def _read(path: Path, view: views.View, query: Query, under_way: set[Store]) -> str:
    """Return a page: all of it is read at one moment, and the database is let go at once."""
    with damage_explained(path):
        with Store(path, "look") as store:
            under_way.add(store)
            try:
                made = view(store, query)
            finally:
                under_way.discard(store)
        return render(made.template, **SHARED, query=query, **made.values)


SHARED: Mapping[str, Any] = {"link": link}
"""Values that each template of the viewer is given."""


def _failure(error: Exception) -> web.Response:
    """Return the page about an error."""
    message, hint, status = str(error), "", 500
    match error:
        case RequestError():
            status, hint = error.status, _OPEN_AGAIN if error.status == 403 else ""
        case GrpoPracticeError():
            status, hint = 404 if isinstance(error, ConfigError) else 503, error.hint or ""
        case web.HTTPException():
            status = error.status
            message = "there is no such page" if status == 404 else error.reason
        case _:
            message = f"{type(error).__name__} while the page was made: this is a defect"
    values = {"message": message, "hint": hint, "status": status}
    text = render("view/failure.html", **SHARED, query=Query({}), **values)
    return web.Response(text=text, content_type="text/html", status=status)


async def serve_pages(
    path: Path,
    port: int,
    *,
    on_ready: Callable[[Viewed], None],
    open_browser: bool,
    notice: Callable[[str], None],
) -> None:
    """Show the pages at `http://127.0.0.1:port/` until this call is cancelled.

    Raises:
        ConfigError: The port cannot be listened on.
        StoreError: The database cannot be looked at.
    """
    with Store(path, "look"):
        pass  # what is wrong with the file is said here, not on each page
    door, under_way = Door(), set[Store]()
    with ThreadPoolExecutor(READERS, "view") as readers:
        app = application(
            path,
            door,
            readers,
            under_way,
            unexpected=lambda e: notice(f"a page was not shown: {type(e).__name__}: {e}"),
        )
        try:
            async with listening(app, port) as bound:
                at = f"http://{LOOPBACK}:{bound}/"
                on_ready(Viewed(f"{at}{door.token}/", path))
                # Not before it was shown once: from here on it is hidden in all output.
                redactor.know([door.token])
                if open_browser:
                    await _open(f"{at}{door.ticket()}", notice)
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            # The threads of pages would be waited for, however long their queries take.
            for store in [*under_way]:
                store.interrupt()
            raise
        except OSError as e:
            raise ConfigError(
                f"cannot listen on port {port}: {os.strerror(e.errno or 0)}",
                hint="--port 0 takes any free one",
            ) from e


async def _open(url: str, notice: Callable[[str], None]) -> None:
    opened = await asyncio.to_thread(webbrowser.open, url)
    if not opened:
        notice("no browser could be started: open the address above yourself")
