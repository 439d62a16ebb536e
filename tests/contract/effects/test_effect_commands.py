"""`experiences effect` and `experiences prune`, as they are typed."""

import json
import re
from pathlib import Path

import pytest

from grpo_practice import Workspace
from tests.contract.advice import next_words
from tests.contract.command import Gp
from tests.contract.project import questions

DB = "grpo-practice.db"
EFFECT = ("experiences", "effect", "--dataset", "held")


@pytest.fixture
def measurable(demo: Gp) -> Gp:
    """The demo with a dataset that it has neither practised nor been evaluated on."""
    Path("held.jsonl").write_text("\n".join(map(json.dumps, questions(80)[40:])), "utf-8")
    assert demo("data", "upload", "held.jsonl", "--name", "held").code == 0
    return demo


def runs() -> list[str]:
    return [run.name for run in Workspace(DB).runs().runs]


@pytest.mark.long
def test_each_experience_has_a_row_and_the_run_no_score(measurable: Gp) -> None:
    ran = measurable(*EFFECT)
    assert ran.code == 0, ran.err
    last = Workspace(DB).experiences("demo").library
    rows = re.findall(
        r"^(E\d+) +([+-][\d.]+) +[+-][\d.]+ to [+-][\d.]+ +(?:[<>] )?\.\d\d  ", ran.out, re.M
    )
    assert sorted(name for name, _ in rows) == sorted(e.id for e in last.experiences)
    assert [float(effect) for _, effect in rows] == sorted(
        (float(effect) for _, effect in rows), reverse=True
    )
    assert f"L{last.id} (simulated): effect of each experience, in points" in ran.out
    assert "measured     40 questions of held \u00d7 8, 320 rollouts scored" in re.sub(
        r"measured +", "measured     ", ran.out
    )
    assert re.search(
        r"the whole library compared with no library: measured [+-][\d.]+ points", ran.out
    )
    listed = measurable("runs", "list").out
    (line,) = [line for line in listed.splitlines() if line.startswith("demo/effect/L")]
    cells = re.split(r" {2,}", line)
    assert (cells[1], cells[3:6], cells[-1]) == ("-", ["-", "done", "effect"], "5 of 5")
    document = measurable("runs", "list", "--json").document
    (run,) = [run for run in document["runs"] if run["purpose"] == "effect"]
    assert run["score"] is None
    shown = measurable("runs", "show", run["name"])
    assert "effect, done" in shown.out
    assert "95 % interval" not in shown.out
    assert measurable(*next_words(shown.out)).code == 0
    found = measurable("runs", "diagnose", "demo", "--json").document["findings"]
    told = [one["sentence"] for one in found if one["severity"] != "ok"]
    assert not [text for text in told if "of the test are in the selection" in text]
    assert measurable(*next_words(ran.out)).code == 0


@pytest.mark.long
def test_typed_again_it_asks_nothing_and_says_the_same(measurable: Gp) -> None:
    first = measurable(*EFFECT, "-k", "4", "--json")
    assert first.code == 0, first.err
    assert first.document["schema"] == "grpo-practice.effects/1"
    calls = Workspace(DB).run("demo/eval/Le3b0c442/data=held").costs[0].calls
    assert calls == 40
    for named in ((), ("--run", "demo"), ("demo:last",)):
        assert measurable(*EFFECT, *named, "-k", "4", "--json").document == first.document
    assert Workspace(DB).run("demo/eval/Le3b0c442/data=held").costs[0].calls == calls
    again = measurable(*EFFECT, "-k", "4", "--again", "--json")
    assert again.document["experiences"] == first.document["experiences"]  # simulated: the same
    assert Workspace(DB).run("demo/eval/Le3b0c442/data=held").costs[0].calls == 2 * calls


@pytest.mark.long
def test_a_cap_pauses_it_and_the_same_command_goes_on(measurable: Gp) -> None:
    paused = measurable(*EFFECT, "--max-requests", "50")
    assert paused.code == 6
    refused = measurable("experiences", "prune")
    assert refused.code == 2
    assert "is not complete" in refused.err
    done = measurable(*EFFECT, "--json")
    assert done.code == 0
    assert (done.document["planned"], done.document["scored"]) == (320, 320)


def test_a_dry_run_says_how_exact_it_will_be_and_writes_nothing(measurable: Gp) -> None:
    before = Path(DB).read_bytes()
    ran = measurable(*EFFECT, "--dry-run")
    assert ran.code == 0
    text = " ".join(ran.out.split())
    assert re.search(r"standard error \d\.\d to \d\.\d points per effect \(320 rollouts\)", text)
    assert "a 95 % interval extends about twice that on each side" in text
    assert "assumed" not in text  # the demo has evaluated this library
    document = measurable(*EFFECT, "--dry-run", "--json").document
    assert document["effect"]["rollouts"] == 320
    assert document["power"] is None
    assert Path(DB).read_bytes() == before


REFUSED = [
    (("effect", "--dataset", "held", "-k", "5"), "-k 5 is not a positive even number"),
    (("effect", "--dataset", "held", "-k", "0"), "-k 0 is not a positive even number"),
    (("effect", "--dataset", "test"), "demo is evaluated on test"),
    (("effect",), "demo has no practice.select_dataset"),
    (("effect", "nobody", "--dataset", "held"), "there is no run 'nobody'"),
    (("effect", "--dataset", "held", "--step", "9"), "demo has not closed step 9"),
    (("effect", "demo", "--run", "L3", "--dataset", "held"), "name two libraries"),
    (("effect", "E1", "--run", "demo", "--dataset", "held"), "measured together: leave E1 out"),
    (("effect", "demo/eval", "--dataset", "held"), "demo/eval is an evaluation"),
    (("prune",), "are not measured"),
    (("prune", "--run", "nobody"), "there is no run 'nobody'"),
    (("prune", "--max-tokens", "0"), "greater than or equal to 1"),
]


def test_what_cannot_be_is_refused_in_a_sentence(measurable: Gp) -> None:
    before = runs()
    for words, said in REFUSED:
        ran = measurable("experiences", *words)
        assert ran.code == 2, words
        assert said in " ".join(ran.err.split()), words
        assert "Traceback" not in ran.err
    for dataset in ("practice", "nothere"):
        assert measurable("experiences", "effect", "--dataset", dataset).code == 4
    assert runs() == before


@pytest.mark.long
def test_a_library_that_has_room_for_fewer(measurable: Gp) -> None:
    assert measurable(*EFFECT).code == 0
    last = Workspace(DB).experiences("demo").library
    refused = measurable("experiences", "prune", "--max-tokens", "5")
    assert refused.code == 2
    assert "--max-tokens 5: with its heading, the shortest experience takes" in refused.err
    ran = measurable("experiences", "prune", "--run", "demo", "--max-tokens", "250")
    assert ran.code == 0
    (made,) = re.findall(r"^(L\d+) is L\d+ without", ran.out, re.M)
    document = measurable("experiences", "prune", "--max-tokens", "250", "--json").document
    assert document["schema"] == "grpo-practice.prune/1"
    assert (document["library"], document["before"]) == (made, f"L{last.id}")
    assert document["tokens"][1] <= 250 < document["tokens"][0]
    assert document["next"] == f"grpo-practice eval --run demo --arms none,full,{made}"
    compared = measurable(*next_words(ran.out))
    assert compared.code == 0, compared.err
    assert f"full compared with {made}" in compared.out
    assert Workspace(DB).experiences("demo").library.id == last.id
    assert measurable("db", "check").code == 0
    assert measurable("export-agent", "--run", made, "-o", "-", "--format", "md").code == 0
    listed = measurable("experiences", "list", "--run", made)
    assert listed.code == 0


@pytest.mark.long
def test_nothing_to_prune_is_said_and_nothing_made(measurable: Gp) -> None:
    assert measurable(*EFFECT).code == 0
    ran = measurable("experiences", "prune", "--json")
    assert ran.code == 0
    assert (ran.document["removed"], ran.document["library"]) == ([], None)
    assert "stays as it is" in ran.document["sentence"]
