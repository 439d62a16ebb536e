"""The viewer's search: plain words, in what is stored, so many rows at a time."""

import re
from pathlib import Path

import pytest

from grpo_practice.see import search_views
from tests.app.project import Project, finished
from tests.see.test_report import EVALUATED, Page
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


async def test_answers_are_looked_through_a_part_at_a_time(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_views, "ANSWERS", 13)
    ((n,),) = project.query("SELECT count(*) FROM v_rollouts WHERE run_id = 'toy'")
    async with viewing(project.db) as viewer:
        found, after, pages = list[str](), None, 0
        while True:
            _, text = await viewer.get("/search", q="step", run="toy", after=after)
            found += [one for one in Page(text).links if one.startswith("./rollout?")]
            pages += 1
            more = re.search(r'rel="next" href="[^"]*after=([^"&]+)', text)
            if more is None:
                break
            after = more[1]
        assert pages == n // 13 + 1
        ((wanted,),) = project.query(
            """SELECT count(*) FROM v_rollouts JOIN rollout_bodies USING (rollout_id)
                WHERE run_id = 'toy' AND response LIKE '%step%'"""
        )
        assert len(found) == len(set(found)) == wanted > 13
