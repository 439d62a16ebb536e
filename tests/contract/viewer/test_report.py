import asyncio
from pathlib import Path

import pytest

from tests.contract.command import Gp
from tests.contract.documented import prints_one_document
from tests.contract.project import change
from tests.contract.viewer.viewing import viewing


def test_a_page_is_written_and_its_size_is_said(demo: Gp) -> None:
    ran = demo("report")
    assert ran.code == 0
    assert ran.out == ""
    assert ran.err.startswith("Better, +")
    assert "wrote report.html (" in ran.err
    assert " KB)" in ran.err
    assert "next: grpo-practice export-agent --run demo" in ran.err
    assert Path("report.html").read_text("utf-8").startswith("<!doctype html>")
    assert demo("export-agent", "--run", "demo").code == 0


def test_it_replaces_nothing_unless_it_is_told_to(demo: Gp) -> None:
    Path("report.html").write_text("mine")
    ran = demo("report", "demo")
    assert ran.code == 2
    assert "report.html already exists" in ran.err
    assert Path("report.html").read_text("utf-8") == "mine"
    assert demo("report", "demo", "--force").code == 0
    assert demo("report", "demo").code == 0  # a report can be made again, so it is no loss


def test_markdown_for_a_pull_request(demo: Gp) -> None:
    ran = demo("report", "demo", "--format", "md", "-o", "-")
    assert ran.out.startswith("# demo\n\n**Better**\n\n- scores: ")
    assert demo("report", "demo", "-o", "a.md").code == 0
    assert Path("a.md").read_text("utf-8").startswith("# demo\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("demon",), "there is no run 'demon'"),
        (("demo", "-o", "no/such/folder/r.html"), "cannot write no/such/folder/r.html"),
    ],
)
def test_what_cannot_be_reported_is_said(demo: Gp, words: tuple[str, ...], said: str) -> None:
    ran = demo("report", *words)
    assert ran.code == 2
    assert said in ran.err
    if words[0] == "demon":
        assert "did you mean demo" in ran.err


@pytest.mark.parametrize("words", [("demon",), ("demo", "demon")])
def test_a_misspelt_run_is_said_before_a_file_that_is_there(
    demo: Gp, words: tuple[str, ...]
) -> None:
    Path("report.html").write_text("mine")
    ran = demo("report", *words)
    assert ran.code == 2
    assert "there is no run 'demon'" in ran.err
    assert "already exists" not in ran.err


def test_a_damaged_database_is_said_before_a_file_that_is_there(gp: Gp) -> None:
    Path("report.html").write_text("mine")
    Path("bad.db").write_text("garbage")
    assert "is not a database" in gp("report", "--db", "bad.db").err


def test_a_folder_that_is_missing_can_be_made_by_what_is_hinted(demo: Gp) -> None:
    ran = demo("report", "demo", "-o", "no/such folder/r.html")
    assert ran.code == 2
    assert "hint: mkdir -p 'no/such folder'" in ran.err
    Path("no/such folder").mkdir(parents=True)
    assert demo("report", "demo", "-o", "no/such folder/r.html").code == 0


def test_a_format_that_there_is_not_is_said_without_words_of_a_library(gp: Gp) -> None:
    ran = gp("report", "--format", "pdf")
    assert ran.code == 2
    assert "error: Invalid value for '--format': 'pdf' is not one of 'html', 'md'." in ran.err


def test_without_a_run_the_next_command_makes_one(gp: Gp) -> None:
    assert gp("data", "list").code in (0, 2)
    ran = gp("report")
    assert ran.code == 2
    assert not Path("report.html").exists()


def test_an_evaluation_alone_has_its_score_and_nothing_to_compare_with(demo: Gp) -> None:
    ran = demo("report", "demo/eval", "-o", "e.html")
    assert ran.code == 0
    assert "Scored 0.463; nothing to compare it with." in ran.err
    assert "next: grpo-practice rollouts list demo/eval" in ran.err
    assert demo("rollouts", "list", "demo/eval").code == 0


def test_what_an_evaluation_of_a_library_is_compared_with(demo: Gp) -> None:
    runs = demo("runs", "list", "--json").document["runs"]
    name = next(run["name"] for run in runs if run["name"].startswith("demo/eval/L"))
    ran = demo("report", name, "-o", "-", "--format", "md")
    assert "**Better**" in ran.out
    assert "| demo/eval |" in ran.out


async def viewed(run: str) -> str:
    """Return the run's page in the viewer."""
    async with viewing(Path("grpo-practice.db")) as viewer:
        return (await viewer.get("/run", run=run))[1]


@pytest.mark.long
def test_what_a_person_should_know_stands_on_every_page_of_the_run(demo: Gp) -> None:
    said = "1 comparison failed because a request got no answer"
    for words in (("runs", "show", "demo"), ("report", "demo", "-o", "-")):
        assert said not in demo(*words).out
    where = "branch_id = (SELECT head_branch FROM runs WHERE run_id = 'demo') AND step"
    change(f"UPDATE steps SET unanswered = 1 WHERE {where} = 0")
    odd = '{"merge_failed": "<b>odd"}'
    change(f"UPDATE steps SET status = 'merge_failed', stats = '{odd}' WHERE {where} = 1")
    failed = "the merge of step 1 failed, and the library is unchanged: "
    command = "grpo-practice practice --restart-step 1"
    shown = demo("runs", "show", "demo").out
    assert f"warning  not reproducible: {said}" in shown
    assert f"problem  merge: {failed}<b>odd\n         type: {command}\n" in shown
    assert shown.endswith(f"next: {command}\n")
    assert f"problem  merge: {failed}<b>odd\n" in demo("runs", "diagnose", "demo").out
    markdown = demo("report", "demo", "--format", "md", "-o", "-").out
    assert f"- **warning**: not reproducible: {said}" in markdown
    assert f"- **problem**: merge: {failed}\\<b\\>odd: `{command}`" in markdown
    for page in (demo("report", "demo", "-o", "-").out, asyncio.run(viewed("demo"))):
        assert f"{failed}&lt;b&gt;odd" in page
        assert f"<code>{command}</code>" in page
        assert said in page


@pytest.mark.long_after(1)
@pytest.mark.parametrize(
    "words",
    [
        ("report", "demo", "-o", "a page.html"),
        ("report", "demo", "demo/eval", "-o", "-", "--format", "md"),
    ],
)
def test_the_document_is_all_there_is_and_its_next_command_works(
    demo: Gp, words: tuple[str, ...]
) -> None:
    prints_one_document(demo, words)
