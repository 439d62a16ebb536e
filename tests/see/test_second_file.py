"""Lists that are read from the second file: the same rows as without it, and never an error."""

import re
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote

import pytest

from grpo_practice.events import Event
from grpo_practice.see import list_views, search_views
from grpo_practice.see.second_file import SecondFile
from grpo_practice.store.reading import open_to_look
from grpo_practice.store.sidecar import Sidecar, path_of
from grpo_practice.workspace import Workspace
from tests.app.project import Project, finished
from tests.see.test_report import EVALUATED, Page
from tests.see.test_server import shown
from tests.see.test_views import change
from tests.see.viewer import Viewer, viewing


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    project = await finished(tmp_path / "p", EVALUATED)
    await project.evaluate()
    return project


def make_file(project: Project) -> None:
    with closing(Sidecar(project.db)) as sidecar, closing(open_to_look(project.db)) as db:
        while not sidecar.refresh(db).complete:
            pass


async def all_pages(viewer: Viewer, path: str, **given: object) -> list[str]:
    """Return the links to rollouts on a list's pages, one after the other."""
    found, pages = list[str](), 0
    while True:
        status, text = await viewer.get(path, **given)
        assert (status, viewer.failures) == (200, [])
        found += [link for link in Page(text).links if link.startswith("./rollout?")]
        pages += 1
        more = re.search(r'rel="next" href="[^"]*(after|past)=([^"&]+)', text)
        if more is None:
            assert pages > 1
            return found
        given[more[1]] = unquote(more[2])


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
    project: Project, monkeypatch: pytest.MonkeyPatch, sort: str, key: str, only: str
) -> None:
    monkeypatch.setattr(list_views, "ROWS", 7)
    monkeypatch.setattr(list_views, "SORTED", 0)  # without the file there would be none
    make_file(project)
    where = "run_id = 'toy'" + (" AND coalesce(reward, 0) < 1" if only == "wrong" else "")
    rows = project.query(f"SELECT step, slot, attempt, {key} FROM v_rollouts WHERE {where}")
    keys = {tuple(place): value for *place, value in rows}
    async with viewing(project.db) as viewer:
        links = await all_pages(viewer, "/rollouts", run="toy", sort=sort, only=only)
    places = [tuple(map(int, re.findall(r"(?:step|slot|attempt)=(\d+)", link))) for link in links]
    assert sorted(places) == sorted(keys)
    values = [keys[place] for place in places]
    assert values == sorted(values)


async def test_answers_of_all_runs_are_found_by_their_words(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_views, "HITS", 9)
    make_file(project)
    ((n,),) = project.query(
        "SELECT count(*) FROM rollout_bodies WHERE response LIKE '%Step 2%' COLLATE NOCASE"
    )
    ((of_toy,),) = project.query("SELECT count(*) FROM v_rollouts WHERE run_id = 'toy'")
    async with viewing(project.db) as viewer:
        links = await all_pages(viewer, "/search", q="step 2")
        assert len(set(links)) == len(links) == n > of_toy
        for link in links[:2] + links[-2:]:
            run, *place = re.findall(r"=([^&]+)", link)
            given = dict(zip(("step", "slot", "attempt"), place, strict=True))
            page = await viewer.page("/rollout", run=unquote(run), **given)
            assert "Step 2" in page.text
        assert len(await all_pages(viewer, "/search", q="STEP", run="toy")) == of_toy


@pytest.mark.parametrize("words", ['"', "step NEAR(2", "* OR 1=1", "\x00", "ste*zq", "a" * 3_000])
async def test_nothing_in_the_words_is_an_operator(project: Project, words: str) -> None:
    make_file(project)
    async with viewing(project.db) as viewer:
        page = await viewer.page("/search", q=words)
        assert not [link for link in page.links if link.startswith("./rollout?")]


@pytest.mark.parametrize("harm", [b"", b"no database at all" * 500, None])
async def test_a_file_that_is_not_right_is_done_without(
    project: Project, harm: bytes | None
) -> None:
    make_file(project)
    path = path_of(project.db)
    if harm is None:  # whole in its first page alone
        raw = path.read_bytes()
        path.write_bytes(raw[:4096] + b"\xff" * (len(raw) - 4096))
    else:
        path.write_bytes(harm)
    async with viewing(project.db) as viewer:
        page = await viewer.page("/rollouts", run="toy", sort="tokens")
        assert len([link for link in page.links if link.startswith("./rollout?")]) == 50
        assert "Parts of words" in (await viewer.page("/search", q="step", run="toy")).text


async def test_it_is_made_while_pages_are_shown(project: Project) -> None:
    said = list[str]()
    with closing(SecondFile(project.db, said.append)) as second:
        assert second.made.wait(600)
        async with viewing(project.db) as viewer:
            assert "Words that begin so" in (await viewer.page("/search", q="step")).text
    assert path_of(project.db).stat().st_mode & 0o777 == 0o600
    assert said == []


async def test_where_it_cannot_be_made_it_is_said_and_pages_are_shown(project: Project) -> None:
    path_of(project.db).mkdir()
    events = list[Event]()
    await shown(Workspace(project.db), events)
    change(project, "UPDATE runs SET simulated = simulated")
    (said,) = events
    assert "lists are sorted and searched in parts only" in str(said)
