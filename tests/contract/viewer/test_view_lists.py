"""Lists of the viewer that are longer than a page, and its search."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest

from grpo_practice import Workspace
from tests.contract.project import Project, evaluated
from tests.contract.viewer.viewing import is_well_made, viewing


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    return await evaluated(tmp_path / "p")


@pytest.fixture
async def large(tmp_path: Path) -> Project:
    """Return a project whose steps have more attempts than a page shows."""
    return await evaluated(tmp_path / "p", "practice.grpo_n=9", "practice.epochs=1")


SORTS = {
    None: "rollout_id * 0",
    "reward": "coalesce(reward, -1)",
    "tokens": "-(tokens_in + tokens_out)",
    "time": "-model_ms",
}


async def test_an_imported_run_is_marked_in_the_list_and_on_its_page(project: Project) -> None:
    project.change("UPDATE runs SET imported = 1 WHERE run_id = 'toy/eval'")
    async with viewing(project.db) as viewer:
        _, text = await viewer.get("/")
        rows = [row.partition("</th>")[0] for row in text.split("<tr>")]
        marked = [row for row in rows if ">imported</span>" in row]
        assert ['run=toy%2Feval"' in row for row in marked] == [True]
        for name, said in (("toy/eval", True), ("toy", False)):
            _, text = await viewer.get("/run", run=name)
            told = "<dt>imported</dt><dd>from another database: its scores are what its author says"
            assert (told in text) == said


@pytest.mark.long
async def test_rollouts_are_sorted_and_each_is_on_one_page(large: Project) -> None:
    large.change("UPDATE rollouts SET tokens_out = rollout_id % 7 * 100, model_ms = slot * 10")
    large.change("UPDATE verdicts SET reward = 0 WHERE rollout_id % 9")
    async with viewing(large.db) as viewer:
        for sort, key in SORTS.items():
            for only in ("all", "wrong"):
                for step in (None, 1):
                    where = "run_id = 'toy'"
                    where += " AND coalesce(reward, 0) < 1" if only == "wrong" else ""
                    where += "" if step is None else f" AND step = {step}"
                    sql = f"SELECT step, slot, attempt, {key} FROM v_rollouts WHERE {where}"
                    keys = {tuple(place): value for *place, value in large.query(sql)}
                    links = await viewer.all_pages(
                        "/rollouts", run="toy", sort=sort, only=only, step=step
                    )
                    places = [
                        tuple(map(int, re.findall(r"(?:step|slot|attempt)=(\d+)", link)))
                        for link in links
                    ]
                    assert sorted(places) == sorted(keys), (sort, only, step)
                    values = [keys[place] for place in places]
                    assert values == sorted(values), (sort, only, step)
                    assert len(values) > (45 if only == "wrong" and step else 50)


async def test_words_are_found_in_experiences_questions_and_answers(project: Project) -> None:
    project.change("UPDATE samples SET question = 'All 100% of_it, _\\_ ' WHERE sample_id = 3")
    ((name, slot),) = project.query(
        """SELECT s.run_id, r.slot FROM rollouts r JOIN v_steps s USING (branch_id, step)
            WHERE sample_id = 3 AND run_id = 'toy' LIMIT 1"""
    )
    ((one,),) = project.query("SELECT max(rollout_id) FROM v_rollouts WHERE run_id = 'toy'")
    sql = "UPDATE rollout_bodies SET response = 'and Straße at last' WHERE rollout_id = ?"
    project.change(sql, one)
    ((text, label, run),) = project.query(
        """SELECT text, label, run_id FROM experience_texts JOIN experiences
            USING (experience_id) LIMIT 1"""
    )
    odd = ['"NEAR(', "* OR 1=1; --", "\x00", "a" * 3_000, '\\"\\', "\u202e <script>", "';'"]
    async with viewing(project.db) as viewer:
        for words in ("100% of_it", "OF_IT all", "_\\_"):
            page = await viewer.page("/search", q=words)
            assert [link for link in page.links if "sample=3" in link], words
        links = (await viewer.page("/search", q="10%of")).links
        assert not [link for link in links if "sample" in link]
        links = (await viewer.page("/questions", run=name, sample=3)).links
        assert [link for link in links if link.startswith("./group") and f"slot={slot}" in link]
        found = await viewer.page("/search", q="LAST strasse", run="toy")
        assert len([link for link in found.links if link.startswith("./rollout?")]) == 1
        page = await viewer.page("/search", q=text[:40], run=run)
        assert f"./experience?run={run}&id=E{label}" in page.links
        for words in odd:
            for run in (None, "toy"):
                page = await viewer.page("/search", q=words, run=run)
                is_well_made(page)
                hits = ("./rollout?", "./experience?")
                assert not [link for link in page.links if link.startswith(hits)], words


@pytest.mark.long
async def test_each_answer_with_the_words_is_on_one_page(large: Project) -> None:
    large.change("UPDATE rollout_bodies SET response = 'no' WHERE rollout_id % 7 = 0")
    held = large.query(
        """SELECT b.run_id, r.step, r.slot, r.attempt FROM rollouts r JOIN branches b
             USING (branch_id) JOIN rollout_bodies USING (rollout_id)
            WHERE response LIKE '%step 2%'"""
    )
    async with viewing(large.db) as viewer:
        for run in (None, "toy", "toy/eval"):
            wanted = [place for name, *place in held if run in (None, name)]
            links = await viewer.all_pages("/search", q="2 STEP", run=run)
            for link in links[:2] + links[-2:]:
                name, *at = re.findall(r"=([^&]+)", link)
                place = dict(zip(("step", "slot", "attempt"), at, strict=True))
                page = await viewer.page("/rollout", run=unquote(name), **place)
                assert "Step 2" in page.text
            places = [
                [int(n) for n in re.findall(r"(?:step|slot|attempt)=(\d+)", one)] for one in links
            ]
            assert sorted(places) == sorted(wanted)
            assert len(set(links)) == len(links)
            assert run == "toy/eval" or len(links) > 40, "more than a page shows"
        before = await viewer.all_pages("/search", q="step")
        await Workspace(large.db).evaluate_async(run="toy", rejudge=True, verify="exact", env={})
        assert await viewer.all_pages("/search", q="step") == before, "found once"
        again = await viewer.all_pages("/search", q="step", run="toy/rejudge=exact")
    ((answers,),) = large.query(
        """SELECT count(*) FROM v_rollouts JOIN rollout_bodies USING (rollout_id)
            WHERE run_id = 'toy' AND response LIKE '%step%'"""
    )
    assert len(again) == answers
