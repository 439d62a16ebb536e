"""The viewer's door: who gets pages, and what each answer carries."""

import asyncio
import hashlib
import re
import socket
from importlib.resources import files
from pathlib import Path

import aiohttp
import pytest
from yarl import URL

from grpo_practice.errors import ConfigError, StoreError
from grpo_practice.events import Event, Notice
from grpo_practice.redact import redactor
from grpo_practice.see import views
from grpo_practice.see.address import Page, Query
from grpo_practice.see.server import HEADERS, Viewed
from grpo_practice.store import Store
from grpo_practice.workspace import Workspace
from tests.see.viewer import Gate, viewing


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    Store(path).close()
    return path


async def test_pages_lie_below_the_token_and_no_page_shows_it(db: Path) -> None:
    async with viewing(db) as viewer:
        status, text = await viewer.get("/")
        assert status == 200
        assert viewer.door.token not in text
        async with viewer.session.get(f"{viewer.base}/style.css") as answer:
            assert answer.status == 200
            assert "Set-Cookie" not in answer.headers


@pytest.mark.parametrize(
    "path", ["", "x" * 43, "x" * 43 + "/", "\u00e9/", "style.css", "run?run=toy"]
)
async def test_without_the_token_there_is_no_page(db: Path, path: str) -> None:
    async with viewing(db) as viewer:
        async with viewer.session.get(f"{viewer.origin}/{path}") as answer:
            assert answer.status == 403
            text = await answer.text()
        assert "Not let in" in text
        assert viewer.door.token not in text


async def test_a_ticket_lets_in_once(db: Path) -> None:
    async with viewing(db) as viewer:
        ticket = f"{viewer.origin}/{viewer.door.ticket()}"
        async with viewer.session.get(f"{ticket}/run") as answer:
            assert answer.status == 403
        async with viewer.session.get(ticket) as answer:
            assert (answer.status, str(answer.url)) == (200, f"{viewer.base}/")
        async with viewer.session.get(ticket) as answer:
            assert answer.status == 403


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "[::1].evil.example"}, 403),
        ({"Host": "evil.example@127.0.0.1"}, 403),
        ({"Host": ""}, 403),
        ({"Host": "[::1]:8390"}, 200),
        ({"Host": "["}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({}, 200),
    ],
)
async def test_who_was_sent_from_elsewhere_gets_nothing(
    db: Path, headers: dict[str, str], status: int
) -> None:
    async with viewing(db) as viewer:
        for path in ("/", "/style.css"):
            async with viewer.session.get(viewer.base + path, headers=headers) as answer:
                assert answer.status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
async def test_pages_are_only_read(db: Path, method: str) -> None:
    async with viewing(db) as viewer:
        for path in ("/", "/run", "/nowhere", "/style.css"):
            async with viewer.session.request(method, viewer.base + path) as answer:
                assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
        async with viewer.session.head(f"{viewer.base}/") as answer:
            assert (answer.status, await answer.read()) == (200, b"")


async def test_every_answer_carries_the_policy(db: Path) -> None:
    async with viewing(db) as viewer:
        asked = ["/", "/nowhere", "/run?run=x", "/style.css", "/htmx.js", "/icon.svg"]
        seen = set()
        for path in asked:
            async with viewer.session.get(viewer.base + path) as answer:
                seen.add(answer.status)
                assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        async with viewer.session.get(viewer.origin) as answer:
            seen.add(answer.status)
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        async with viewer.session.post(viewer.base) as answer:
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert seen == {200, 403, 404}
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert policy.startswith("default-src 'none'; ")


async def test_a_page_that_is_slow_to_read_holds_nobody_up(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()

    def slow(store: Store, query: Query) -> Page:
        gate.wait()
        return views.VIEWS["/"](store, query)

    monkeypatch.setattr(views, "VIEWS", {**views.VIEWS, "/slow": slow})
    async with viewing(db) as viewer:
        waiting = asyncio.create_task(viewer.get("/slow"))
        await asyncio.to_thread(gate.reached.wait)
        assert (await viewer.get("/"))[0] == 200
        assert not waiting.done()
        gate.opened.set()
        assert (await waiting)[0] == 200


async def test_a_defect_is_a_page_and_is_said(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(store: Store, query: Query) -> Page:
        raise ValueError("of <no> use")

    monkeypatch.setattr(views, "VIEWS", {**views.VIEWS, "/broken": broken})
    async with viewing(db) as viewer:
        status, text = await viewer.get("/broken")
        assert status == 500
        assert "ValueError while the page was made" in text
        assert "use" not in text
        assert [str(e) for e in viewer.failures] == ["of <no> use"]


def test_the_script_is_the_one_that_its_note_describes() -> None:
    room = files("grpo_practice.see") / "vendored"
    note = (room / "htmx.txt").read_text("utf-8")
    script = (room / "htmx.min.js").read_bytes()
    assert f"sha256 {hashlib.sha256(script).hexdigest()}" in note
    assert "0BSD" in note
    assert "Permission to use, copy, modify" in note
    (version,) = re.findall(r"htmx\.org (\d+\.\d+\.\d+)", note)
    assert f'version:"{version}"'.encode() in script


async def shown(ws: Workspace, said: list[Event], *, open_browser: bool = False) -> Viewed:
    """Show pages until they are there, then stop."""
    ready = asyncio.get_running_loop().create_future()
    work = ws.view_async(
        port=0, open_browser=open_browser, on_ready=ready.set_result, on_event=said.append
    )
    task = asyncio.create_task(work)
    await asyncio.wait([task, ready], return_when=asyncio.FIRST_COMPLETED)
    viewed: Viewed = ready.result()
    async with aiohttp.ClientSession() as session, session.get(viewed.url) as answer:
        assert answer.status == 200
    task.cancel()
    await asyncio.wait([task])
    return viewed


async def test_the_address_is_shown_once_and_hidden_from_then_on(db: Path) -> None:
    viewed = await shown(Workspace(db), [])
    token = URL(viewed.url).parts[1]
    assert len(token) >= 43
    assert viewed.document()["url"] == viewed.url
    assert token not in repr(viewed)
    assert token not in viewed._repr_html_()
    assert redactor.text(f"at {viewed.url}") == f"at {URL(viewed.url).origin()}/***/"


async def test_the_browser_is_started_with_a_ticket(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls, events = list[str](), list[Event]()
    monkeypatch.setattr("webbrowser.open", urls.append)  # which returns None: not started
    viewed = await shown(Workspace(db), events, open_browser=True)
    (url,) = urls
    assert URL(url).origin() == URL(viewed.url).origin()
    assert URL(viewed.url).parts[1] not in url
    (said,) = events
    assert isinstance(said, Notice)
    assert said.text == "no browser could be started: open the address above yourself"


async def test_what_is_wrong_with_the_file_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"there is no database .*none\.db yet"):
        await Workspace(tmp_path / "none.db").view_async(port=0)
    foreign = tmp_path / "notes.db"
    foreign.write_text("these are my notes, of many lines\n" * 100)
    with pytest.raises(StoreError, match="is not a database"):
        await Workspace(foreign).view_async(port=0)
    assert foreign.read_text().startswith("these are my notes")


async def test_a_port_in_use_is_a_sentence(db: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on port {port}: ") as failed:
            await Workspace(db).view_async(port=port)
    assert failed.value.hint == "--port 0 takes any free one"
