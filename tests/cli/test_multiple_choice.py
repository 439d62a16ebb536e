"""Multiple choice from a file to a score, as a person does it."""

import io
import json
from pathlib import Path

import pytest

from grpo_practice import Workspace
from tests.cli.conftest import Gp
from tests.data.test_multiple_choice import LIQUID, SETS, SEVERAL, mmlu, table

KNOWN = {"Which metal is liquid?": "Mercury", "How many sides has a hexagon?": "6"}


def knows(question: str, system: str, context: object) -> str:
    """Answer with the letter that the question gives to what it knows."""
    asked, *options = [line for line in question.split("\n") if line]
    right = next((line for line in options if line[3:] == KNOWN[asked]), "?")
    return f"The answer is {right[0]}."


def first(question: str, system: str, context: object) -> str:
    """Answer A, whatever is asked."""
    return "The answer is A."


@pytest.mark.long_after(4)
@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".csv"])
@pytest.mark.parametrize("name", SETS)
def test_from_upload_to_score(gp: Gp, tmp_path: Path, name: str, suffix: str) -> None:
    file = table(tmp_path / f"rows{suffix}", *SETS[name])
    ran = gp("data", "upload", str(file), "--name", "d", "--db", "w.db")
    assert ran.code == 0, ran
    assert "the agent is asked '{question}\\n\\n{options}', where options is" in ran.out
    assert ran.out.splitlines()[-1].endswith("--dataset d --verify choice")
    workspace = Workspace("w.db")
    score = {
        agent.__name__: workspace.evaluate(
            agent=agent, model="sim", dataset="d", verify="choice"
        ).score.mean
        for agent in (knows, first)
    }
    assert score == {"knows": 1, "first": 0}


def test_the_simulated_model_chooses_among_the_options(gp: Gp, tmp_path: Path) -> None:
    rows = [mmlu(f"Which of {n}?", ["2", "4", "5", "6"], n % 4) for n in range(40)]
    file = table(tmp_path / "rows.jsonl", *rows)
    assert gp("data", "upload", str(file), "--name", "d", "--db", "w.db").code == 0
    score = Workspace("w.db").evaluate(model="sim", dataset="d", verify="choice").score
    assert score.coverage == 1
    assert score.mean is not None
    assert 0 < score.mean < 1


def test_select_all_is_not_won_by_a_constant(gp: Gp, tmp_path: Path) -> None:
    rows = [mmlu(f"{n}?", ["2", "4", "5", "6"], [0] if n == 0 else [0, 2]) for n in range(4)]
    file = str(table(tmp_path / "rows.jsonl", *rows))
    workspace, mean = Workspace("w.db"), {}
    for select in ("any", "all"):
        words = ("data", "upload", file, "--name", select, "--select", select, "--db", "w.db")
        assert gp(*words).code == 0
        report = workspace.evaluate(agent=first, model="sim", dataset=select, verify="choice")
        mean[select] = report.score.mean
    assert mean == {"any": 1, "all": 0.25}
    config = {
        "exp_id": "param", "data": {"dataset": "any"}, "verify": {"name": "choice", "all": True},
        "agent": {"model": {"model_provider": {"model": "sim"}}},
    }  # fmt: skip
    assert workspace.evaluate(config, agent=first).score.mean == 0.25


def test_nobody_to_ask_is_an_error_with_both_ways(gp: Gp, tmp_path: Path) -> None:
    file = str(table(tmp_path / "rows.jsonl", *reversed(SEVERAL[:1])))
    ran = gp("data", "upload", file, "--name", "d")
    assert ran.code == 2
    assert "an answer names several options: [0, 2]" in ran.err
    assert "--select any" in ran.err
    assert "--select all" in ran.err
    assert not Path("grpo-practice.db").exists()


def test_a_person_is_asked_what_several_mean(
    gp: Gp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [mmlu(LIQUID, ["Iron", "Mercury"], 1), mmlu("Prime?", ["2", "4", "5", "6"], [0, 2])]
    file = str(table(tmp_path / "rows.jsonl", *rows))
    keyboard = io.StringIO("both\nAll\n")
    monkeypatch.setattr(keyboard, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", keyboard)
    ran = gp("data", "upload", file, "--name", "d")
    assert ran.code == 0, ran
    assert "Is any one of them enough, or are exactly these required? (any/all)" in ran.err
    assert "'both' is not one of any, all" in ran.err
    shown = gp("data", "show", "d", "--json").document["rows"]
    assert [(row["answer"], row["meta"]["select"]) for row in shown] == [
        ("B", "all"),
        ("A, C", "all"),
    ]


def test_a_template_is_typed_with_its_line_ends(gp: Gp, tmp_path: Path) -> None:
    file = str(table(tmp_path / "rows.jsonl", *SETS["MMLU"]))
    template = r"On {subject}.\n{question}\n\n{options}"
    assert gp("data", "upload", file, "--name", "d", "--template", template).code == 0
    row = gp("data", "show", "d", "--rows", "1", "--json").document["rows"][0]
    assert row["question"].startswith(f"On things.\n{LIQUID}\n\nA. Iron\n")
    ran = gp("data", "upload", file, "--name", "e", "--template", "{nothing}")
    assert (ran.code, "{nothing} is neither a slot nor a column" in ran.err) == (2, True)


def test_a_file_without_names_and_one_that_is_an_object(gp: Gp, tmp_path: Path) -> None:
    bare = tmp_path / "bare.csv"
    bare.write_text("Which metal is liquid?,Iron,Mercury,Zinc,B\n2 + 2 is,4,5,6,A\n")
    ran = gp("data", "upload", str(bare), "--name", "d")
    assert ran.code == 4
    named = next(line for line in ran.err.splitlines() if line.startswith("hint: "))
    option = named.partition("if the file has no header: ")[2].partition(";")[0]
    assert gp("data", "upload", str(bare), "--name", "d", *option.split()).code == 0
    assert [d["n"] for d in gp("data", "list", "--json").document["datasets"]] == [2]
    whole = tmp_path / "whole.json"
    rows = [{"input": "1 + 1 is", "target": "2"}]
    whole.write_text(json.dumps({"examples": rows, "others": rows}))
    assert gp("data", "upload", str(whole), "--name", "w").code == 4
    assert gp("data", "upload", str(whole), "--name", "w", "--rows", "examples").code == 0
