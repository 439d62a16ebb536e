"""The matrix of questions by runs: who is right, what was said, and its filters."""

import re
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.contract.project import evaluated
from tests.contract.viewer.viewing import Page, is_well_made, viewing


async def test_the_page_shows_questions_expected_and_actual_answers(tmp_path: Path) -> None:
    project = await evaluated(tmp_path / "p")
    names = [name for (name,) in project.query("SELECT run_id FROM runs WHERE kind = 'eval'")]
    with closing(sqlite3.connect(project.db)) as db, db:
        db.execute("UPDATE runs SET arm = 'brief.yaml' WHERE run_id = ?", (names[0],))
    asked, answers = project.query(
        """SELECT question, answer FROM samples JOIN dataset_rows USING (sample_id)
            WHERE dataset_id = (SELECT dataset_id FROM branches WHERE run_id = 'toy/eval')"""
    )[0]
    async with viewing(project.db) as viewer:
        _, choice = await viewer.get("/compare")
        assert f"{len(names)} evaluations" in choice
        status, text = await viewer.get("/matrix", runs=",".join(names[:2]))
        page = Page(text)
        is_well_made(page)
        assert status == 200
        assert asked in page.text
        assert answers.strip('"') in page.text
        assert ">1 brief.yaml<" in text, "as it was typed"
        assert re.search(r">2 L[0-9]+<", text)
        filters = re.findall(r">(only \d .*?)</a>", text)
        assert filters[0] == "only 1 brief.yaml right"
        assert re.fullmatch("only 2 L[0-9]+ right", filters[1])
        totals = {}
        for only in ("all", "disagree", "all_wrong", "all_right", "only_1", "only_2"):
            _, text = await viewer.get("/matrix", runs=",".join(names[:2]), only=only)
            found = re.search(r"<caption>(\d+) question", text)
            totals[only] = int(found[1]) if found else 0
        parts = ("all_wrong", "all_right", "only_1", "only_2")
        assert totals["all"] == sum(totals[part] for part in parts) > 0
        for runs, why in (("toy/eval", "2 to 8 runs"), ("toy,toy/eval", "has no scores")):
            status, text = await viewer.get("/matrix", runs=runs)
            assert (status, why in text) == (404, True), text
