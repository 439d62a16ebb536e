"""Values as people read them, and pages that are slow or wrong by a defect of ours."""

import asyncio
import hashlib
import re
import threading
from importlib.resources import files
from pathlib import Path

import jinja2
import pytest

from grpo_practice.reports.base import number
from grpo_practice.store import Store
from grpo_practice.viewer import pages, server
from grpo_practice.viewer.address import Page, Query
from tests.contract.viewer.viewing import viewing
from tests.processes import HANG_S

TEMPLATES = sorted(
    (files("grpo_practice.viewer") / "templates").iterdir(), key=lambda template: template.name
)


def test_nothing_stored_is_let_through_unescaped() -> None:
    for template in TEMPLATES:
        if template.name.endswith(".html"):
            text = template.read_text("utf-8")
            assert "|safe" not in text.replace(" ", ""), template.name
            assert "autoescape" not in text, template.name
            assert re.findall(r"(\w+)\s*\|\s*sheet", text) in ([], ["style"]), template.name


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (number(None), "-"),
        (number(0.6125), "0.613"),
        (pages.points(-0.031), "\u22123.1"),
        (pages.points(0.081), "+8.1"),
        (pages.share(0.5), "50.0 %"),
        (pages.usd(None), "unknown"),
        (pages.usd(0.0), "$0.00"),
        (pages.usd(0.00012), "$0.000120"),
        (pages.usd(1234.5), "$1,234.50"),
        (pages.tokens(12_345), "12.3k"),
        (pages.seconds(190.4), "3 min 10 s"),
        (pages.seconds(7_500), "2 h 5 min"),
        (pages.when("2026-11-22T14:03:59.123+00:00"), "2026-11-22 14:03 UTC"),
        (pages.when(None), "-"),
        (pages.line("a\nb\u202ec"), "a b\\u202ec"),
        (pages.body("x" * 10, 4), "xxxx … [6 more characters]"),
        (pages.body("a\x00\x1b[31mb"), "a\\x00\\x1b[31mb"),
    ],
)
def test_values_as_people_read_them(value: str, shown: str) -> None:
    assert value == shown


def test_a_value_that_a_template_lacks_is_an_error() -> None:
    environment = pages._environment()
    assert environment.from_string("{{ a }}").render(a="<b>&") == "&lt;b&gt;&amp;"
    with pytest.raises(jinja2.UndefinedError):
        environment.from_string("{{ a }}").render()


class Gate:
    """A wait in one thread that another thread, or a test, ends."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.reached.set()
        assert self.opened.wait(HANG_S)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "a.db"
    Store(path).close()
    return path


async def test_a_page_that_is_slow_to_read_holds_nobody_up(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()

    def slow(store: Store, query: Query) -> Page:
        gate.wait()
        return server.VIEWS["/"](store, query)

    monkeypatch.setattr(server, "VIEWS", {**server.VIEWS, "/slow": slow})
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

    monkeypatch.setattr(server, "VIEWS", {**server.VIEWS, "/broken": broken})
    async with viewing(db) as viewer:
        status, text = await viewer.get("/broken")
        assert status == 500
        assert "ValueError while creating the page" in text
        assert "use" not in text
        assert viewer.failures == ["a page was not shown: ValueError: of <no> use"]


def test_the_script_is_the_one_that_its_note_describes() -> None:
    room = files("grpo_practice.viewer") / "vendored"
    note = (room / "htmx.txt").read_text("utf-8")
    script = (room / "htmx.min.js").read_bytes()
    assert f"sha256 {hashlib.sha256(script).hexdigest()}" in note
    assert "0BSD" in note
    assert "Permission to use, copy, modify" in note
    (version,) = re.findall(r"htmx\.org (\d+\.\d+\.\d+)", note)
    assert f'version:"{version}"'.encode() in script
