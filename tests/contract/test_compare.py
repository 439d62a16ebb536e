"""`runs compare`: from stored runs to a verdict, and what it refuses."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from grpo_practice import Workspace
from tests.contract.advice import next_words
from tests.contract.command import Gp
from tests.contract.project import change
from tests.late import Late

sm = Late("statsmodels.api")

AFTER = "demo/eval/L"


def document(gp: Gp, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = gp("runs", "compare", *words, "--json").document
    return found


def test_a_practice_run_stands_for_the_evaluation_of_its_last_library(demo: Gp) -> None:
    ran = demo("runs", "compare", "demo/eval", "demo")
    assert ran.code == 0, ran.err
    assert re.search(
        r"\nBetter\n  scores +0\.\d+ before, 0\.\d+ after\n"
        r"  difference +\+\d+\.\d points \(95 % interval \+\d+\.\d to \+\d+\.\d\)\n"
        "  questions +40 new, 2 attempts each\n",
        ran.out,
    ), ran.out
    assert "simulated: says nothing about a real model" in ran.out
    found = document(demo, "demo/eval", "demo")
    last = demo("runs", "show", "demo", "--json").document["steps"][-1]["library"]
    assert found["arms"][1]["named"] == "demo"
    assert found["arms"][1]["run"].startswith(AFTER), (found["arms"][1], last)
    assert demo(*next_words(ran.out)).code == 0


@pytest.mark.long
def test_the_document_is_enough_to_compute_it_again(demo: Gp) -> None:
    compared = document(demo, "demo/eval", "demo")
    (contrast,) = compared["contrasts"]
    rows = contrast["questions"]
    d = np.array([row["b"] - row["a"] for row in rows])
    groups = np.array([hash(contrast["clusters"].get(row["key"], row["key"])) for row in rows])
    fit = sm.OLS(d, np.ones(len(d))).fit(
        cov_type="cluster", cov_kwds={"groups": groups, "df_correction": True}, use_t=True
    )
    found = contrast["difference"]
    assert found["mean"] == pytest.approx(float(fit.params[0]), abs=1e-6)
    assert found["p"] == pytest.approx(float(fit.pvalues[0]), abs=1e-6)
    assert found["ci95"] == pytest.approx(fit.conf_int()[0].tolist(), abs=1e-6)
    assert [found["up"], found["down"]] == [int((d > 0).sum()), int((d < 0).sum())]
    assert all(compared["texts"][row["key"]] for row in rows)
    scores = demo("runs", "show", "demo", "--json").document["scores"]
    assert found["mean"] == pytest.approx(
        scores[contrast["arm"]]["mean"] - scores["demo/eval"]["mean"]
    )


def test_the_other_way_round_it_is_worse_by_the_same(demo: Gp) -> None:
    there, back = document(demo, "demo/eval", "demo"), document(demo, "demo", "demo/eval")
    (one,), (other,) = there["contrasts"], back["contrasts"]
    assert (one["verdict"], other["verdict"]) == ("better", "worse")
    assert one["difference"]["mean"] == -other["difference"]["mean"]
    (better,), (worse,) = there["conclusions"], back["conclusions"]
    assert (better["headline"], worse["headline"]) == ("Better", "Worse")
    signs = str.maketrans("+-", "-+")
    said = better["lines"]["difference"]
    low, high = re.findall(r"[+-][\d.]+", said)[1:]
    turned = said.replace(f"{low} to {high}", f"{high} to {low}").translate(signs)
    assert worse["lines"]["difference"] == turned
    assert worse["lines"]["adjusted p"] == better["lines"]["adjusted p"]


@pytest.mark.parametrize(("verdict", "code"), [("better", 0), ("worse", 1)])
def test_a_verdict_can_be_required(demo: Gp, verdict: str, code: int) -> None:
    for json_ in ([], ["--json"]):
        ran = demo("runs", "compare", "demo/eval", "demo", "--require", verdict, *json_)
        assert ran.code == code
    assert ran.document["exit"] == code


def test_several_contrasts_are_adjusted_and_the_choice_of_a_library_is_said(demo: Gp) -> None:
    names = [run.name for run in Workspace("grpo-practice.db").runs().runs]
    (earlier,) = {n for n in names if n.startswith(AFTER)} - {
        document(demo, "demo/eval", "demo")["arms"][1]["run"]
    }
    found = document(demo, "demo/eval", "demo", earlier)
    plain = sorted(c["difference"]["p"] / 0.8 for c in found["contrasts"])
    adjusted = sorted(c["p_adjusted"] for c in found["contrasts"])
    assert adjusted == pytest.approx([min(2 * plain[0], 1), max(2 * plain[0], plain[1])])
    notes = " ".join(found["contrasts"][1]["notes"])
    assert "not the last library of demo, and 2 of them were scored on these questions" in notes
    assert "select_dataset" not in " ".join(found["contrasts"][0]["notes"])


def test_what_failed_is_no_zero_and_may_leave_no_verdict(demo: Gp) -> None:
    change(
        """DELETE FROM verdicts WHERE rollout_id IN (SELECT r.rollout_id FROM rollouts r
             JOIN branches b USING (branch_id) WHERE b.run_id = 'demo/eval' AND attempt = 0)"""
    )
    change("UPDATE steps SET sums = NULL")
    (contrast,) = document(demo, "demo/eval", "demo")["contrasts"]
    assert contrast["difference"]["missing"] == 40
    assert contrast["verdict"] == "missing"
    worst, best = (contrast["difference"][case]["mean"] for case in ("worst", "best"))
    assert worst < contrast["difference"]["mean"] < best
    ran = demo("runs", "compare", "demo/eval", "demo")
    assert "\nNot enough scored answers to tell\n" in ran.out
    assert "40 answers; if all of them count against the change" in ran.out


def test_questions_that_were_practised_are_told_apart(demo: Gp) -> None:
    rows = [json.loads(line) for line in Path("practice.jsonl").read_text().splitlines()[:4]]
    rows[0]["question"] = rows[0]["question"].upper() + " "  # folded, it is the same
    test = Path("test.jsonl").read_text().splitlines()[:20]
    Path("mixed.jsonl").write_text("\n".join([*map(json.dumps, rows), *test]))
    assert demo("data", "upload", "mixed.jsonl", "--name", "mixed").code == 0
    assert demo("export-agent", "--run", "demo", "-o", "enhanced.yaml").code == 0
    words = ("eval", "--dataset", "mixed", "--verify", "math", "--exp-id", "demo", "--json")
    one, two = (
        demo(*words, "--agent", agent).document["run"] for agent in ("agent.yaml", "enhanced.yaml")
    )
    compared = document(demo, one, two)
    (contrast,), (found,) = compared["contrasts"], compared["conclusions"]
    assert contrast["known"] == 4
    assert contrast["new"]["n"] == 20
    assert found["lines"]["questions"].startswith("20 new")
    ran = demo("runs", "compare", one, two)
    assert "used in practice or to choose a library: 4 questions; on all 24: " in ran.out


def test_questions_that_an_agent_of_another_experiment_practised_on_are_told_apart(
    demo: Gp,
) -> None:
    rows = Path("practice.jsonl").read_text().splitlines()[:4]
    test = Path("test.jsonl").read_text().splitlines()[:20]
    Path("mixed.jsonl").write_text("\n".join([*rows, *test]))
    assert demo("data", "upload", "mixed.jsonl", "--name", "mixed").code == 0
    assert demo("export-agent", "--run", "demo", "-o", "enhanced.yaml").code == 0
    words = ("eval", "--dataset", "mixed", "--verify", "math", "--exp-id", "elsewhere", "--json")
    one, two = (
        demo(*words, "--agent", agent).document["run"] for agent in ("agent.yaml", "enhanced.yaml")
    )
    assert one.startswith("elsewhere/")
    (contrast,) = document(demo, one, two)["contrasts"]
    assert contrast["known"] == 4


def test_the_library_of_an_exported_agent_is_no_other_difference(demo: Gp) -> None:
    for names in ("none,agent.yaml", "agent.yaml,none"):
        assert "they also differ in" not in demo("eval", "--arms", names).out


def test_answers_are_shown_where_they_are_asked_for(demo: Gp) -> None:
    ran = demo("runs", "compare", "demo/eval", "demo", "--show", "2")
    assert ran.out.count("\n  before  ") == ran.out.count("\n  after   ") == 4  # two attempts each
    compared = document(demo, "demo/eval", "demo", "--show", "2")
    (contrast,) = compared["contrasts"]
    moved = {row["key"]: row for row in contrast["questions"]}
    for arm, run in (("a", contrast["baseline"]), ("b", contrast["arm"])):
        assert len(compared["answers"][run]) == 2
        for question, answers in compared["answers"][run].items():
            rewards = [answer["reward"] for answer in answers]
            assert sum(rewards) / len(rewards) == moved[question][arm]
    assert document(demo, "demo/eval", "demo")["answers"] == {}


def test_the_verdict_stands_where_people_look(demo: Gp) -> None:
    compared = document(demo, "demo/eval", "demo")
    (contrast,), (found,) = compared["contrasts"], compared["conclusions"]
    told = f"\nBetter\n  scores                    {found['lines']['scores']}\n"
    for name in ("demo", contrast["arm"]):
        assert told in demo("runs", "show", name).out
    assert "Better" not in demo("runs", "show", "demo/eval").out
    assert demo("runs", "show", "demo", "--json").document["conclusion"] == found
    again = demo("practice", "--config", "practice.yaml", "--json")
    assert again.document["conclusion"] == found
    assert demo("export-agent", "--run", "demo", "-o", "a.yaml").code == 0
    assert (
        f"# with the library: Better, {found['lines']['difference']}" in Path("a.yaml").read_text()
    )
    ran = demo("eval", "--run", "demo", "--agent", "a.yaml", "--json")
    assert ran.document["conclusion"] == found
    assert told in demo("eval").out
    for pair in (("demo/eval", ran.document["run"]), (ran.document["run"], "demo/eval")):
        (contrast,) = document(demo, *pair)["contrasts"]
        assert not any("instructions" in note for note in contrast["notes"])
    assert demo("runs", "delete", "demo/eval", "--yes").code == 0
    assert demo("runs", "show", "demo", "--json").document["conclusion"] is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("demo/eval",), "a comparison needs at least two runs"),
        (("demo/eval", "demo/eval"), "demo/eval and demo/eval are the same evaluation"),
        (("demo", "demo"), "demo and demo are the same evaluation"),
        (("demo/eval", "nope"), "there is no run 'nope'"),
        (("demo/eval", "demo", "--detect", "0"), "--detect 0"),
        (("demo/eval", "demo", "--detect", "nan"), "--detect nan"),
        (("demo/eval", "demo", "--require", "best"), "--require"),
        (("demo/eval", "demo", "--show", "-1"), "--show"),
    ],
)
def test_bad_input_is_one_sentence(demo: Gp, words: tuple[str, ...], said: str) -> None:
    ran = demo("runs", "compare", *words)
    assert ran.code == 2, ran
    assert said in ran.err
    assert ran.out == ""


def test_what_cannot_be_compared_is_refused_with_the_way_out(demo: Gp) -> None:
    words = ("eval", "--model", "sim", "--dataset", "practice", "--limit", "4", "--json")
    other = demo(*words, "--verify", "exact", "--exp-id", "other").document["run"]
    ran = demo("runs", "compare", "demo/eval", other)
    assert ran.code == 2
    assert "are scored by math and exact" in ran.err
    assert f"hint: grpo-practice eval --rejudge --verify math --run {other}" in ran.err
    third = demo(*words, "--verify", "math", "--exp-id", "third").document["run"]
    ran = demo("runs", "compare", "demo/eval", third)
    assert (ran.code, "have no scored question in common" in ran.err) == (2, True)
    change("UPDATE runs SET simulated = 0 WHERE run_id = 'demo/eval'")
    ran = demo("runs", "compare", "demo/eval", "demo")
    assert (ran.code, "is simulated, and demo/eval is not" in ran.err) == (2, True)


def test_a_practice_without_an_evaluation_says_how_to_make_it(demo: Gp) -> None:
    found = document(demo, "demo/eval", "demo")["arms"][1]["run"]
    assert demo("runs", "delete", found, "--yes").code == 0
    ran = demo("runs", "compare", "demo/eval", "demo")
    assert ran.code == 2
    assert "demo has no complete evaluation of its last library" in ran.err
    assert "hint: grpo-practice eval --arms none,full --run demo" in ran.err


def test_what_the_page_computes_is_what_is_printed(demo: Gp) -> None:
    page = (Path(__file__).parents[2] / "docs/proof.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    shown = json.dumps(document(demo, "demo/eval", "demo"))
    call = re.search(r"subprocess\.check_output\(.*?\)(?=\)\n)", code)
    assert call
    exec(code.replace(call[0], repr(shown)), {})
    command = "grpo-practice runs compare demo/eval demo"
    assert command in page
    assert demo(*command.split()[1:]).code == 0
