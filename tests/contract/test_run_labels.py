"""Labels that people give a run: the name of its arm, tags and a note."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.command import Gp

DB = "grpo-practice.db"


def stored(gp: Gp) -> dict[str, dict[str, Any]]:
    return {run["name"]: run for run in gp("runs", "list", "--json").document["runs"]}


def exported_rows(gp: Gp, run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gp("runs", "export", run).out.splitlines()]


def by_arm(gp: Gp) -> dict[str, dict[str, Any]]:
    return {run["arm"]: run for run in stored(gp).values() if run["arm"]}


def test_arms_keep_their_names_and_how_they_differ(demo: Gp) -> None:
    edited = demo("experiences", "edit", "E1", "--text", "Check: convert the unit first.", "--json")
    library = edited.document["library"]
    exported = demo("export-agent", "--run", "demo", "-o", "pa.yaml")
    assert exported.code == 0
    words = Path("pa.yaml").read_text("utf-8").replace("Solve the", "Please solve the")
    Path("pb.yaml").write_text(words, "utf-8")
    arms = f"none,full,aa,{library},pa.yaml,pb.yaml"
    assert demo("eval", "--run", "demo", "--arms", arms).code == 0
    found = by_arm(demo)
    edit = f'{library} "E1 edited"'
    assert {arm: run["arm_change"] for arm, run in found.items()} == {
        "L3": None,  # evaluated by practice, so it is no arm of this comparison
        "none": None,
        "full": "+10 experiences",
        "aa": "seed 0 → 1",
        edit: "E1 edited; seed 1 → 0",
        "pa.yaml": "other experiences",
        "pb.yaml": found["pb.yaml"]["arm_change"],
    }
    assert "agent.agent.instructions: Solve" in found["pb.yaml"]["arm_change"]
    assert found["pa.yaml"]["agent"] == "demo_agent"
    listed = demo("runs", "list").out
    assert all(arm in listed for arm in (" none ", " full ", edit, "pa.yaml"))
    name = found[edit]["name"]
    assert name in demo("runs", "list", "--grep", "e1 EDIT").out
    shown = demo("runs", "show", name).out
    assert re.search(
        rf"  arm +{edit}\n  differs +from the arm before: E1 edited; seed 1 → 0\n", shown
    )
    assert re.search(r"\n  agent +demo_agent\n  model +sim\n", shown)
    page = demo("report", name, "--format", "md", "-o", "-").out
    assert f"- arm: {edit}" in page
    assert "- differs from the arm before: E1 edited; seed 1 → 0" in page
    rows = exported_rows(demo, name)
    assert {row["arm"] for row in rows} == {edit}


def test_the_newest_comparison_names_an_arm(demo: Gp) -> None:
    assert demo("eval", "--run", "demo", "--arms", "full,none").code == 0
    found = by_arm(demo)
    assert (found["full"]["arm_change"], found["none"]["arm_change"]) == (
        None,
        "\u221210 experiences",
    )
    # A single evaluation names a run only if no comparison did.
    assert demo("export-agent", "--run", "demo", "-o", "pa.yaml").code == 0
    assert demo("eval", "--run", "demo", "--agent", "pa.yaml").code == 0
    assert by_arm(demo)["pa.yaml"]["arm_change"] is None
    assert demo("eval", "--run", "demo", "--arms", "none,pa.yaml").code == 0
    assert demo("eval", "--run", "demo", "--agent", "./pa.yaml").code == 0
    assert by_arm(demo)["pa.yaml"]["arm_change"] == "experiences in the instructions"


def test_tags_and_a_note_are_kept_found_and_exported(demo: Gp) -> None:
    ran = demo("runs", "tag", "demo", "baseline", "v1")
    assert ran.out == (
        "demo\n  tags  baseline v1\n  note  none\n"
        "next: grpo-practice runs list --tag baseline --tag v1\n"
    )
    demo("runs", "note", "demo", "Half of <b>the</b> questions.")
    document = demo("runs", "tag", "demo", "v2", "v2", "--remove", "v1", "--json").document
    assert document["tags"] == ["baseline", "v2"]
    assert document["note"] == "Half of <b>the</b> questions."
    assert list(stored(demo)) != ["demo"]
    for words in (("--tag", "v2"), ("--grep", "HALF of"), ("--tag", "v2", "--tag", "baseline")):
        listed = demo("runs", "list", "--json", *words).document["runs"]
        assert [run["name"] for run in listed] == ["demo"]
    assert demo("runs", "list", "--tag", "v2", "--tag", "v1", "--json").document["runs"] == []
    assert "baseline v2" in demo("runs", "list").out
    assert "  note" in demo("runs", "show", "demo").out
    rows = exported_rows(demo, "demo")
    assert {(row["tags"], row["note"]) for row in rows} == {("baseline v2", document["note"])}
    page = demo("report", "demo", "-o", "-").out
    assert "Half of &lt;b&gt;the&lt;/b&gt; questions." in page
    assert "<b>the" not in page
    assert demo("runs", "note", "demo", "", "--json").document["note"] == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tag", "demo", "two words"), "a tag is one word of at most 40 characters"),
        (("tag", "demo", "a,b"), "a tag is one word"),
        (("tag", "demo", "x" * 41), "a tag is one word"),
        (("tag", "demo", "a\u202eb"), "a tag is one word"),
        (("tag", "demo", ""), "a tag is one word"),
        (("tag", "demo", "--remove", "x"), "demo has no tag 'x'"),
        (("tag", "demo", *map(str, range(21))), "demo would have 21 tags; a run may have 20"),
        (("note", "demo", "x" * 2001), "the note has 2,001 characters; 2,000 are allowed"),
        (("note", "nobody", "x"), "there is no run 'nobody'"),
    ],
)
def test_texts_that_are_not_allowed_change_nothing(
    demo: Gp, words: tuple[str, ...], said: str
) -> None:
    ran = demo("runs", *words)
    assert (ran.code, said in ran.err) == (2, True), ran.err
    assert stored(demo)["demo"]["tags"] == []
    assert stored(demo)["demo"]["note"] == ""


def test_control_characters_of_a_note_become_spaces(demo: Gp) -> None:
    with Workspace(DB) as workspace:
        workspace.label_run("demo", note=" a\x1b[31mb\r\nc\x9bd\ud800 \n")
        note = workspace.label_run("demo").run.note
    assert note == "a [31mb\nc d\ufffd"
