"""Each page in a real browser: readable by everybody, quiet, and the same without script."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import urlencode

import pytest

from grpo_practice import Workspace
from tests.browser.browser import NARROW, WIDE, Scheme, browsing, file_url
from tests.contract.hostile_texts import ATTACKS, fill
from tests.contract.viewer.viewing import viewing
from tests.run.project import Project, finished

pytestmark = pytest.mark.long

MANY = ("practice.do_eval=true", "practice.grpo_n=10", "practice.epochs=4")
"""Settings under which a practice has about 500 rollouts, and its evaluations more."""
_AT = {"run": "toy", "step": 1, "slot": 0}
PAGES: Mapping[str, tuple[str, Mapping[str, object]]] = {
    "runs": ("/", {}),
    "run": ("/run", {"run": "toy"}),
    "evaluation": ("/run", {"run": "toy/eval"}),
    "step": ("/step", {"run": "toy", "step": 1}),
    "group": ("/group", _AT),
    "rollout": ("/rollout", {**_AT, "attempt": 0}),
    "text": ("/text", {**_AT, "attempt": 0, "part": "system"}),
    "rollouts": ("/rollouts", {"run": "toy"}),
    "sorted": ("/rollouts", {"run": "toy", "sort": "tokens"}),
    "wrong": ("/rollouts", {"run": "toy", "only": "wrong"}),
    "questions": ("/questions", {"run": "toy"}),
    "failures": ("/failures", {"run": "toy"}),
    "experiences": ("/experiences", {"run": "toy"}),
    "experience": ("/experience", {"run": "toy", "id": "E1"}),
    "compare-choice": ("/compare", {}),
    "compare": ("/compare", {"a": "toy", "b": "toy/eval"}),
    "search": ("/search", {"q": "the"}),
    "error": ("/run", {"run": "nobody"}),
    "nowhere": ("/nowhere", {}),
}
"""Name → path and values of each page of the viewer."""
ABSENT = ("error", "nowhere")
"""Names of those that say that something is not there."""
LOOKS = [(scheme, width) for scheme in ("light", "dark") for width in (WIDE, NARROW)]


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    project = await finished(tmp_path / "p", *MANY)
    await project.evaluate()
    ((rollouts,),) = project.query("SELECT count(*) FROM rollouts")
    assert rollouts >= 500
    return project


def nothing(project: Project) -> None:
    """Leave a project as it is."""


def hostile(project: Project) -> None:
    """Put hostile texts everywhere."""
    fill(project.db, ATTACKS)


def saved_report(project: Project) -> Path:
    path = project.folder / "report.html"
    Workspace(project.db).report("toy", "toy/eval", output=path)
    return path


@pytest.mark.parametrize("change", [nothing, hostile])
@pytest.mark.parametrize(("scheme", "width"), LOOKS)
async def test_each_page_is_readable_and_quiet(
    project: Project, scheme: Scheme, width: int, change: Callable[[Project], None]
) -> None:
    change(project)
    sign, faults = f"{change.__name__}-{scheme}-{width}", list[str]()
    async with (
        viewing(project.db) as viewer,
        browsing(viewer.base, scheme=scheme, width=width) as window,
    ):
        await window.look(f"{viewer.base}/")
        for name, (path, values) in PAGES.items():
            status = await window.look(f"{viewer.base}{path}?{urlencode(values)}")
            # Where each attempt has failed, there are no scores to compare.
            absent = name in ABSENT or (name == "compare" and change is hostile)
            assert status == (404 if absent else 200), name
            found = await window.faults(f"{name}-{sign}")
            # The browser itself notes the status of a page that is not there.
            faults += [one for one in found if "status of 404" not in one]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("change", [nothing, hostile])
@pytest.mark.parametrize(("scheme", "width"), LOOKS)
async def test_the_report_is_readable_and_quiet(
    project: Project, scheme: Scheme, width: int, change: Callable[[Project], None]
) -> None:
    change(project)
    url = file_url(saved_report(project))
    async with browsing(url, scheme=scheme, width=width) as window:
        await window.look(url)
        closed = await window.faults(f"report-{change.__name__}-{scheme}-{width}")
        await window.page.evaluate(
            "() => document.querySelectorAll('details').forEach(one => { one.open = true })"
        )
        opened = await window.faults(f"report-{change.__name__}-{scheme}-{width}-open")
    assert not closed + opened, "\n".join(closed + opened)


async def test_each_page_is_the_same_without_script(project: Project) -> None:
    async with (
        viewing(project.db) as viewer,
        browsing(viewer.base) as scripted,
        browsing(viewer.base, script=False) as plain,
    ):
        for window in (scripted, plain):
            await window.look(f"{viewer.base}/")
        for path, values in PAGES.values():
            texts = list[str]()
            for window in (scripted, plain):
                await window.look(f"{viewer.base}{path}?{urlencode(values)}")
                texts.append(await window.page.inner_text("main"))
            assert texts[0] == texts[1]
            assert texts[0]


async def test_keys_alone_lead_from_the_score_to_a_transcript(project: Project) -> None:
    async with viewing(project.db) as viewer, browsing(viewer.base) as window:
        await window.look(f"{viewer.base}/")
        for href in ("./run?run=toy", "./questions?run=toy", "./group?", "./rollout?"):
            await window.tab_to(href)
            async with window.page.expect_navigation():
                await window.page.keyboard.press("Enter")
        assert "/rollout?" in window.page.url
        assert "\\boxed{" in await window.page.inner_text("main")
    url = file_url(saved_report(project))
    async with browsing(url) as window:
        await window.look(url)
        await window.tab_to("#x0r")  # an attempt beside its group's worst one
        await window.page.keyboard.press("Enter")
        card = window.page.locator(f"[id='{window.page.url.partition('#')[2]}']")
        assert "\\boxed{" in await card.inner_text()


async def test_the_report_is_printed_whole(project: Project) -> None:
    url = file_url(saved_report(project))
    async with browsing(url, scheme="dark") as window:
        await window.look(url)
        printed = await window.page.pdf(path=project.folder / "report.pdf", format="A4")
        assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 2
        # A4 without its margins, at 96 px an inch: charts are no wider, and on one page each.
        await window.page.emulate_media(media="print")
        await window.page.set_viewport_size({"width": 718, "height": 1000})
        charts = await window.page.evaluate(
            """() => [...document.querySelectorAll('svg')].map(one => {
              const box = one.getBoundingClientRect();
              const kept = one.closest('figure, tr') ?? one;
              return [box.right, box.height, getComputedStyle(kept).breakInside];
            })"""
        )
        assert charts
        assert all(right <= 718 and high < 1000 for right, high, _ in charts), charts
        assert {kept for _, _, kept in charts} == {"avoid"}
        ground = "() => getComputedStyle(document.body).backgroundColor"
        assert await window.page.evaluate(ground) in ("rgb(255, 255, 255)", "rgba(0, 0, 0, 0)")
