"""The viewer's search: plain words, in what is stored, so many rows at a time."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from grpo_practice.see import search_views
from tests.app.project import Project, finished
from tests.see.test_report import EVALUATED
from tests.see.test_views import change, is_well_made
from tests.see.viewer import viewing


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    project = await finished(tmp_path / "p", EVALUATED)
    await project.evaluate()
    return project


async def test_words_are_found_in_experiences_questions_and_answers(project: Project) -> None:
    change(project, "UPDATE samples SET question = 'All 100% of_it, _\\_ ' WHERE sample_id = 3")
    ((name, slot),) = project.query(
        """SELECT s.run_id, r.slot FROM rollouts r JOIN v_steps s USING (branch_id, step)
            WHERE sample_id = 3 AND run_id = 'toy' LIMIT 1"""
    )
    ((one,),) = project.query("SELECT max(rollout_id) FROM v_rollouts WHERE run_id = 'toy'")
    sql = "UPDATE rollout_bodies SET response = 'and Straße at last' WHERE rollout_id = ?"
    change(project, sql, one)
    async with viewing(project.db) as viewer:
        for words in ("100% of_it", "OF_IT all", "_\\_"):
            page = await viewer.page("/search", q=words)
            assert [link for link in page.links if "sample=3" in link]
        assert not [
            link for link in (await viewer.page("/search", q="10%of")).links if "sample" in link
        ]
        links = (await viewer.page("/questions", run=name, sample=3)).links
        assert [link for link in links if link.startswith("./group") and f"slot={slot}" in link]
        found = await viewer.page("/search", q="LAST strasse", run="toy")
        assert len([link for link in found.links if link.startswith("./rollout?")]) == 1
        ((text, label, run),) = project.query(
            """SELECT text, label, run_id FROM experience_texts JOIN experiences
                USING (experience_id) LIMIT 1"""
        )
        page = await viewer.page("/search", q=text[:40], run=run)
        assert f"./experience?run={run}&id=E{label}" in page.links


@pytest.mark.parametrize(
    "words",
    ['"NEAR(', "* OR 1=1; --", "\x00", "a" * 3_000, "%", '\\"\\', "\u202e <script>", "';'"],
)
async def test_any_words_are_looked_for_as_they_are(project: Project, words: str) -> None:
    async with viewing(project.db) as viewer:
        for run in (None, "toy"):
            page = await viewer.page("/search", q=words, run=run)
            is_well_made(page)
            assert not [
                link for link in page.links if link.startswith(("./rollout?", "./experience?"))
            ]


@pytest.mark.parametrize("run", [None, "toy", "toy/eval"])
async def test_each_answer_with_the_words_is_on_one_page(
    project: Project, monkeypatch: pytest.MonkeyPatch, run: str | None
) -> None:
    monkeypatch.setattr(search_views, "HITS", 5)
    change(project, "UPDATE rollout_bodies SET response = 'no' WHERE rollout_id % 7 = 0")
    held = project.query(
        """SELECT b.run_id, r.step, r.slot, r.attempt FROM rollouts r JOIN branches b
             USING (branch_id) JOIN rollout_bodies USING (rollout_id)
            WHERE response LIKE '%step 2%'"""
    )
    wanted = [place for name, *place in held if run in (None, name)]
    assert len(wanted) > 5
    async with viewing(project.db) as viewer:
        links = await viewer.all_pages("/search", q="2 STEP", run=run)
        for link in links[:2] + links[-2:]:
            name, *at = re.findall(r"=([^&]+)", link)
            place = dict(zip(("step", "slot", "attempt"), at, strict=True))
            page = await viewer.page("/rollout", run=unquote(name), **place)
            assert "Step 2" in page.text
    places = [[int(n) for n in re.findall(r"(?:step|slot|attempt)=(\d+)", one)] for one in links]
    assert sorted(places) == sorted(wanted)
    assert len(set(links)) == len(links)


async def test_answers_that_a_run_scores_again_are_found_once(project: Project) -> None:
    async with viewing(project.db) as viewer:
        before = await viewer.all_pages("/search", q="step")
        await project.evaluate(config=None, run="toy", rejudge=True, verify="exact")
        assert await viewer.all_pages("/search", q="step") == before
        again = await viewer.all_pages("/search", q="step", run="toy/rejudge=exact")
    ((wanted,),) = project.query("SELECT count(*) FROM v_rollouts WHERE run_id = 'toy'")
    assert len(again) == wanted
