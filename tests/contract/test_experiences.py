"""Experiences and where they come from, on a finished demo."""

from collections import Counter
from typing import Any

import pytest

from tests.contract.command import Gp
from tests.contract.project import change
from tests.contract.test_edit_commands import query


def labels(gp: Gp, *words: str) -> list[str]:
    found = gp("experiences", "list", *words, "--json").document["experiences"]
    return [experience["id"] for experience in found]


def test_the_latest_practice_run_is_the_default(demo: Gp) -> None:
    ran = demo("experiences", "list")
    first, *rest = ran.out.splitlines()
    assert first.endswith("(demo, after step 3):")
    assert rest[-1] == f"next: grpo-practice experiences show {labels(demo)[0]} --run demo"
    assert labels(demo) == labels(demo, "--run", "demo", "--step", "3")


def test_earlier_steps_are_still_there(demo: Gp) -> None:
    assert labels(demo, "--step", "0") == labels(demo, "--run", "demo:0")
    assert labels(demo, "--step", "0") != labels(demo)
    assert demo("experiences", "list", "--step", "9").code == 2


def test_an_experience_tells_its_groups_and_lessons(demo: Gp) -> None:
    label = labels(demo, "--step", "0")[0]
    document = demo("experiences", "show", label, "--json").document
    assert document["schema"] == "grpo-practice.experience/1"
    first = document["changes"][0]
    assert (first["op"], first["step"]) == ("ADD", 0)
    proposal = first["proposals"][0]
    assert proposal["op"] == "ADD"
    assert proposal["lessons"]
    assert proposal["question"]

    text = demo("experiences", "show", label).out
    assert text.startswith(f"{label} of demo\n{document['text']}\n")
    assert "step 0: ADD" in text
    assert f"question {proposal['number']}" in text
    of_number = ("rollouts", "list", "demo:0", "--question", str(proposal["number"]), "--json")
    (asked,) = {row["question"] for row in demo(*of_number).document["rollouts"]}
    assert asked == proposal["question"]


def removed(gp: Gp, run: str) -> list[dict[str, Any]]:
    """What a run has had and does not have any more, as `experiences show` tells it."""
    gone = set(labels(gp, "--run", run, "--step", "1")) - set(labels(gp, "--run", run))
    shown = (gp("experiences", "show", label, "--run", run, "--json") for label in sorted(gone))
    return [one.document for one in shown]


@pytest.mark.long
def test_a_removed_experience_is_shown_as_removed(demo: Gp) -> None:
    """Which seed removes one, with more against it than for it, follows from the prompts' texts."""
    for seed in (17, *range(40)):
        run, sets = f"seed{seed}", (f"practice.seed={seed}", "practice.do_eval=false")
        words = ("practice", "--config", "practice.yaml", "--exp-id", run)
        assert demo(*words, "--set", sets[0], "--set", sets[1]).code == 0
        pruned = [gone for gone in removed(demo, run) if gone["changes"][-1]["why"]]
        if pruned:
            break
    document, last = pruned[0], pruned[0]["changes"][-1]
    assert (document["text"], document["evidence"], last["op"]) == (None, None, "DELETE")
    shown = demo("experiences", "show", document["id"], "--run", run).out
    assert "\n(removed)\n" in shown
    assert f"why  {last['why']}" in shown


def test_what_stands_behind_an_experience_is_told(demo: Gp) -> None:
    listed = demo("experiences", "list", "--json").document
    experiences = listed["experiences"]
    evidence = listed["evidence"][experiences[0]["id"]]
    assert evidence["supporting"] >= 1
    assert evidence["support"] >= 0
    said = f"{evidence['supporting']} question"
    assert said in demo("experiences", "list").out
    shown = demo("experiences", "show", experiences[0]["id"]).out
    assert f"evidence  {said}" in shown
    document = demo("experiences", "show", experiences[0]["id"], "--json").document
    numbers = evidence.keys() - {"sentence"}
    assert {key: document["evidence"][key] for key in numbers} == {
        key: evidence[key] for key in numbers
    }


def test_only_the_line_the_run_stands_on_counts(demo: Gp) -> None:
    made_late = sorted(set(labels(demo)) - set(labels(demo, "--step", "1")))
    assert made_late, "the demo adds some after step 1"
    words = ("practice", "--config", "practice.yaml", "--restart-step", "2", "--epochs", "1")
    assert demo(*words, "--set", "practice.do_eval=false").code == 0
    assert demo("experiences", "show", made_late[0]).code == 2
    assert demo("experiences", "show", labels(demo)[0]).code == 0
    branches = demo("runs", "show", "demo", "--json").document["branches"]
    assert [(b["cause"], b["from_step"], b["is_head"]) for b in branches] == [
        ("start", 0, False),
        ("restart", 2, True),
    ]
    first, second = (b["id"] for b in branches)
    shown = f"{first} (start at step 0), {second} (restart at step 2)"
    assert shown in demo("runs", "show", "demo").out


@pytest.mark.long
def test_an_experience_is_shown_on_the_line_of_the_library_that_is_named(demo: Gp) -> None:
    made_late = sorted(set(labels(demo)) - set(labels(demo, "--step", "1")))[0]
    before = demo("experiences", "show", made_late, "--json").document
    kept = {label: demo("experiences", "show", label, "--json").document for label in labels(demo)}
    words = ("practice", "--config", "practice.yaml", "--restart-step", "2", "--epochs", "1")
    assert demo(*words, "--set", "practice.do_eval=false").code == 0
    first, second = (b["id"] for b in demo("runs", "show", "demo", "--json").document["branches"])
    old, new = ("--run", f"demo@{first}"), ("--run", f"demo@{second}")
    assert demo("experiences", "show", made_late, *old, "--json").document == before
    assert demo("experiences", "show", made_late, *new).code == 2
    assert demo("experiences", "show", made_late, "--run", f"demo@{first}:1").code == 2
    for label, document in kept.items():
        assert demo("experiences", "show", label, *old, "--json").document == document
    held = labels(demo, *new, "--step", "1")
    shown = [demo("experiences", "show", label, *new, "--json").document for label in held]
    made = [change for document in shown for change in document["changes"]]
    assert {c["branch_id"] for c in made if c["step"] < 2} == {first}
    assert {c["branch_id"] for c in made if c["step"] >= 2} <= {second}
    early = demo("experiences", "show", held[0], "--run", "demo:1", "--json").document
    assert max(entry["step"] for what in ("changes", "votes") for entry in early[what]) <= 1


@pytest.mark.long
def test_votes_on_an_earlier_text_say_so(demo: Gp) -> None:
    """Those that led to a change of what it says are of the text before it."""
    documents = [demo("experiences", "show", f"E{n}", "--json").document for n in range(1, 9)]
    for document in documents:
        meant = [c["step"] for c in document["changes"] if c["text"] and not c["reworded"]]
        for vote in document["votes"]:
            assert vote["earlier"] == (vote["step"] <= max(meant))
        told = demo("experiences", "show", document["id"]).out
        earlier = sum(v["earlier"] for v in document["votes"])
        assert told.count(" (not counted: on an earlier text): ") == earlier


def test_the_evidence_counts_the_votes_that_are_listed(demo: Gp) -> None:
    """A question has one vote: two that contradict each other leave it undecided."""
    undecided = 0
    for label in labels(demo):
        document = demo("experiences", "show", label, "--json").document
        made = max(i for i, c in enumerate(document["changes"]) if not c["reworded"])
        votes = Counter[int]()
        for proposal in document["changes"][made]["proposals"]:
            votes[proposal["number"]] += 1
        for vote in document["votes"]:
            if not vote["earlier"]:
                votes[vote["number"]] += {"confirmed": 1, "misled": -1}[vote["finding"]]
        said = demo("experiences", "show", label).out.partition("evidence  ")[2]
        sides = {
            "for it": sorted(n for n, v in votes.items() if v > 0),
            "against it": sorted(n for n, v in votes.items() if v < 0),
            "undecided": sorted(n for n, v in votes.items() if v == 0),
        }
        for side, numbers in sides.items():
            if numbers:
                assert f" {side} ({', '.join(map(str, numbers))})" in " ".join(said.split())
        undecided += len(sides["undecided"])
    assert undecided


def test_a_vote_of_a_group_that_played_without_the_experience_is_marked(demo: Gp) -> None:
    row, *_ = query(
        """SELECT o.branch_id, o.step, o.slot, e.label FROM operations o
             JOIN experiences e ON e.experience_id = o.target_id
            WHERE o.source = 'propose' AND o.finding = 'misled'
            ORDER BY o.step"""
    )
    *group, label = row
    assert ", 1 undecided (" in demo("experiences", "show", f"E{label}").out
    change(
        f"""UPDATE groups SET library_id = (SELECT library_in FROM v_steps
              WHERE run_id = 'demo' AND step = 0)
             WHERE (branch_id, step, slot) = {tuple(group)}"""
    )
    shown = demo("experiences", "show", f"E{label}").out
    assert "undecided" not in shown
    assert "misled (not counted: played without it): " in shown


@pytest.mark.long
def test_an_experience_that_was_brought_along_says_so(demo: Gp) -> None:
    brought = labels(demo)
    words = ("practice", "--config", "practice.yaml", "--exp-id", "second", "--from", "demo")
    assert demo(*words, "--epochs", "1", "--set", "practice.do_eval=false").code == 0
    kept = sorted(set(brought) & set(labels(demo, "--run", "second")))
    document = demo("experiences", "show", kept[0], "--run", "second", "--json").document
    assert document["run"] == "second"
    assert document["imported"]
    text = demo("experiences", "show", kept[0], "--run", "second").out
    assert "at the start  from another run: " in text


@pytest.mark.parametrize("label", ["E0", "foo", "E1x", "", "-1", "E99"])
def test_what_is_no_experience_is_an_error(demo: Gp, label: str) -> None:
    ran = demo("experiences", "show", "--", label)
    assert (ran.code, ran.out) == (2, "")


@pytest.mark.parametrize("spelling", ["e1", "1", "E1"])
def test_labels_may_be_typed_in_small(demo: Gp, spelling: str) -> None:
    assert demo("experiences", "show", spelling).out.startswith("E1 of demo\n")


def test_2_28_nothing_of_an_ordinary_run_is_quarantined(demo: Gp) -> None:
    document = demo("experiences", "list", "--quarantined", "--json").document
    assert document["quarantined"] == []
    assert demo("experiences", "list", "--json").document["quarantined"] is None
    assert "\nnothing quarantined\n" in demo("experiences", "list", "--quarantined").out
    assert "quarantined" not in demo("runs", "show", "demo").out
