"""The report: what it says is what is stored, and nothing that is stored acts in it."""

import base64
import hashlib
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from typing_extensions import override

from grpo_practice.errors import ConfigError
from grpo_practice.see import shown_rollouts
from grpo_practice.see.story import story_of
from grpo_practice.store import Store
from grpo_practice.workspace import Workspace
from tests.app.project import Project, finished

EVALUATED = "practice.do_eval=true"
VOID = {"meta", "link", "br", "input", "line", "circle", "rect"}


class Page(HTMLParser):
    """A page: its elements, the text that is seen, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags, self.attributes = set[str](), list[tuple[str, str | None]]()
        self.ids, self.links, self.open = list[str](), list[str](), list[str]()
        self.text, self.policy, self.style = "", "", ""
        self.headings = list[int]()
        self.feed(text)
        self.close()
        assert self.open == [], "each element is closed"

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs
        given = dict(attrs)
        if tag == "meta" and given.get("http-equiv"):
            self.policy = given["content"] or ""
        if tag == "a":
            self.links.append(given["href"] or "")
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if "id" in given:
            self.ids.append(given["id"] or "")
        if tag not in VOID:
            self.open.append(tag)

    @override
    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    @override
    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.text += data


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    project = await finished(tmp_path / "p", EVALUATED)
    await project.evaluate()
    return project


def report(project: Project, *runs: str) -> str:
    return Workspace(project.db).report(*runs).text


def seen(page: Page) -> str:
    return " ".join(page.text.split())


async def test_the_first_screen_answers_whether_it_is_better(project: Project) -> None:
    text = report(project, "toy")
    with Store(project.db) as store:
        story = story_of(store, "toy")
    assert story.sentence
    page = Page(text)
    answer = seen(page).index(story.sentence[1:])
    assert answer < seen(page).index("Learning curve")
    known = story.learnt
    assert known is not None
    assert known.before is not None
    assert known.after is not None
    for score in (known.before.score, known.after.score):
        assert f"{score.mean:.3f}" in page.text


async def test_what_is_not_measured_is_said_with_the_command_that_measures_it(
    tmp_path: Path,
) -> None:
    project = await finished(tmp_path / "p")
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


async def test_a_library_that_did_not_change_has_one_mark(project: Project) -> None:
    with Store(project.db) as store:
        story = story_of(store, "toy")
    assert len({m.known.run for m in story.curve}) == len(story.curve)
    assert (story.curve[0].step, story.curve[0].known.run) == (-1, "toy/eval")
    assert report(project, "toy").count('class="mark" cx=') >= len(story.curve)


async def test_each_question_has_a_column_for_each_visit(project: Project) -> None:
    with Store(project.db) as store:
        story = story_of(store, "toy")
    assert list(story.headings) == ["visit 1", "visit 2"]
    assert len(story.questions) == 12
    assert all(len(question.rewards) == 2 for question in story.questions)
    changes = [abs(question.change) for question in story.questions]
    assert changes == sorted(changes, reverse=True)


async def test_groups_that_are_not_shown_take_no_room(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shown_rollouts, "PAIRS", 2)
    with Store(project.db) as store:
        alone = replace(story_of(store, "toy"), questions=[], comparison=None)
        shown = shown_rollouts.choose(store, alone, "x")
    assert (len(shown.pairs), len(shown.rollouts)) == (2, 4)


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
            "UPDATE samples SET question = ? || sample_id, answer = json_quote(?)",
            "UPDATE rollout_bodies SET response = ?1 || ?2",
            "UPDATE rollouts SET head = ?, error = ?, outcome = 'error', reason = 'agent'"
            " WHERE attempt = 2",
            "UPDATE experience_texts SET text = ?1 || ?2",
            "UPDATE lessons SET text = ?1 || ?2",
            "UPDATE verdicts SET extracted = ?, critique = ?",
            "UPDATE datasets SET name = ?1 || dataset_id || ?2",
            "UPDATE calls SET name = ?1 || substr(?2, 1, 0)",
            "UPDATE call_sums SET name = ?1 || substr(?2, 1, 0) || name",
        ):
            db.execute(sql, (texts, texts))
    text = report(project, "toy", "toy/eval")
    page = Page(text)
    harmless = {"html", "head", "meta", "style", "title", "body", "a", "main", "section", "h1"}
    harmless |= {"h2", "h3", "p", "strong", "code", "figure", "table", "caption", "thead", "tr"}
    harmless |= {"th", "span", "tbody", "td", "br", "svg", "line", "circle", "rect", "desc", "text"}
    harmless |= {"figcaption", "dl", "dt", "dd", "nav", "ul", "li", "div", "details", "summary"}
    harmless |= {"article", "pre", "blockquote", "footer"}
    assert page.tags <= harmless
    assert "onerror" not in {name for name, _ in page.attributes}
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7 * 7 }}" in page.text
    for char in "\u202e\u2066\x00\x1b":
        assert char not in text
    assert "\\u202e" in page.text
    assert len(page.policy) < 200


async def test_a_long_text_is_cut_and_the_page_stays_small(project: Project) -> None:
    with closing(sqlite3.connect(project.db)) as db, db:
        db.execute("UPDATE rollout_bodies SET response = ?", ("x" * 2_000_000,))
        db.execute("UPDATE samples SET question = ? || sample_id", ("q" * 2_000_000,))
    text = report(project, "toy")
    assert len(text) < 1_000_000
    assert "more characters]" in text


async def test_markdown_has_the_answer_and_no_markup_of_others(project: Project) -> None:
    with closing(sqlite3.connect(project.db)) as db, db:
        db.execute("UPDATE samples SET question = ? || sample_id", ("a | b\n# c <img> @me ` ",))
        db.execute("UPDATE experience_texts SET text = '<b>x</b> | [y](http://z)'")
    saved = Workspace(project.db).report("toy", format="md")
    with Store(project.db) as store:
        story = story_of(store, "toy")
    plain = re.sub(r"\\(.)", r"\1", saved.text)
    assert story.sentence[1:] in plain
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
    with pytest.raises(ConfigError, match="is there already"):
        ws.report("toy", output=path)
    assert ws.report("toy", output=path, force=True, format="html").text == path.read_text("utf-8")
    with pytest.raises(ConfigError, match="cannot write"):
        ws.report("toy", output=tmp_path / "none" / "a.html")


async def test_a_run_that_is_not_finished_has_a_report(project: Project) -> None:
    with closing(sqlite3.connect(project.db)) as db, db:
        db.execute(
            """UPDATE steps SET status = 'planned', stats = NULL, sums = NULL, library_out = NULL,
                 closed_at = NULL WHERE branch_id = (SELECT head_branch FROM runs
                 WHERE run_id = 'toy')"""
        )
    page = Page(report(project, "toy"))
    assert "0 of 4 steps closed" in page.text


async def test_the_latest_run_is_reported_where_none_is_named(project: Project) -> None:
    assert list(Workspace(project.db).report().runs) == ["toy"]
