"""Datasets: what was found in a file is said, and nothing is half done."""

import io
import json
import os
import shlex
from pathlib import Path

import pytest

from tests.contract.command import Gp

ROWS = [{"problem": "2+2?", "answer": "4"}, {"problem": "Who?\x1b[2J", "answer": None}]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return str(path)


def test_upload_list_show_delete(gp: Gp, file: str) -> None:
    ran = gp("data", "upload", file, "--name", "d", "--map", "question=problem")
    assert ran.code == 0
    assert ran.out.splitlines()[0] == "d (revision 1) holds 2 rows"
    assert "the question is in 'problem'" in ran.out
    assert ran.out.splitlines()[-1].startswith("next: grpo-practice eval --model sim --dataset d")

    ran = gp("data", "list")
    assert ran.out.splitlines()[1].split()[:3] == ["d", "2", "1"]
    ran = gp("data", "show", "d", "--rows", "2")
    assert r"Who?\x1b[2J" in ran.out
    assert "\x1b" not in ran.out

    assert gp("data", "delete", "d", "--yes").code == 0
    assert gp("data", "list", "--json").document["datasets"] == []
    assert gp("data", "show", "d").code == 4


def test_answers_the_verify_function_cannot_use_are_reported_and_kept(gp: Gp, file: str) -> None:
    ran = gp("data", "upload", file, "--name", "d", "--map", "question=problem")
    assert "verify math cannot use 1 of 2 answers: row 2: verify math needs an answer" in ran.out
    ran = gp("data", "upload", file, "--name", "d", "--map", "question=problem", "--verify=judge")
    assert "verify judge can use every answer" in ran.out
    assert "holds 2 rows, as before" in ran.out


def test_the_upload_document(gp: Gp, file: str) -> None:
    words = ("data", "upload", file, "--name", "d", "--map", "question=problem", "--json")
    document = gp(*words).document
    assert document["schema"] == "grpo-practice.upload/1"
    assert (document["dataset"]["name"], document["dataset"]["n"]) == ("d", 2)
    assert [*document["unusable"]] == ["2"]
    assert (document["new"], gp(*words).document["new"]) == (True, False)
    rows = gp("data", "show", "d", "--json", "--rows", "1").document["rows"]
    assert [row["question"] for row in rows] == ["2+2?"]


@pytest.mark.parametrize(
    "name",
    ["../../etc/x", "a/b", ".", "..", "x\0y", "x" * 101, "", "é", "a b", "x\n", "\u202ex", ".x"],
)
def test_a_name_that_could_be_a_path_is_refused(gp: Gp, file: str, name: str) -> None:
    ran = gp("data", "upload", file, "--name", name)
    assert ran.code == 2
    assert "cannot be the name of a dataset" in ran.err
    assert not Path("grpo-practice.db").exists()


def test_a_bad_row_imports_nothing_unless_skipped(gp: Gp, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"question": "2+2?", "answer": "4"}\n{"question": "x", \n')
    ran = gp("data", "upload", str(path), "--name", "d")
    assert ran.code == 4
    assert "bad.jsonl:2" in ran.err
    assert not Path("grpo-practice.db").exists()
    ran = gp("data", "upload", str(path), "--name", "d", "--skip-bad")
    assert ran.out.startswith("d (revision 1) holds 1 row\n")


@pytest.mark.parametrize(
    ("family", "said"),
    [
        ("A train leaves the town of {f} at noon and drives for {n} hours. How far?", True),
        ("Question {f}{n}: {same} How much is it after {n} days?", False),
        ("{same} Question {f}{n}: how much is it after {n} days?", False),  # one template
        ("{same} A train leaves {f} at noon and drives for {n} hours. How far?", True),
    ],
)
def test_questions_that_begin_alike_and_have_no_cluster_are_told(
    gp: Gp, family: str, said: bool
) -> None:
    same = "Answer with one number. " * 3
    questions = [
        (f, family.format(f="abcdefghij"[f] * 20, n=n, same=same))
        for f in range(10)
        for n in range(2)
    ]
    for name in ("named", "unnamed"):
        rows = [
            {"question": text, "answer": f}
            | ({"cluster": f"family {f}"} if name == "named" else {})
            for f, text in questions
        ]
        Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
        ran = gp("data", "upload", "rows.jsonl", "--name", name)
        assert ran.code == 0, ran.err
        told = "20 of 20 questions begin like others (10 beginnings)" in ran.out
        assert told == (said and name == "unnamed"), ran.out


def test_a_column_of_clusters_that_is_empty_is_told(gp: Gp) -> None:
    Path("rows.csv").write_text("question,answer,theme\n1+1?,2,sums\n2+2?,4,\n")
    ran = gp("data", "upload", "rows.csv", "--name", "rows", "--map", "cluster=theme")
    assert "1 of 2 rows have nothing in 'theme', and so no cluster" in ran.out


def test_other_rows_under_the_same_name_need_replace(gp: Gp, file: str, tmp_path: Path) -> None:
    gp("data", "upload", file, "--name", "d", "--map", "question=problem")
    other = tmp_path / "other.csv"
    other.write_text("question;answer\n1+1?;2\n")
    assert gp("data", "upload", str(other), "--name", "d").code == 4
    ran = gp("data", "upload", str(other), "--name", "d", "--replace", "--delimiter", ";")
    assert ran.out.startswith("d (revision 2) holds 1 row\n")


@pytest.mark.parametrize(("said", "code", "left"), [("n", 1, 1), ("y", 0, 0)])
def test_a_person_is_asked_and_heard(
    gp: Gp, file: str, monkeypatch: pytest.MonkeyPatch, said: str, code: int, left: int
) -> None:
    gp("data", "upload", file, "--name", "d", "--map", "question=problem")
    keyboard = io.StringIO(f"{said}\n")
    monkeypatch.setattr(keyboard, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", keyboard)
    ran = gp("data", "delete", "d")
    assert ran.code == code
    assert "Delete dataset d (2 rows)?" in ran.err
    assert ("nothing was changed" in ran.err) == bool(left)
    assert len(gp("data", "list", "--json").document["datasets"]) == left


def test_appended_rows_that_are_held_already_are_told(gp: Gp, file: str) -> None:
    words = ("data", "upload", file, "--name", "d", "--map", "question=problem")
    gp(*words)
    Path(file).write_text(
        '{"problem": " 2+2?", "answer": "5"}\n{"problem": "3+3?", "answer": "6"}\n'
    )
    ran = gp(*words, "--append", "--dedup")
    assert ran.out.startswith("d (revision 2) holds 3 rows\n")
    held = "1 of 2 rows with a question that is already stored"
    assert f"  {held}, left out; 1 with another answer\n" in ran.out
    ran = gp(*words, "--append", "--dedup")
    assert ran.out.startswith("d (revision 2) holds 3 rows, as before\n")
    ran = gp(*words, "--append", "--json")
    assert ran.document["dataset"]["n"] == 5
    again = "2 of 2 rows with a question that is already stored, added again (--dedup"
    assert ran.document["notes"][-1].startswith(again)


def test_the_level_is_shown(gp: Gp, file: str) -> None:
    Path(file).write_text('{"question": "2+2?", "answer": "4", "level": "hard"}\n')
    gp("data", "upload", file, "--name", "d")
    ran = gp("data", "show", "d")
    assert (ran.out.splitlines()[-3].split()[-1], ran.out.splitlines()[-2].split()) == (
        "level",
        ["2+2?", "4", "hard"],
    )


@pytest.mark.parametrize("pair", ["question", "=x", "question="])
def test_a_mapping_that_is_none_is_refused(gp: Gp, file: str, pair: str) -> None:
    assert gp("data", "upload", file, "--name", "d", "--map", pair).code == 2


def test_deleting_asks_first(gp: Gp, file: str) -> None:
    gp("data", "upload", file, "--name", "d", "--map", "question=problem")
    ran = gp("data", "delete", "d")
    assert ran.code == 2
    assert "--yes" in ran.err
    assert gp("data", "show", "d").code == 0


def test_the_database_is_named_by_flag_or_environment(
    gp: Gp, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("data", "upload", file, "--name", "d", "--map", "question=problem")
    gp(*words, "--db", "flag.db")
    monkeypatch.setenv("GRPO_PRACTICE_DB", "env.db")
    gp(*words)
    assert Path("flag.db").exists()
    assert Path("env.db").exists()
    assert not Path("grpo-practice.db").exists()


def test_skip_bad_leaves_out_the_answers_that_the_verify_function_cannot_use(
    gp: Gp, tmp_path: Path
) -> None:
    path = tmp_path / "c.jsonl"
    rows = [{"question": f"{n}?", "answer": "B"} for n in range(9)]
    lines = [*rows, {"question": "which?", "answer": "none of them"}]
    path.write_text("".join(json.dumps(row) + "\n" for row in lines))
    ran = gp("data", "upload", str(path), "--name", "d")
    assert "verify choice cannot use 1 of 10 answers: row 10: " in ran.out
    assert "runs leave them out, as does --skip-bad" in ran.out
    assert ran.out.splitlines()[-1].endswith("--verify choice")
    ran = gp("data", "upload", str(path), "--name", "d", "--replace", "--skip-bad")
    assert ran.out.startswith("d (revision 2) holds 9 rows\n")
    assert "1 row left out: row 10: the answer 'none of them' cannot be used" in ran.out
    assert "verify choice can use every answer" in ran.out
    ran = gp("data", "upload", str(path), "--name", "e", "--skip-bad", "--verify", "exact")
    assert ran.out.startswith("e (revision 1) holds 10 rows\n")


def test_one_answer_in_ten_that_cannot_be_scored_is_in_sight_and_stops_nothing(
    gp: Gp, tmp_path: Path
) -> None:
    path = tmp_path / "c.jsonl"
    rows = [{"question": f"{n} + 1?", "answer": n + 1} for n in range(9)]
    lines = [rows[0], {"question": "Which?"}, *rows[1:]]
    path.write_text("".join(json.dumps(row) + "\n" for row in lines))
    assert gp("data", "upload", str(path), "--name", "d").code == 0
    ran = gp("eval", "--model", "sim", "--dataset", "d", "--verify", "math", "--limit", "5")
    assert ran.code == 0
    assert "1 of 5 questions cannot be scored and are left out: row 2: " in ran.err
    assert "1 of 5 questions cannot be scored" in ran.out
    run = gp("runs", "list", "--json").document["runs"][0]["name"]
    assert f"{run}: 1 of 5 questions cannot be scored" in gp("runs", "show", run).out


def test_export_and_what_it_says_next(gp: Gp, file: str) -> None:
    gp("data", "upload", file, "--name", "d", "--map", "question=problem")
    ran = gp("data", "export", "d")
    assert (ran.code, ran.err) == (0, "")
    assert [json.loads(line)["answer"] for line in ran.out.splitlines()] == ["4", None]
    ran = gp("data", "export", "d", "-o", "out.jsonl")
    assert ran.out.splitlines()[0] == "wrote 2 rows of d to out.jsonl"
    said = ran.out.splitlines()[-1].removeprefix("next: grpo-practice ")
    assert "as before" in gp(*shlex.split(said)).out
    assert gp("data", "export", "d", "-o", "out.jsonl").code == 2
    document = gp("data", "export", "d", "-o", "rows.txt", "--json").document
    assert document["schema"] == "grpo-practice.exported-dataset/1"
    assert "as before" in gp(*shlex.split(document["next"])[1:]).out
    assert gp("data", "export", "gone").code == 4
    assert gp("data", "export", "d", "--json").code == 2


def test_an_export_of_questions_without_answers_says_how_they_are_read(gp: Gp) -> None:
    Path("q.jsonl").write_text('{"question": "a?"}\n')
    gp("data", "upload", "q.jsonl", "--name", "q", "--no-answers")
    said = gp("data", "export", "q", "-o", "out.jsonl", "--json").document["next"]
    assert "as before" in gp(*shlex.split(said)[1:]).out


def test_an_export_leaves_a_pipe_a_pipe(gp: Gp, file: str, tmp_path: Path) -> None:
    gp("data", "upload", file, "--name", "d", "--map", "question=problem")
    pipe = tmp_path / "pipe.jsonl"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert gp("data", "export", "d", "-o", str(pipe)).code == 0
    assert os.read(reader, 1 << 16).count(b"\n") == 2
    os.close(reader)
    assert pipe.is_fifo()
