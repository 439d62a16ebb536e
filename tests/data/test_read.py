import json
import subprocess
import sys
from pathlib import Path

import pytest

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.types import Sample
from grpo_practice.data.formats import FileSource
from grpo_practice.data.read import read_samples


def jsonl(folder: Path, *rows: object) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_file_becomes_samples_in_its_order(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"problem": "p1", "answer": 0.5}, {"problem": "p2", "answer": False})
    result = read_samples(path)
    assert [(s.question, s.answer) for s in result.samples] == [("p1", 0.5), ("p2", False)]
    assert result.notes == ["the question is in 'problem', the answer in 'answer' (the whole text)"]
    assert result.skipped == 0


def test_the_same_rows_are_the_same_samples_in_every_format(tmp_path: Path) -> None:
    row = {"question": "q;1", "answer": "x\n#### 4", "level": "2", "id": "a"}
    lines = jsonl(tmp_path, row, row | {"id": "b"})
    whole = tmp_path / "rows.json"
    whole.write_text(json.dumps([row, row | {"id": "b"}], indent=1))
    table = tmp_path / "rows.csv"
    table.write_text('question,answer,level,id\nq;1,"x\n#### 4",2,a\nq;1,"x\n#### 4",2,b\n')
    first, *others = [[s.sha for s in read_samples(p).samples] for p in (lines, whole, table)]
    assert len(set(first)) == 2
    assert others == [first, first]


def test_one_bad_row_refuses_the_file_and_names_its_line(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"question": "q"}, {"question": " "}, {"question": "r"})
    with pytest.raises(DataError, match=r"rows\.jsonl:2: the question \('question'\) is empty"):
        read_samples(path)


def test_bad_rows_are_left_out_when_asked_and_counted(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"question": ""}, *({"question": f"q{i}"} for i in range(3)), [1])
    result = read_samples(path, skip_bad=True)
    assert [s.question for s in result.samples] == ["q0", "q1", "q2"]
    assert result.skipped == 2
    note = result.notes[-1]
    assert note.startswith("2 bad rows left out")
    assert "rows.jsonl:1: the question" in note
    assert "rows.jsonl:5: the row is a JSON list" in note


def test_an_encoding_is_never_skipped_row_by_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"question": "tea"}\n{"question": "caf\xe9"}\n')
    with pytest.raises(DataError, match=r"rows\.jsonl:2: byte 0xe9"):
        read_samples(path, skip_bad=True)


@pytest.mark.parametrize("content", ["", "\n\n", '{"question": ""}\n'])
def test_a_file_without_a_usable_row_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match="no usable row"):
        read_samples(path, skip_bad=True)


def test_when_all_rows_are_bad_the_first_says_why_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no usable row.*rows\.jsonl:1: 'question' and") as caught:
        read_samples(jsonl(tmp_path, {"question": "a", "prompt": "b"}), skip_bad=True)
    assert "--map question=" in str(caught.value.hint)


def test_missing_answers_are_allowed_and_counted(tmp_path: Path) -> None:
    rows = [{"question": f"q{i}", "answer": None if i % 2 else i} for i in range(16)]
    result = read_samples(jsonl(tmp_path, *rows))
    assert result.samples[1].answer is None
    assert result.notes[1] == ("8 of 16 rows without an answer: line 2, 4, 6, 8, 10, and 3 more")


def test_answers_that_are_lists_are_announced_as_alternatives(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"question": "q", "answers": ["a", "b"]}\n{"question": "r", "answers": "c"}\n')
    found = read_samples(path)
    assert [sample.answer for sample in found.samples] == [["a", "b"], "c"]
    assert "1 of 2 rows with a list of answers, any of which is right: line 1" in found.notes


def test_one_error_names_all_missing_columns(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for header, first in (("Frage,Lösung", "say which with "), ("No.,Lösung", "if these are col")):
        path.write_text(f"{header}\nq,a\n")
        with pytest.raises(DataError, match="no column for the question or the answer") as refused:
            read_samples(path)
        hint = str(refused.value.hint)
        assert hint.startswith(first)
        assert "--map question=COLUMN --map answer=COLUMN" in hint


def test_the_form_comes_from_the_first_answer_there_is(tmp_path: Path) -> None:
    path = jsonl(tmp_path, {"question": "a"}, {"question": "b", "answer": "x\n#### 5"})
    assert [s.answer for s in read_samples(path).samples] == [None, "5"]


def test_a_file_of_mixed_forms_is_refused(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path, {"question": "a", "answer": "x\n#### 5"}, {"question": "b", "answer": "long text"}
    )
    with pytest.raises(DataError, match=r"rows\.jsonl:2: the answer is the whole text"):
        read_samples(path)


def test_lone_surrogates_are_replaced_and_reported(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(
        r'{"question": "a \ud83d\ude00", "answer": "1"}' + "\n"
        r'{"question": "b \ud800 \udc00", "answer": "1", "k": ["\ud800"]}' + "\n"
    )
    result = read_samples(path)
    assert [s.question for s in result.samples] == ["a 😀", "b \ufffd \ufffd"]
    assert result.samples[1].meta == {"k": ["\ufffd"]}
    assert "1 of 2 rows with broken characters, replaced by U+FFFD: line 2" in result.notes


def test_repeated_questions_are_kept_and_counted_unless_dedup(tmp_path: Path) -> None:
    rows = [
        {"question": "two  plus\ntwo", "answer": "4"},
        {"question": "Two plus two", "answer": "4"},
        {"question": " two plus two ", "answer": "4"},
        {"question": "two plus two", "answer": "5"},
    ]
    path = jsonl(tmp_path, *rows)
    kept = read_samples(path)
    assert len(kept.samples) == 4
    assert "2 of 4 rows with the question of an earlier row, kept" in kept.notes[1]
    dropped = read_samples(path, dedup=True)
    assert [s.question for s in dropped.samples] == ["two  plus\ntwo", "Two plus two"]
    assert dropped.skipped == 0
    assert "2 of 4 rows with the question of an earlier row, left out: line 3, 4" in dropped.notes
    for result in (kept, dropped):
        assert result.notes[2] == (
            "1 of them has a different answer: line 4"
            " repeats the question of line 1 with another answer"
        )


def test_rows_on_one_line_are_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text('[{"question": "a"}, {"question": "a"}, {"question": 3}]')
    with pytest.raises(DataError, match=r"rows\.json:1 \(row 3\): the question"):
        read_samples(path)
    assert len(read_samples(path, dedup=True, skip_bad=True).samples) == 1


def test_a_wrong_mapping_is_no_bad_row(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no 'text'"):
        read_samples(
            jsonl(tmp_path, {"question": "q"}), mapping={"question": "text"}, skip_bad=True
        )


def test_a_row_nested_too_deeply_is_a_bad_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    deep = "[" * 2_000 + "]" * 2_000  # Python 3.12 reads 900
    path.write_text('{"question": "q"}\n{"question": "q", "k": ' + deep + "}\n")
    with pytest.raises(DataError, match=r"rows\.jsonl:2: .*nested too deeply"):
        read_samples(path)


@pytest.mark.long
def test_a_long_file_is_read_line_by_line(tmp_path: Path) -> None:
    # Peak memory above the start must stay below the file's own size: lines are not gathered, and
    # what is not kept of a row (here, repeats of one question) is let go.
    path = tmp_path / "rows.jsonl"
    line = json.dumps({"question": "q", "answer": "1", "text": "x" * 4000})
    path.write_text(f"{line}\n" * 8_000)  # 32 MB
    code = (
        "import sys, tracemalloc; from pathlib import Path\n"
        "from grpo_practice.data.read import read_samples\n"
        "tracemalloc.start(); r = read_samples(Path(sys.argv[1]), dedup=True)\n"
        "assert len(r.samples) == 1; print(tracemalloc.get_traced_memory()[1])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True
    )
    assert int(out.stdout) < 4_000_000


def test_rows_inside_one_object(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    rows = [{"input": "not True is", "target": "False"}]
    path.write_text(json.dumps({"canary": "x", "examples": rows}, indent=1))
    found = read_samples(path)
    assert found.samples == [Sample("not True is", "False")]
    assert "the rows are in 'examples' (for another list: --rows KEY)" in found.notes
    path.write_text(json.dumps({"a": {"b": rows}, "c": rows, "d": rows}))
    with pytest.raises(DataError, match="it is not clear which list in it holds the rows") as e:
        read_samples(path)
    assert "--rows c" in str(e.value.hint)
    assert read_samples(FileSource(path, rows="c")).samples == found.samples
    for key in ("a", "a.b"):
        with pytest.raises(ConfigError, match=f"--rows {key}: there is no list") as missing:
            read_samples(FileSource(path, rows=key))
        assert "save a list inside one of these as a file of its own" in str(missing.value.hint)
    path.write_text(json.dumps(rows))
    with pytest.raises(ConfigError, match="is already one list"):
        read_samples(FileSource(path, rows="a"))
