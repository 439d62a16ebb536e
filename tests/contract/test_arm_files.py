"""`eval --arms` with files that a person edits."""

import json
import re
from pathlib import Path

import pytest

from grpo_practice import Workspace
from tests.contract.advice import next_words
from tests.contract.command import Gp
from tests.contract.project import DB
from tests.contract.test_arms import arms, asked, query, size


@pytest.mark.long
def test_a_changed_agent_file_is_another_arm(demo: Gp) -> None:
    words, text = ("eval", "--arms", "none,pa.yaml"), Path("agent.yaml").read_text("utf-8")
    Path("pa.yaml").write_text(text, "utf-8")
    first = arms(demo, *words)
    assert first["pa.yaml"] == "demo/eval/pa"
    Path("pa.yaml").write_text(text.replace("Solve the", "Solve this"), "utf-8")
    before = asked()
    ran = demo(*words)
    assert ran.code == 0, ran.err
    assert "already complete, and not played again: demo/eval (" in ran.err
    assert asked() - before == 80
    (edited,) = re.findall(r"demo/eval/pa@[0-9a-f]{6}", ran.out)[:1]
    assert (
        f"pa.yaml has changed since demo/eval/pa was played, so this evaluation is called {edited}"
        in ran.err
    )
    assert demo(*next_words(ran.out)).code == 0
    # Each text of the file keeps its run, whatever was played in between.
    assert arms(demo, *words)["pa.yaml"] == edited
    assert demo("eval", "--agent", "pa.yaml", "--json").document["run"] == edited
    assert demo("runs", "compare", "demo/eval/pa", edited).code == 0
    Path("pa.yaml").write_text(text, "utf-8")
    assert arms(demo, *words) == first
    assert demo("eval", "--agent", "pa.yaml", "--json").document["run"] == first["pa.yaml"]
    assert asked() - before == 80


def test_an_agent_file_that_was_never_answered_keeps_its_name(demo: Gp) -> None:
    text = Path("agent.yaml").read_text("utf-8")
    Path("pa.yaml").write_text(text.replace("Solve the", "Solve a"), "utf-8")
    paused = demo("eval", "--agent", "pa.yaml", "--run", "demo", "--max-requests", "0")
    assert paused.code == 6, paused.err
    Path("pa.yaml").write_text(text.replace("Solve the", "Solve this"), "utf-8")
    ran = demo("eval", "--agent", "pa.yaml", "--run", "demo", "--json")
    assert ran.document["run"] == "demo/eval/pa"


def test_exports_of_weights_are_arms_by_the_names_of_their_folders(demo: Gp) -> None:
    text = Path("agent.yaml").read_text("utf-8")
    for folder, instructions in (("one", "Solve this"), ("two", "Solve a")):
        Path(folder).mkdir()
        Path(folder, "training.json").write_text("{}", "utf-8")
        Path(folder, "agent.yaml").write_text(text.replace("Solve the", instructions), "utf-8")
    played = arms(demo, "eval", "--arms", "none,one/agent.yaml,two/agent.yaml")
    assert played["one/agent.yaml"] == "demo/eval/one"
    assert played["two/agent.yaml"] == "demo/eval/two"


HAND = ["Check: Read the question twice.", "Units: Name the unit of each number."]
FORMS = {
    "list.yaml": json.dumps(HAND),
    "mapping.yaml": json.dumps({"E1": HAND[0], "E4": HAND[1]}),
    "exported.json": json.dumps({"name": "n", "experiences": [{"text": text} for text in HAND]}),
}
ASKED = ("--model", "sim", "--dataset", "q.jsonl", "--verify", "exact")


@pytest.mark.long
def test_a_library_written_by_hand_stands_beside_what_was_learnt(demo: Gp) -> None:
    Path("hand.yaml").write_text(json.dumps(HAND), "utf-8")
    runs = arms(demo, "eval", "--arms", "none,hand.yaml,full,filler,agent.yaml")
    assert len(set(runs.values())) == 5
    Path("hand.yaml").write_text(json.dumps(HAND[:1]), "utf-8")
    assert arms(demo, "eval", "--arms", "none,hand.yaml")["hand.yaml"] not in runs.values()


@pytest.mark.long
def test_a_library_written_by_hand_is_an_arm_before_any_practice(gp: Gp) -> None:
    Path("q.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n', "utf-8")
    for name, text in FORMS.items():
        Path(name).write_text(text, "utf-8")
        for file in Path().glob(f"{DB}*"):
            file.unlink()
        words = ("eval", "--arms", f"none,{name},filler", *ASKED)
        dry = gp(*words, "--dry-run", "--json")
        assert dry.code == 0, dry.err
        assert dry.document["total"]["calls"] == [3, 3], name
        ran = gp(*words, "--json")
        assert ran.code == 0, ran.err
        runs = {arm["named"]: arm["run"] for arm in ran.document["arms"]}
        assert [(c["baseline"], c["arm"]) for c in ran.document["contrasts"]] == [
            (runs["none"], runs[name]),
            (runs["filler"], runs[name]),
        ]
        shown = dict(query("SELECT run_id, body FROM v_rollouts JOIN texts ON sha256 = system_sha"))
        assert all(text in shown[runs[name]] for text in HAND)
        assert not any(text in shown[runs["none"]] + shown[runs["filler"]] for text in HAND)
        versions = dict(query("SELECT DISTINCT run_id, library_id FROM v_rollouts"))
        refs = [f"L{versions[runs[n]]}" for n in (name, "filler")]
        hand, filler = (Workspace(DB).experiences(ref).library for ref in refs)
        assert [e.text for e in hand.experiences] == HAND
        assert len(filler) == len(hand)
        assert size(filler) >= size(hand)
        before = asked()
        assert gp(*words, "--json").document["arms"] == ran.document["arms"]
        assert arms(gp, "eval", "--arms", f"none,{refs[0]}", *ASKED)[refs[0]] == runs[name]
        assert asked() == before
        assert gp("experiences", "list", f"--run={refs[0]}").code == 0


def test_libraries_by_hand_that_cannot_be_arms_are_refused(gp: Gp) -> None:
    Path("q.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n', "utf-8")
    for name in ("a.yaml", "b.yaml"):
        Path(name).write_text(json.dumps([f"{name}: {HAND[0]}"]), "utf-8")
    Path("hand.yaml").write_text("- 'Check: twice.'\n- 7\n", "utf-8")
    two = "filler matches the length of one library, but the arms name a.yaml and b.yaml"
    for names, said in (("a.yaml,b.yaml,filler", two), ("none,hand.yaml", "hand.yaml:2")):
        ran = gp("eval", "--arms", names, *ASKED)
        assert (ran.code, said in ran.err) == (2, True), ran.err


def test_a_text_file_and_an_unquoted_colon_say_how_to_write_a_prompt(demo: Gp) -> None:
    Path("brief.txt").write_text("Be brief.")
    ran = demo("eval", "--run", "demo", "--arms", "none,brief.txt")
    assert "hint: make it an agent file: agent: {name: brief, instructions: …}" in ran.err
    for text in (
        "{name: colon, instructions: Answer: briefly}",
        "\n  instructions: Answer: briefly",
    ):
        Path("colon.yaml").write_text(f"agent: {text}\n")
        ran = demo("eval", "--run", "demo", "--arms", "none,colon.yaml")
        assert "hint: put a text that contains a colon between quotes" in ran.err
