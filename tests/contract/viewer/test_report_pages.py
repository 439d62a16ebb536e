"""The page of a report: what it says is what is stored, and nothing that is stored acts in it."""

import base64
import hashlib
import re
import sqlite3
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from grpo_practice import Workspace
from tests.contract.project import Project, evaluated
from tests.contract.viewer.viewing import Page


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    return await evaluated(tmp_path / "p")


def report(project: Project, *runs: str) -> str:
    text: str = Workspace(project.db).report(*runs).text
    return text


def seen(page: Page) -> str:
    return " ".join(page.text.split())


async def test_it_says_first_whether_it_is_better_then_where_each_question_stands(
    project: Project,
) -> None:
    text = report(project, "toy")
    page = Page(text)
    (answer,) = Workspace(project.db).report("toy", format="md").answers
    assert re.match(r"Better, |Worse, |No difference found, |Not enough ", answer)
    assert seen(page).index(answer.partition(",")[0]) < seen(page).index("Learning curve")
    listed = Workspace(project.db).runs()
    scores = [listed.scores[run.name] for run in listed.runs if run.kind == "eval"]
    assert len(scores) == 3
    # A library that did not change is measured once, and has one mark.
    assert text.count('class="mark" cx=') >= len(scores)
    markdown = Workspace(project.db).report("toy", format="md").text
    for score in (scores[0], scores[-1]):
        assert f"{score:.3f}" in page.text
        assert f"| {score:.3f} |" in markdown
    # Each question has a column for each visit, the largest change first.
    assert page.text.count("visit 1") == page.text.count("visit 2") >= 1
    asked = project.query(
        """SELECT DISTINCT question FROM v_rollouts JOIN samples USING (sample_id)
            WHERE run_id = 'toy'"""
    )
    assert len(asked) == 12
    for (question,) in asked:
        assert question[:40] in page.text
    rows = markdown.partition("| question | visit 1 | visit 2 | change |")[2].splitlines()[2:]
    found = [re.search(r"([+\u2212])([\d.]+) \|$", row) for row in rows if row.startswith("|")]
    changes = [float(change[2]) for change in found if change]
    assert len(changes) > 2
    assert changes == sorted(changes, reverse=True)


async def test_what_is_not_measured_is_said_with_the_command_that_measures_it(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path / "p")
    await project.practise("practice.epochs=1")
    text = seen(Page(report(project, "toy")))
    assert "Not measured yet" in text
    assert "grpo-practice eval --arms none,full --run toy" in text


async def test_a_page_loads_nothing_and_its_links_lead_into_it(project: Project) -> None:
    page = Page(report(project, "toy", "toy/eval"))
    digest = base64.b64encode(hashlib.sha256(page.style.encode()).digest()).decode()
    assert page.policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    names = {name for name, _ in page.attributes}
    assert not {name for name in names if name.startswith("on")}
    assert not names & {"style", "src", "srcset", "action", "formaction", "xlink:href"}
    assert not page.tags & {"script", "iframe", "object", "embed", "link", "img", "form", "base"}
    assert len(page.ids) == len(set(page.ids))
    assert {link[0] for link in page.links} == {"#"}
    assert {link[1:] for link in page.links} <= set(page.ids)
    assert all(later - earlier <= 1 for earlier, later in pairwise(page.headings))


HOSTILE = [
    "<script>alert(1)</script>",
    "</style><script>alert(2)</script>",
    '"><img src=x onerror=alert(3)>',
    "javascript:alert(4)",
    "</title><svg onload=alert(5)>",
    "{{ 7 * 7 }} {% include 'base.html' %}",
    "a\u202eb\x00c\x1b[2Jd\u2066",
    "]]><!--",
]


async def test_nothing_that_is_stored_acts(project: Project) -> None:
    texts = " ".join(HOSTILE)
    with closing(sqlite3.connect(project.db)) as db, db:
        for sql in (
            "UPDATE samples SET question = :text || sample_id, answer = json_quote(:text)",
            "UPDATE rollout_bodies SET response = :text || :text",
            "UPDATE rollouts SET head = :text, error = :text, outcome = 'error', reason = 'agent'"
            " WHERE attempt = 2",
            "UPDATE experience_texts SET text = :text || :text",
            "UPDATE lessons SET text = :text || :text",
            "UPDATE verdicts SET extracted = :text, critique = :text",
            "UPDATE datasets SET name = :text || dataset_id || :text",
            "UPDATE calls SET name = :text || substr(:text, 1, 0)",
            "UPDATE call_sums SET name = :text || substr(:text, 1, 0) || name",
        ):
            db.execute(sql, {"text": texts})
    text = report(project, "toy", "toy/eval")
    page = Page(text)
    harmless = {"html", "head", "meta", "style", "title", "body", "a", "main", "section", "h1"}
    harmless |= {"h2", "h3", "p", "strong", "code", "figure", "table", "caption", "thead", "tr"}
    harmless |= {"th", "span", "tbody", "td", "br", "svg", "line", "circle", "rect", "desc", "text"}
    harmless |= {"figcaption", "dl", "dt", "dd", "nav", "ul", "li", "div", "details", "summary"}
    harmless |= {
        "article",
        "pre",
        "blockquote",
        "footer",
        "wbr",
        "math",
        "mrow",
        "mi",
        "mn",
        "mo",
        "mfrac",
        "msub",
    }
    assert page.tags <= harmless
    assert "onerror" not in {name for name, _ in page.attributes}
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7 * 7 }}" in page.text
    for char in "\u202e\u2066\x00\x1b":
        assert char not in text
    assert "\\u202e" in page.text
    assert len(page.policy) < 200


async def test_a_long_text_is_cut_and_the_page_stays_small(project: Project) -> None:
    project.change("UPDATE rollout_bodies SET response = ?", "x" * 50_000)
    project.change("UPDATE samples SET question = ? || sample_id", "q" * 50_000)
    text = report(project, "toy")
    assert len(text) < 1_000_000
    assert "more characters]" in text


async def test_markdown_has_the_answer_and_no_markup_of_others(project: Project) -> None:
    project.change("UPDATE samples SET question = ? || sample_id", "a | b\n# c <img> @me ` ")
    project.change("UPDATE experience_texts SET text = '<b>x</b> | [y](http://z)'")
    saved = Workspace(project.db).report("toy", format="md")
    assert saved.answers[0][1:] in re.sub(r"\\(.)", r"\1", saved.text)
    for line in saved.text.splitlines():
        assert not re.search(r"(?<!\\)[<>@\[\]]", line), line
        if line.startswith("|"):
            assert len(re.findall(r"(?<!\\)\|", line)) >= 3
    assert not re.search(r"^# c", saved.text, re.MULTILINE)


async def test_a_report_is_written_whole_and_replaces_nothing(
    project: Project, tmp_path: Path
) -> None:
    ws, path = Workspace(project.db), tmp_path / "a.md"
    saved = ws.report("toy", output=path)
    assert (saved.format, path.read_text("utf-8")) == ("md", saved.text)
    with pytest.raises(Exception, match="already exists"):
        ws.report("toy", output=path)
    assert ws.report("toy", output=path, force=True, format="html").text == path.read_text("utf-8")
    with pytest.raises(Exception, match="cannot write"):
        ws.report("toy", output=tmp_path / "none" / "a.html")


async def test_a_run_that_is_not_finished_has_a_report(project: Project) -> None:
    project.change(
        """UPDATE steps SET status = 'planned', stats = NULL, sums = NULL, library_out = NULL,
                 closed_at = NULL WHERE branch_id = (SELECT head_branch FROM runs
                 WHERE run_id = 'toy')"""
    )
    page = Page(report(project, "toy"))
    assert "0 of 4 steps closed" in page.text


async def test_the_latest_run_is_reported_where_none_is_named(project: Project) -> None:
    assert list(Workspace(project.db).report().runs) == ["toy"]
