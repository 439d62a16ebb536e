"""The local viewer's server: its pages by address, access control, and sending of pages."""

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

from grpo_practice.core.errors import ConfigError, GrpoPracticeError
from grpo_practice.core.redact import redactor
from grpo_practice.core.text import LOOPBACK
from grpo_practice.reports.base import Report
from grpo_practice.rollout.chat_server.server import RequestError, check_caller, listening
from grpo_practice.store import Store
from grpo_practice.store.check import damage_explained
from grpo_practice.viewer import (
    comparison_views,
    experience_views,
    group_views,
    list_views,
    matrix_view,
    rollout_views,
    run_views,
)
from grpo_practice.viewer.address import Page, Query, link
from grpo_practice.viewer.pages import render

READERS = 4
"""Maximum number of pages read at the same time."""
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self';"
    " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    # With no-referrer, browsers hide the origin of a form, which `Door.check` needs.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every response."""
_OPEN_AGAIN = "open the address that `grpo-practice view` printed, or restart it"


View = Callable[[Store, Query], Page]
"""Function that reads the data of a page; it writes nothing and opens nothing except the store."""

VIEWS: Mapping[str, View] = {
    "/": run_views.runs_page,
    "/run": run_views.run_page,
    "/live": run_views.live_page,
    "/step": group_views.step_page,
    "/group": group_views.group_page,
    "/rollout": rollout_views.rollout_page,
    "/text": rollout_views.text_page,
    "/rollouts": list_views.rollouts_page,
    "/questions": list_views.questions_page,
    "/failures": list_views.failures_page,
    "/experiences": experience_views.experiences_page,
    "/experience": experience_views.experience_page,
    "/compare": comparison_views.compare_page,
    "/matrix": matrix_view.matrix_page,
    "/search": list_views.search_page,
}
"""Path → function that reads its page."""

Edit = Callable[[Store, Query], str]
"""Function that changes the database as a form says, and returns the page to show next."""
EDITS: Mapping[str, Edit] = {"/label": run_views.label_run}
"""Path → function that changes the database; nothing else in the viewer writes."""


@dataclass(frozen=True, slots=True, repr=False)
class Viewed(Report):
    """A database that the viewer is serving."""

    schema: ClassVar = "grpo-practice.view/1"

    url: str = field(repr=False)
    """First address, including the access token, which is secret."""
    database: Path

    @property
    @override
    def exit_code(self) -> None:
        """None, because the document is printed before the command ends."""

    @override
    def summary(self) -> list[tuple[str, str]]:
        """Return the database and the address, without the token."""
        return [("pages of", str(self.database)), ("at", str(URL(self.url).origin()))]


class Door:
    """Access control: pages lie below a secret path, and only this machine may request them."""

    def __init__(self) -> None:
        self.token = secrets.token_urlsafe(32)
        """First part of each page's path; a cookie would be sent to every port of this host."""
        self._tickets = set[str]()

    def ticket(self) -> str:
        """Return a path for one request, because other users can see a browser's command line."""
        ticket = secrets.token_urlsafe(32)
        self._tickets.add(ticket)
        return ticket

    def check(self, request: web.Request) -> web.Response | None:
        """Return the redirect for a ticket, or None if the request is allowed.

        Raises:
            RequestError: The request is not allowed.
        """
        check_caller(request.headers)
        first, _, rest = request.path.removeprefix("/").partition("/")
        edits = request.method == "POST" and f"/{rest}" in EDITS
        if request.method not in ("GET", "HEAD") and not edits:
            raise RequestError(
                f"{request.method} is not allowed here: pages are read-only", status=405
            )
        # `check_caller` has rejected any other origin, but a caller may send none.
        if edits and "Origin" not in request.headers:
            raise RequestError("only a form of these pages may change the database", status=403)
        # As bytes, because compare_digest() raises for text that is not ASCII.
        if hmac.compare_digest(first.encode(errors="replace"), self.token.encode()):
            return None
        if first not in self._tickets or rest:
            raise RequestError("this address lacks the token of these pages", status=403)
        # Once only: whoever reads it from the process list later gets nothing.
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
"""Path of each static asset → the files it is made of, and its type."""


def application(
    path: Path,
    door: Door,
    readers: ThreadPoolExecutor,
    under_way: set[Store],
    *,
    unexpected: Callable[[Exception], None] = lambda _: None,
) -> web.Application:
    """Return the application that serves a database below the door's token.

    Errors are shown as pages, too. `under_way` holds the stores that pages are being read from.
    """

    def page(view: View) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.Response:
            query = Query(dict(request.query))
            work = partial(_read, path, view, query, under_way)
            text = await asyncio.get_running_loop().run_in_executor(readers, work)
            return web.Response(text=text, content_type="text/html")

        return answer

    def form(edit: Edit) -> Callable[[web.Request], Any]:
        async def answer(request: web.Request) -> web.Response:
            sent = await request.post()
            query = Query({name: text for name, text in sent.items() if isinstance(text, str)})
            work = partial(_edit, path, edit, query)
            to = await asyncio.get_running_loop().run_in_executor(readers, work)
            return web.Response(status=303, headers={"Location": to})

        return answer

    app = web.Application(middlewares=[_guard(door, unexpected)])
    app.add_routes([web.get(f"/{door.token}{at}", page(v)) for at, v in VIEWS.items()])
    app.add_routes([web.post(f"/{door.token}{at}", form(e)) for at, e in EDITS.items()])
    room = files("grpo_practice.viewer")
    for at, (names, kind) in ASSETS.items():
        text = "".join(room.joinpath(name).read_text("utf-8") for name in names)
        app.router.add_get(f"/{door.token}{at}", _asset(text, kind))
    return app


def _guard(door: Door, unexpected: Callable[[Exception], None]) -> Any:
    """Return the middleware that checks access and turns errors into pages."""

    @web.middleware
    async def guarded(request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            response: web.StreamResponse = door.check(request) or await handler(request)
        except ConnectionError:
            raise  # the browser has disconnected
        except Exception as e:  # noqa: BLE001 - the browser needs a response
            if not isinstance(e, (RequestError, GrpoPracticeError, web.HTTPException)):
                unexpected(e)
            response = _failure(e)
        # For error pages as well, because their text may come from a stored run.
        response.headers.update(HEADERS)
        if response.status == 405:
            response.headers["Allow"] = "GET, HEAD"
        return response

    return guarded


def _read(path: Path, view: View, query: Query, under_way: set[Store]) -> str:
    """Return a page, read in one consistent state; the database is closed before rendering."""
    with damage_explained(path):
        with Store(path, "look") as store:
            under_way.add(store)
            try:
                made = view(store, query)
            finally:
                under_way.discard(store)
        # Render after closing, because an open read transaction keeps SQLite from truncating the
        # WAL.
        return render(made.template, **SHARED, query=query, **made.values)


def _edit(path: Path, edit: Edit, query: Query) -> str:
    with damage_explained(path), Store(path) as store:
        return edit(store, query)


SHARED: Mapping[str, Any] = {"link": link}
"""Values passed to every template of the viewer."""


def _failure(error: Exception) -> web.Response:
    """Return the page for an error."""
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
            message = f"{type(error).__name__} while creating the page: this is a bug"
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
    """Serve the pages at `http://127.0.0.1:port/` until this call is cancelled.

    Raises:
        ConfigError: The port cannot be listened on.
        StoreError: The database cannot be read.
    """
    with Store(path, "look"):
        pass  # report a damaged file now, not on each page
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
                # Only after it has been shown once, because from now on, all output redacts it.
                redactor.know([door.token])
                if open_browser:
                    ticket = f"{at}{door.ticket()}"
                    # On a thread, because some browsers return only when they are closed.
                    if not await asyncio.to_thread(webbrowser.open, ticket):
                        notice("no browser could be started: open the address above")
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            # Otherwise the executor would wait for its threads, however long their queries take.
            for store in [*under_way]:
                store.interrupt()
            raise
        except OSError as e:
            raise ConfigError(
                f"cannot listen on port {port}: {os.strerror(e.errno or 0)}",
                hint="--port 0 picks a free port",
            ) from e
