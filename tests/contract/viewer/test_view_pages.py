"""Pages of the viewer: who gets them, where links lead, and that nothing that is stored acts."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from yarl import URL

from grpo_practice import Workspace
from tests.contract.hostile_texts import fill
from tests.contract.project import Project, evaluated, served
from tests.contract.viewer.viewing import Page, Viewer, crawl, is_well_made, viewing

PATHS = (
    *("/", "/run", "/step", "/group", "/rollout", "/rollouts", "/questions", "/failures"),
    *("/experiences", "/experience", "/compare", "/matrix", "/search", "/text"),
)
CONTENT = "Content-Security-Policy"
SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    return await evaluated(tmp_path / "p")


@pytest.fixture
def db(tmp_path: Path) -> Path:
    Workspace(tmp_path / "a.db").datasets.upload("d", [{"question": "q", "answer": "a"}])
    return tmp_path / "a.db"


async def test_pages_lie_below_a_token_that_no_page_shows(db: Path) -> None:
    async with viewing(db) as viewer:
        assert len(viewer.token) >= 43
        status, text = await viewer.get("/")
        assert status == 200
        assert viewer.token not in text
        async with viewer.session.get(f"{viewer.base}/style.css") as answer:
            assert answer.status == 200
            assert "Set-Cookie" not in answer.headers
        for path in ("", "x" * 43, "x" * 43 + "/", "\u00e9/", "style.css", "run?run=toy"):
            async with viewer.session.get(f"{viewer.origin}/{path}") as answer:
                text = await answer.text()
                assert (answer.status, "Access denied" in text) == (403, True), path
                assert viewer.token not in text


async def test_who_was_sent_from_elsewhere_gets_nothing_and_nobody_writes(db: Path) -> None:
    rows: list[tuple[dict[str, str], int]] = [
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
    ]
    async with viewing(db) as viewer:
        for headers, status in rows:
            for path in ("/", "/style.css"):
                async with viewer.session.get(viewer.base + path, headers=headers) as answer:
                    assert answer.status == status, headers
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"):
            for path in ("/", "/run", "/nowhere", "/style.css"):
                async with viewer.session.request(method, viewer.base + path) as answer:
                    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
        async with viewer.session.head(f"{viewer.base}/") as answer:
            assert (answer.status, await answer.read()) == (200, b"")


async def test_every_answer_carries_the_policy(db: Path) -> None:
    async with viewing(db) as viewer:
        asked = ["/", "/nowhere", "/run?run=x", "/style.css", "/htmx.js", "/icon.svg"]
        seen, policies = set(), set()
        for url in (viewer.origin, *(viewer.base + path for path in asked)):
            async with viewer.session.get(url) as answer:
                seen.add(answer.status)
                policies.add(tuple(answer.headers[name] for name in (*SAFE, CONTENT)))
        async with viewer.session.post(viewer.base) as answer:
            policies.add(tuple(answer.headers[name] for name in (*SAFE, CONTENT)))
        assert seen == {200, 403, 404}
    (kept,) = policies
    assert kept[:-1] == tuple(SAFE.values())
    assert "unsafe" not in kept[-1]
    assert kept[-1].startswith("default-src 'none'; ")


async def test_a_browser_is_started_with_a_ticket_that_lets_in_once(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = list[str]()
    monkeypatch.setattr("webbrowser.open", urls.append)  # which returns None: not started
    async with viewing(db, open_browser=True) as viewer:
        while not viewer.failures:  # noqa: ASYNC110 - of a thread
            await asyncio.sleep(0.001)
        (ticket,) = urls
        assert str(URL(ticket).origin()) == viewer.origin
        assert viewer.token not in ticket
        for url, status in ((f"{ticket}/run", 403), (ticket, 200), (ticket, 403)):
            async with viewer.session.get(url) as answer:
                assert answer.status == status
                assert (str(answer.url) == f"{viewer.base}/") == (status == 200)
        assert viewer.failures == ["no browser could be started: open the address above"]


async def test_the_address_is_shown_once_and_hidden_from_then_on(db: Path) -> None:
    async with viewing(db) as viewer:
        assert viewer.report.document()["url"] == viewer.url
        for hidden in (repr(viewer.report), viewer.report._repr_html_()):
            assert viewer.token not in hidden
    row = {"question": f"at {viewer.url}", "answer": "a"}
    with pytest.raises(Exception, match="contains a secret"):
        Workspace(db).datasets.upload("told", [row])


async def test_every_link_leads_to_a_page_that_is_well_made(project: Project) -> None:
    async with viewing(project.db) as viewer:
        seen = await crawl(viewer, "/text?run=toy&step=0&slot=0&attempt=0&part=system")
        for page in seen.values():
            is_well_made(page)
        assert {urlsplit(url).path for url in seen} == set(PATHS)
        assert len(seen) > 50


async def test_pages_show_what_was_said_and_whether_it_got_better(project: Project) -> None:
    ((step, slot),) = project.query(
        "SELECT step, slot FROM calls WHERE stage = 'propose' ORDER BY call_id LIMIT 1"
    )
    ((system,),) = project.query(
        """SELECT body FROM rollouts JOIN texts ON sha256 = system_sha
            WHERE step = 3 AND slot = 0 AND attempt = 0 LIMIT 1"""
    )
    async with viewing(project.db) as viewer:
        _, text = await viewer.get("/run", run="toy")
        order = ['class="verdict', 'class="scores"', 'id="live-title"', 'id="curve"', 'id="cost"']
        places = [text.index(sign) for sign in order]
        assert places == sorted(places)
        assert re.search(r">(Better|Worse|No difference found|Not enough \w+.* to tell)</p>", text)
        page = Page(text)
        assert "Simulated." in page.text
        assert "72 of 72 planned rollouts played" in page.text

        place = {"run": "toy", "step": step, "slot": slot}
        _, text = await viewer.get("/group", **place)
        said = text[text.index("Teacher calls") : text.index("<h2>Attempts")]
        assert [said.count(f"<h3>{stage}") for stage in ("compare", "propose")] == [1, 1]
        assert "&lt;lessons&gt;" in said
        part = await viewer.page("/text", **place, part="teacher.0.asked")
        assert "## The attempts" in part.text
        _, text = await viewer.get("/step", run="toy", step=step)
        assert "<h3>merge" in text[text.index("Teacher calls at the merge") :]
        part = await viewer.page("/text", run="toy", step=step, part="merge.0.reply")
        assert "ADD" in part.text

        attempt: dict[str, object] = {"run": "toy", "step": 3, "slot": 0, "attempt": 0}
        assert "[E1]" in system
        assert system in (await viewer.page("/rollout", **attempt)).text
        assert (await viewer.page("/text", **attempt, part="system")).text.count(system) == 1


async def test_an_address_of_nothing_is_a_sentence(project: Project) -> None:
    step0: dict[str, object] = {"run": "toy", "step": 0}
    attempt0 = {**step0, "slot": 0, "attempt": 0}
    rows: list[tuple[str, dict[str, object], str]] = [
        ("/run", {"run": "toyy"}, "did you mean toy"),
        ("/run", {}, "this address lacks run="),
        ("/step", {"run": "toy", "step": "99"}, "toy has no step 99"),
        ("/step", {"run": "toy", "step": 10**14}, f"toy has no step {10**14}"),
        ("/step", {"run": "toy", "step": "\u0663"}, "an unreadable step="),
        ("/step", {"run": "toy", "step": "9" * 400}, "an unreadable step="),
        ("/step", {**step0, "after": "1"}, "an unreadable after=1"),
        ("/group", {**step0, "slot": "77"}, "has no group 77"),
        ("/rollout", {**step0, "slot": 0, "attempt": 50}, "no attempt 50"),
        ("/rollouts", {"run": "toy", "only": "<b>"}, "known values are all, failed"),
        ("/text", {**attempt0, "part": "x"}, "no text x"),
        ("/experience", {"run": "toy", "id": "E999"}, "toy has no experience E999"),
        ("/experience", {"run": "toy", "id": "../x"}, "is not an experience"),
        ("/experiences", {"run": "toy/eval"}, "is not a practice run"),
        ("/compare", {"a": "toy", "b": "toy"}, "are the same evaluation"),
        ("/questions", {"run": "toy", "against": "nobody"}, "there is no run"),
        ("/../../etc/passwd", {}, "there is no such page"),
        ("/%2e%2e/style.css", {}, "there is no such page"),
    ]
    async with viewing(project.db) as viewer:
        for path, given, said in rows:
            status, text = await viewer.get(path, **given)
            page = Page(text)
            is_well_made(page)
            assert (status, said in page.text) == (404, True), (path, given, page.text)
        assert viewer.failures == []


@pytest.mark.long
async def test_what_is_stored_is_text_and_acts_as_nothing(project: Project) -> None:
    fill(project.db)
    async with viewing(project.db) as viewer:
        seen = await crawl(viewer, "/text?run=toy&step=0&slot=0&attempt=0&part=answer")
        shown = 0
        for page in seen.values():
            is_well_made(page)
            assert "49" not in re.findall(r"main>(\d+)", page.text)
            assert not set(page.text) & {"\u202e", "\x00", "\x1b"}
            shown += "<script>alert(1)</script>" in page.text
        assert shown > 20
        assert {urlsplit(url).path for url in seen} >= {"/rollout", "/group", "/experience"}


@pytest.mark.long
async def test_long_texts_and_many_turns_come_page_by_page(project: Project) -> None:
    whole = "".join(f"{n:07d} " for n in range(250_000))
    project.change(
        """UPDATE rollout_bodies SET response = ? WHERE rollout_id IN (SELECT rollout_id
             FROM v_rollouts WHERE run_id = 'toy' AND (step, slot, attempt) = (0, 1, 2))""",
        whole,
    )
    many = [{"role": "user", "content": f"turn {n}."} for n in range(10_000)]
    project.change(
        """UPDATE call_bodies SET request = ?, codec = 0, reply = ? WHERE call_id IN (SELECT call_id
             FROM calls WHERE stage = 'play' AND (step, slot, attempt) = (0, 0, 0))""",
        json.dumps(many).encode(),
        b'{"role": "assistant", "content": "end."}',
    )
    place: dict[str, object] = {"run": "toy", "step": 0, "slot": 1, "attempt": 2}
    async with viewing(project.db) as viewer:
        status, text = await viewer.get("/rollout", **place)
        assert status == 200
        assert len(text) < 40_000
        assert "All 2,000,000 characters" in text
        link = next(one for one in Page(text).links if one.startswith("./text"))
        read, pages = "", 0
        while link:
            _, page = await viewer.get("/text", **dict(parse_qsl(urlsplit(link).query)))
            found = re.search(r'<pre class="whole">(.*?)</pre>', page, re.DOTALL)
            assert found is not None
            read, pages = read + found[1], pages + 1
            follows = re.search(r'rel="next" href="([^"]+)"', page)
            link = follows[1].replace("&amp;", "&") if follows else ""
        assert (read == whole, pages) == (True, 10)
        place |= {"slot": 0, "attempt": 0}
        _, first = await viewer.get("/rollout", **place)
        assert len(first) < 60_000
        text = Page(first).text
        assert ("turn 39." in text, "turn 40." in text) == (True, False)
        assert "turn 9999." in (await viewer.page("/rollout", **place, **{"from": 9_980})).text


async def test_lists_are_filtered_and_ordered_by_the_address(project: Project) -> None:
    async with viewing(project.db) as viewer:

        async def changes(**given: object) -> list[float]:
            _, text = await viewer.get("/questions", run="toy", **given)
            found = re.findall(r'<td class="right [a-z]*">(?:([+\u2212\d.]+)|-)</td>', text)
            return [float(one.replace("\u2212", "-") or 0) for one in found]

        every = await changes()
        assert len(every) == 12
        assert every == sorted(every, key=lambda by: -abs(by))
        assert await changes(only="better") == [by for by in every if by > 0]
        assert await changes(only="worse") == [by for by in every if by < 0]
        assert len(await changes(only="better")) > 0
        for status in ("uniform", "distilled"):
            _, text = await viewer.get("/step", run="toy", step=0, status=status)
            sql = "SELECT slot FROM groups WHERE step = 0 AND status = ? ORDER BY slot"
            slots = [slot for (slot,) in project.query(sql, status)]
            assert [int(n) for n in re.findall(r'slot=(\d+)">group&nbsp;', text)] == slots


async def test_a_run_that_is_deleted_meanwhile_is_no_longer_there(project: Project) -> None:
    async with viewing(project.db) as viewer:
        assert (await viewer.get("/run", run="toy"))[0] == 200
        Workspace(project.db).delete_run("toy")
        for path in ("/run", "/live", "/rollouts", "/questions", "/experiences"):
            status, text = await viewer.get(path, run="toy")
            assert (status, "there is no run" in text) == (404, True)
        assert (await viewer.get("/"))[0] == 200


async def test_damage_is_a_sentence(project: Project) -> None:
    raw = bytearray(project.db.read_bytes())
    async with viewing(project.db) as viewer:
        for page in range(4, len(raw) // 4096):
            raw[page * 4096 : page * 4096 + 64] = b"\xff" * 64
        project.db.write_bytes(raw)
        status, text = await viewer.get("/")
        assert status == 503
        assert "is damaged" in text
        assert "grpo-practice db check" in text


async def test_a_run_is_renewed_while_it_goes_on_and_no_longer(tmp_path: Path) -> None:
    project = Project(tmp_path / "p")
    async with served() as endpoint, viewing(project.db) as viewer:
        gate = endpoint.gate = asyncio.Event()
        run = asyncio.create_task(project.practise(endpoint.override()))
        await endpoint.asked(3)
        _, text = await viewer.get("/run", run="toy")
        assert 'hx-get="./live?run=toy" hx-trigger="every 2s"' in text
        _, part = await viewer.get("/live", run="toy")
        assert part.lstrip().startswith("<section")
        assert 'hx-trigger="every 2s"' in part
        gate.set()
        await run
        _, part = await viewer.get("/live", run="toy")
        assert "hx-trigger" not in part
        assert "72 of 72" in part


async def sent(viewer: Viewer, path: str = "/label", **more: Any) -> int:
    """Send the form of a run's page, and return the status of the answer."""
    form = {"run": "toy", "tags": "good v2", "note": "<i>one</i>\r\ntwo"}
    url = f"{viewer.base}{path}"
    given: dict[str, Any] = {"data": form, "headers": {"Origin": viewer.origin}} | more
    async with viewer.session.post(url, allow_redirects=False, **given) as answer:
        assert answer.headers.get("Location") in (None, "./run?run=toy")
        assert answer.headers["Referrer-Policy"] == "same-origin"
        return answer.status


async def test_tags_and_note_are_set_on_the_page_of_a_run(project: Project) -> None:
    async with viewing(project.db) as viewer:
        before = await viewer.page("/run", run="toy")
        assert ("action", "./label") in before.attributes
        assert await sent(viewer) == 303
        _, text = await viewer.get("/run", run="toy")
        assert "&lt;i&gt;one&lt;/i&gt;\ntwo" in text
        assert "<i>" not in text
        page = Page(text)
        is_well_made(page)
        assert "./?tag=good" in page.links
        assert "toy" in (await viewer.page("/", tag="v2 good")).text
        assert "No runs match." in (await viewer.page("/", tag="v3")).text
        assert "./run?run=toy" in (await viewer.page("/", grep="ONE</I>")).links
        run = Workspace(project.db).run("toy").run
        assert (run.tags, run.note) == (("good", "v2"), "<i>one</i>\ntwo")
        assert await sent(viewer, data={"run": "toy", "tags": "v2"}) == 303
        run = Workspace(project.db).run("toy").run
        assert (run.tags, run.note) == (("v2",), "")


async def test_nobody_else_sets_tags(project: Project) -> None:
    async with viewing(project.db) as viewer:
        for headers in ({}, {"Origin": "null"}, {"Origin": "http://evil.example"}):
            assert await sent(viewer, headers=headers) == 403
        evil = {"Origin": viewer.origin, "Sec-Fetch-Site": "cross-site"}
        assert await sent(viewer, headers=evil) == 403
        async with viewer.session.get(f"{viewer.base}/label?run=toy&tags=x") as answer:
            assert answer.status == 405
        headers = {"Origin": viewer.origin}
        for path in ("/label", f"/{'x' * 43}/label"):
            url = f"{viewer.origin}{path}"
            async with viewer.session.post(url, data={"run": "toy"}, headers=headers) as answer:
                assert answer.status in (403, 405)
        assert await sent(viewer, "/run") == 405
        assert await sent(viewer, data={"run": "nobody"}) == 404
        assert await sent(viewer, data={"run": "toy", "tags": "a,b"}) == 400
        run = Workspace(project.db).run("toy").run
        assert (run.tags, run.note) == ((), "")
