"""Bad datasets, as a person meets them: one sentence with the place, and nothing half done."""

import json
import os
import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Gp, Ran
from tests.config.files import EVAL

GOOD = '{"question": "2+2?", "answer": "4"}\n'


def upload(gp: Gp, name: str, content: str | bytes, *more: str) -> Ran:
    Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    return gp("data", "upload", name, "--name", "d", *more)


def rows(gp: Gp) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = gp("data", "show", "d", "--json").document["rows"]
    return found


def refused(ran: Ran, *said: str, code: int = 4) -> None:
    """It ended with that code and these words, and nothing was stored."""
    assert ran.code == code, ran
    for text in said:
        assert text in ran.err
    assert "internal error" not in ran.err
    assert not Path("grpo-practice.db").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"question": "x", ', "not valid JSON"),
        ('{"question": "x"', "last line: is it cut off?"),
        ('{"question": "x", "answer": NaN}', "NaN is not a JSON number"),
        ('{"question": "x", "answer": 1e999}', "too large a number"),
        ('{"question": "x", "answer": ' + "9" * 5_000 + "}", "not valid JSON"),
        ('{"question": "x", "meta": ' + "[" * 99_999 + "]" * 99_999 + "}", "nested too deeply"),
        (
            '{"question": "x", "meta": {"k": ' + "[" * 2_000 + "]" * 2_000 + "}}",
            "nested too deeply",
        ),
        ('["x", 1]', "the row is a JSON list"),
    ],
)
def test_2_10_a_broken_line_is_named_and_nothing_is_imported(gp: Gp, line: str, said: str) -> None:
    content = GOOD * 6 + line
    refused(upload(gp, "a.jsonl", content), "a.jsonl:7: ", said)
    ran = gp("data", "upload", "a.jsonl", "--name", "d", "--skip-bad")
    assert ran.out.startswith("d (revision 1) holds 6 rows\n")
    assert "1 bad row left out: a.jsonl:7: " in ran.out


def test_2_10_only_what_may_be_cut_off_is_called_so(gp: Gp) -> None:
    ran = upload(gp, "a.jsonl", GOOD + '{"question": "x", "answer": 1e999}')
    assert "cut off" not in ran.err


def test_2_11_marks_line_ends_and_blank_lines_are_read_and_other_encodings_named(gp: Gp) -> None:
    fine = "\ufeff" + GOOD.replace("\n", "\r\n") + "\r\n  \r\n" + GOOD.replace("2+2", "é\u2028")
    ran = upload(gp, "a.jsonl", fine)
    assert ran.out.startswith("d (revision 1) holds 2 rows\n")
    assert [row["question"] for row in rows(gp)] == ["2+2?", "é\u2028?"]
    Path("grpo-practice.db").unlink()
    for encoding, said in (
        ("utf-16", "a.jsonl:1: the file is UTF-16, not UTF-8"),
        ("utf-16-le", "a.jsonl:1: a NUL byte was found"),
        ("latin-1", "a.jsonl:2: byte 0xe9 is not UTF-8; the file may be Latin-1"),
    ):
        text = (GOOD + GOOD.replace("2+2", "é")).encode(encoding)
        ran = upload(gp, "a.jsonl", text, "--skip-bad")
        refused(ran, said, "" if encoding == "utf-16-le" else "hint: iconv -f ")


def test_2_15_a_lone_surrogate_is_replaced_counted_and_reported(gp: Gp) -> None:
    lines = [
        {"question": "a\ud800b", "answer": "\udfff"},
        {"question": "fine \U0001f600", "answer": "1"},
        {"question": "c", "answer": "1", "k\udc00": ["\ud800"]},
    ]
    ran = upload(gp, "a.jsonl", "\n".join(map(json.dumps, lines)), "--verify", "exact")
    assert "2 of 3 rows with broken characters, replaced by U+FFFD: line 1, 3" in ran.out
    found = rows(gp)
    assert (found[0]["question"], found[0]["answer"]) == ("a\ufffdb", "\ufffd")
    assert found[1]["question"] == "fine \U0001f600"
    assert found[2]["meta"] == {"k\ufffd": ["\ufffd"]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("2+2?,4\n3+3?,6\n", "the first row has '2+2?', '4'"),
        ("question,answer,question\nx,1,y\n", "a.csv:1: the column 'question' appears twice"),
        ("question,answer\nx,1\ny\n", "a.csv:3: 1 fields, but the header has 2"),
        ("question,answer\nx,1\ny,2,3\n", "a.csv:3: 3 fields, but the header has 2"),
        ('question,answer\n"x,1\ny,2\n', "a.csv:2: not valid CSV"),
        ("question,answer\nx\0,1\n", "a.csv:2: a NUL byte was found"),
        ("question,answer\rx,1\ry,2\r", "does a line end in CR alone?"),
        ("", "no usable row"),
    ],
)
def test_2_17_a_csv_that_is_none_is_refused_with_the_line(gp: Gp, content: str, said: str) -> None:
    refused(upload(gp, "a.csv", content), said)


@pytest.mark.parametrize(
    ("content", "more"),
    [
        ("question;answer\n1,5?;4\n", ()),
        ("question|answer\n1,5?|4\n", ("--delimiter", "|")),
        ("question\tanswer\n1,5?\t4\n", ("--delimiter", "\\t")),
        ('question,answer\n"1,5?",4\n', ()),
        ('question,answer,more\n"1,5?",4,"' + "x" * 200_000 + '"\n', ()),
    ],
)
def test_2_17_the_delimiter_is_seen_or_given_and_fields_may_be_long(
    gp: Gp, content: str, more: tuple[str, ...]
) -> None:
    assert upload(gp, "a.csv", content, *more).code == 0
    assert [(row["question"], row["answer"]) for row in rows(gp)] == [("1,5?", "4")]


@pytest.mark.parametrize("name", ["a.pkl", "a.PICKLE", "a.pt", "a.pth", "a.py"])
def test_2_20_what_may_run_code_is_never_read(gp: Gp, name: str) -> None:
    ran = upload(gp, name, b"cos\nmkdir\n(S'made'\ntR.")
    refused(ran, f"{name}: ", "never read, because loading it may run code", ".jsonl")
    assert not Path("made").exists()
    Path("c.yaml").write_text(EVAL.replace("dataset: D", f"dataset: {name}"))
    ran = gp("eval", "--config", "c.yaml")
    assert (ran.code, Path("made").exists()) == (4, False)
    assert f"there is no dataset '{name}'" in ran.err


def test_2_20_remote_code_is_nowhere_trusted() -> None:
    sources = Path(__file__).parents[2] / "src/grpo_practice"
    sandboxed = (
        sources / "rollout/tools/python/sandbox_main.py"
    )  # runs the model's code, in a sandbox
    found = [path for path in sources.rglob("*.py") if path != sandboxed]
    refused = re.compile(r"trust_remote_code(=|\": )False")
    texts = [refused.sub("", path.read_text("utf-8")) for path in found]
    assert len(texts) > 50
    for word in ("trust_remote_code", "pickle.load", "yaml.load(", "yaml.unsafe_load", "eval("):
        uses = [
            text for text in texts if word in text.replace("run_eval(", "").replace("_eval(", "")
        ]
        assert not uses, word


def test_2_21_what_counts_as_an_answer(gp: Gp) -> None:
    answers: list[Any] = [0, False, 0.0, ["a", 2], "", None, "  "]
    lines = [json.dumps({"question": f"q{n}", "answer": a}) for n, a in enumerate(answers)]
    ran = upload(gp, "a.jsonl", "\n".join([*lines, '{"question": "q"}']), "--verify", "exact")
    assert ran.code == 0
    assert "4 of 8 rows without an answer: line 5, 6, 7, 8" in ran.out
    assert "verify exact cannot use 4 of 8 answers: row 5: verify exact needs an answer" in ran.out
    shown = gp("data", "show", "d", "--rows", "9", "--json").document["rows"]
    found = [row["answer"] for row in shown]
    assert json.dumps(found) == json.dumps([0, False, 0.0, ["a", 2], None, None, None, None])


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"question": "", "answer": 1}, "the question ('question') is empty"),
        ({"question": " \n\u3000", "answer": 1}, "the question ('question') is empty"),
        ({"question": None, "answer": 1}, "the question ('question') is missing"),
        ({"question": 7, "answer": 1}, "the question ('question') is of type int, not text"),
        ({"question": "q", "answer": {"a": 1}}, "the answer is an object"),
        ({"question": "q", "answer": []}, "the answer is a list, but not all its elements"),
        (
            {"question": "q", "answer": ["a", None]},
            "the answer is a list, but not all its elements",
        ),
        ({"answer": 1}, "no column for the question"),
        ({"question": "q", "prompt": "p"}, "may both be the question"),
    ],
)
def test_2_21_a_row_that_asks_nothing_or_answers_oddly_is_refused(
    gp: Gp, row: dict[str, Any], said: str
) -> None:
    refused(upload(gp, "a.jsonl", json.dumps(row)), "a.jsonl:1: ", said)


def test_2_21_missing_answers_need_a_judge(gp: Gp) -> None:
    questions = '{"question": "q"}\n{"question": "r"}\n'
    refused(upload(gp, "a.jsonl", questions), "no row has an answer", "--no-answers")
    assert upload(gp, "a.jsonl", questions, "--no-answers").code == 0
    Path("c.yaml").write_text(EVAL.replace("dataset: D", "dataset: d"))
    ran = gp("eval", "--config", "c.yaml")
    assert ran.code == 4
    assert "2 answers of dataset 'd' cannot be scored by verify 'math': row 1: " in ran.err
    assert gp("eval", "--config", "c.yaml", "--verify", "judge").code == 0


def test_2_23_other_rows_under_a_name_need_replace_or_append(gp: Gp) -> None:
    upload(gp, "a.jsonl", GOOD)
    config = EVAL.replace("dataset: D", "dataset: d")
    Path("c.yaml").write_text(config)
    assert gp("eval", "--config", "c.yaml").code == 0
    other = '{"question": "3+3?", "answer": "6"}\n'
    ran = upload(gp, "b.jsonl", other)
    assert ran.code == 4
    assert "dataset 'd' already exists with other rows (1, not these 1)" in ran.err
    assert "; an upload can also use --append" in ran.err
    assert "--replace" in ran.err
    assert "--append" in ran.err
    assert [row["question"] for row in rows(gp)] == ["2+2?"]
    assert upload(gp, "b.jsonl", other, "--replace", "--append").code == 2

    ran = upload(gp, "b.jsonl", other, "--append")
    assert ran.out.startswith("d (revision 2) holds 2 rows\n")
    assert [row["question"] for row in rows(gp)] == ["2+2?", "3+3?"]
    ran = upload(gp, "b.jsonl", other, "--replace")
    assert ran.out.startswith("d (revision 3) holds 1 row\n")

    with sqlite3.connect("grpo-practice.db") as db:
        sets = [n for (n,) in db.execute("SELECT revision FROM datasets ORDER BY 1")]
        (used,) = db.execute(
            "SELECT revision FROM branches JOIN datasets USING (dataset_id)"
        ).fetchone()
    db.close()
    assert (sets, used) == ([1, 2, 3], 1)


def test_2_23_nothing_is_appended_to_what_is_not_there(gp: Gp) -> None:
    ran = upload(gp, "a.jsonl", GOOD, "--append")
    assert ran.code == 4
    assert "there is no dataset 'd'" in ran.err


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
def test_2_10_what_is_no_file_is_not_waited_for(gp: Gp, name: str) -> None:
    os.mkfifo(name)
    refused(gp("data", "upload", name, "--name", "d"), f"{name} is not a regular file")
    Path(name).unlink()
    Path(name).mkdir()
    refused(gp("data", "upload", name, "--name", "d"), f"{name} is not a regular file")
    Path(name).rmdir()
    Path(name).symlink_to("/dev/zero")
    refused(gp("data", "upload", name, "--name", "d"), f"{name} is not a regular file")
    Path(name).unlink()
    Path(name).symlink_to(name)
    refused(gp("data", "upload", name, "--name", "d"), f"cannot read {name}: Too many levels")
    refused(gp("data", "upload", "x" * 300 + name, "--name", "d"), "File name too long")


def test_2_10_a_message_stays_readable_whatever_the_columns(gp: Gp) -> None:
    for keys in (["k" * 1_000_000], [f"k{n}" for n in range(50_000)], ["\x1b[2J"]):
        ran = upload(gp, "a.jsonl", json.dumps(dict.fromkeys(keys, 1)))
        refused(ran, "no column for the question")
        assert len(ran.err) < 2_000
        assert "\x1b" not in ran.err
