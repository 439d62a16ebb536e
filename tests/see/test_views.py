"""Pages of the viewer: every link leads somewhere, and nothing that is stored acts."""

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from grpo_practice.see import list_views, rollout_views
from grpo_practice.store import Store
from tests.app.project import Project, finished
from tests.contract.project import served
from tests.see.hostile import fill
from tests.see.test_report import EVALUATED, Page
from tests.see.viewer import Viewer, viewing

PATHS = (
    *("/", "/run", "/step", "/group", "/rollout", "/rollouts", "/questions", "/failures"),
    *("/experiences", "/experience", "/compare", "/search", "/text"),
)


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    project = await finished(tmp_path / "p", EVALUATED)
    await project.evaluate()
    return project


def change(project: Project, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(project.db)) as db, db:
        assert db.execute(sql, values).rowcount


async def crawl(viewer: Viewer, *begin: str) -> dict[str, Page]:
    """Return each page that links lead to, one of each kind of list and filter."""
    todo, seen = ["/", *begin], dict[str, Page]()
    kinds = dict[tuple[str, ...], int]()
    while todo:
        url = todo.pop()
        parts = urlsplit(url)
        given = dict(parse_qsl(parts.query))
        kind = (parts.path, *given, given.get("only", ""), given.get("sort", ""))
        if url in seen or kinds.get(kind, 0) >= 3 or parts.path in ("/style.css", "/icon.svg"):
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


async def test_every_link_leads_to_a_page_that_is_well_made(project: Project) -> None:
    async with viewing(project.db) as viewer:
        seen = await crawl(viewer, "/text?run=toy&step=0&slot=0&attempt=0&part=system")
        for page in seen.values():
            is_well_made(page)
        assert {urlsplit(url).path for url in seen} == set(PATHS)
        assert len(seen) > 60


async def test_a_run_answers_first_whether_it_got_better(project: Project) -> None:
    async with viewing(project.db) as viewer:
        _, text = await viewer.get("/run", run="toy")
        order = ['class="verdict', 'class="scores"', 'id="live-title"', 'id="curve"', 'id="cost"']
        places = [text.index(sign) for sign in order]
        assert places == sorted(places)
        assert re.search(r"(Better|Worse) by|[Nn]o difference found|[Tt]oo few|No verdict", text)
        page = Page(text)
        assert "Simulated." in page.text
        assert "72 of 72 planned rollouts played" in page.text


async def test_a_group_and_a_merge_show_what_the_teacher_said(project: Project) -> None:
    ((step, slot),) = project.query(
        "SELECT step, slot FROM calls WHERE stage = 'propose' ORDER BY call_id LIMIT 1"
    )
    async with viewing(project.db) as viewer:
        place = {"run": "toy", "step": step, "slot": slot}
        _, text = await viewer.get("/group", **place)
        said = text[text.index("What the teacher said") : text.index("<h2>Attempts")]
        assert [said.count(f"<h3>{stage}") for stage in ("compare", "propose")] == [1, 1]
        assert "&lt;lessons&gt;" in said
        part = await viewer.page("/text", **place, part="teacher.0.asked")
        assert "## The attempts" in part.text
        _, text = await viewer.get("/step", run="toy", step=step)
        assert "<h3>merge" in text[text.index("What the teacher said at the merge") :]
        part = await viewer.page("/text", run="toy", step=step, part="merge.0.reply")
        assert '"op": "ADD"' in part.text


async def test_a_rollout_shows_the_exact_prompt_and_all_that_was_said(project: Project) -> None:
    ((system,),) = project.query(
        """SELECT body FROM rollouts JOIN texts ON sha256 = system_sha
            WHERE step = 3 AND slot = 0 AND attempt = 0 LIMIT 1"""
    )
    assert "[E1]" in system
    async with viewing(project.db) as viewer:
        place = {"run": "toy", "step": 3, "slot": 0, "attempt": 0}
        page = await viewer.page("/rollout", **place)
        assert system in page.text
        assert (await viewer.page("/text", **place, part="system")).text.count(system) == 1


@pytest.mark.parametrize(
    ("path", "given", "said"),
    [
        ("/run", {"run": "toyy"}, "did you mean toy"),
        ("/run", {}, "this address lacks run="),
        ("/step", {"run": "toy", "step": "99"}, "toy has no step 99"),
        ("/step", {"run": "toy", "step": "\u0663"}, "an unreadable step="),
        ("/step", {"run": "toy", "step": "9" * 400}, "an unreadable step="),
        ("/step", {"run": "toy", "step": "0", "after": "1"}, "an unreadable after=1"),
        ("/group", {"run": "toy", "step": "0", "slot": "77"}, "has no group 77"),
        ("/rollout", {"run": "toy", "step": 0, "slot": 0, "attempt": 50}, "no attempt 50"),
        ("/rollouts", {"run": "toy", "only": "<b>"}, "known are all, failed"),
        ("/text", {"run": "toy", "step": 0, "slot": 0, "attempt": 0, "part": "x"}, "no text x"),
        ("/experience", {"run": "toy", "id": "E999"}, "toy has no experience E999"),
        ("/experience", {"run": "toy", "id": "../x"}, "is not an experience"),
        ("/experiences", {"run": "toy/eval"}, "is no practice run"),
        ("/compare", {"a": "toy", "b": "toy"}, "are the same evaluation"),
        ("/questions", {"run": "toy", "against": "nobody"}, "there is no run"),
        ("/../../etc/passwd", {}, "there is no such page"),
        ("/%2e%2e/style.css", {}, "there is no such page"),
    ],
)
async def test_an_address_of_nothing_is_a_sentence(
    project: Project, path: str, given: dict[str, str], said: str
) -> None:
    async with viewing(project.db) as viewer:
        status, text = await viewer.get(path, **given)
        assert status == 404
        page = Page(text)
        is_well_made(page)
        assert said in page.text
        assert viewer.failures == []


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


async def test_a_long_text_is_cut_and_the_rest_is_a_page_of_its_own(project: Project) -> None:
    whole = "".join(f"{n:07d} " for n in range(250_000))
    change(project, "UPDATE rollout_bodies SET response = ?", whole)
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
        assert read == whole
        assert pages == 2_000_000 // rollout_views.PIECE


async def test_many_turns_come_page_by_page(project: Project) -> None:
    many = [{"role": "user", "content": f"turn {n}."} for n in range(10_000)]
    sql = "UPDATE call_bodies SET request = ?, codec = 0, reply = ?"
    change(project, sql, json.dumps(many).encode(), b'{"role": "assistant", "content": "end."}')
    place: dict[str, object] = {"run": "toy", "step": 0, "slot": 0, "attempt": 0}
    async with viewing(project.db) as viewer:
        _, first = await viewer.get("/rollout", **place)
        assert len(first) < 60_000
        page = Page(first)
        assert "turn 39." in page.text
        assert "turn 40." not in page.text
        last = await viewer.page("/rollout", **place, **{"from": 9_980})
        assert "turn 9999." in last.text


async def test_pages_of_rollouts_have_each_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_views, "ROWS", 7)
    async with viewing(project.db) as viewer:
        for only, wanted in (("all", ""), ("wrong", " AND (v.reward IS NULL OR v.reward < 1)")):
            found, after = list[str](), None
            while True:
                _, text = await viewer.get("/rollouts", run="toy", only=only, after=after)
                found += re.findall(r'scope="row"><a href="([^"]+)"', text)
                more = re.search(r'rel="next" href="[^"]*after=([^"&]+)', text)
                if more is None:
                    break
                after = more[1]
            assert len(found) == len(set(found))
            ((n,),) = project.query(
                f"SELECT count(*) FROM v_rollouts v WHERE run_id = 'toy'{wanted}"
            )
            assert len(found) == n > 7


async def test_questions_are_filtered_and_ordered_by_the_address(project: Project) -> None:
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


async def test_a_group_of_one_kind_is_found_by_it(project: Project) -> None:
    async with viewing(project.db) as viewer:
        for status in ("uniform", "distilled"):
            _, text = await viewer.get("/step", run="toy", step=0, status=status)
            sql = """SELECT slot FROM groups WHERE step = 0 AND status = ? ORDER BY slot"""
            slots = [slot for (slot,) in project.query(sql, status)]
            assert [int(n) for n in re.findall(r'slot=(\d+)">group&nbsp;', text)] == slots


async def test_a_run_that_is_deleted_meanwhile_is_no_longer_there(project: Project) -> None:
    async with viewing(project.db) as viewer:
        assert (await viewer.get("/run", run="toy"))[0] == 200
        with Store(project.db) as store:
            store.delete_runs(["toy"])
        for path in ("/run", "/live", "/rollouts", "/questions", "/experiences"):
            status, text = await viewer.get(path, run="toy")
            assert status == 404
            assert "there is no run" in text
        assert (await viewer.get("/"))[0] == 200


async def test_damage_is_a_sentence(project: Project) -> None:
    raw = bytearray(project.db.read_bytes())
    for page in range(4, len(raw) // 4096):
        raw[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    project.db.write_bytes(raw)
    async with viewing(project.db) as viewer:
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


@pytest.mark.parametrize("step", [None, 1])
@pytest.mark.parametrize("only", ["all", "wrong"])
@pytest.mark.parametrize(
    ("sort", "key"),
    [
        ("reward", "coalesce(reward, -1)"),
        ("tokens", "-(tokens_in + tokens_out)"),
        ("time", "-model_ms"),
    ],
)
async def test_rollouts_are_sorted_over_all_pages(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    sort: str,
    key: str,
    only: str,
    step: int | None,
) -> None:
    monkeypatch.setattr(list_views, "ROWS", 3)
    change(project, "UPDATE rollouts SET tokens_out = rollout_id % 7 * 100, model_ms = slot * 10")
    where = "run_id = 'toy'" + (" AND coalesce(reward, 0) < 1" if only == "wrong" else "")
    where += "" if step is None else f" AND step = {step}"
    rows = project.query(f"SELECT step, slot, attempt, {key} FROM v_rollouts WHERE {where}")
    keys = {tuple(place): value for *place, value in rows}
    given = {"run": "toy", "sort": sort, "only": only, "step": step}
    async with viewing(project.db) as viewer:
        links = await viewer.all_pages("/rollouts", **given)
    places = [tuple(map(int, re.findall(r"(?:step|slot|attempt)=(\d+)", link))) for link in links]
    assert sorted(places) == sorted(keys)
    values = [keys[place] for place in places]
    assert values == sorted(values)
    assert len(values) > 3  # more than one page
