"""Files of questions: each format and shape is read as documented, or refused in a sentence."""

import csv
import gzip
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.contract.command import Gp

PAIRS = (("What is 1 + 1?", "2"), ("What is 2 + 2?", "4"))
ROWS = [{"question": question, "answer": answer} for question, answer in PAIRS]


def lines(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows as lines of JSON."""
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def table(delimiter: str = ",", header: Sequence[str] = ("question", "answer")) -> bytes:
    """Return the rows as a table of text."""
    file = io.StringIO()
    writer = csv.writer(file, delimiter=delimiter)
    writer.writerows([*([header] if header else []), *PAIRS])
    return file.getvalue().encode()


def columns(rows: Sequence[Mapping[str, Any]], **options: Any) -> bytes:
    """Return rows as a parquet file."""
    import pyarrow as pa
    from pyarrow import parquet

    file = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(list(rows)), file, **options)
    return file.getvalue()


FILES: Mapping[str, tuple[bytes, tuple[str, ...]]] = {
    "a.jsonl": (lines(ROWS), ()),
    "a.ndjson": (lines(ROWS), ()),
    "a.json": (json.dumps(ROWS).encode(), ()),
    "object.json": (json.dumps({"about": "sums", "examples": ROWS}).encode(), ()),
    "two.json": (json.dumps({"train": ROWS, "test": ROWS[:1]}).encode(), ("--rows", "train")),
    "a.csv": (table(), ()),
    "semicolons.csv": (table(";"), ()),
    "pipes.csv": (table("|"), ("--delimiter", "|")),
    "headless.csv": (table(header=()), ("--columns", "question,answer")),
    "a.tsv": (table("\t"), ()),
    "a.jsonl.gz": (gzip.compress(lines(ROWS)), ()),
    "packed.csv": (gzip.compress(table()), ()),
    "bom.csv": (b"\xef\xbb\xbf" + table(), ()),
    "nameless": (lines(ROWS), ("--format", "jsonl")),
}
"""Name → content and options; each holds the two questions."""
PARQUET: Mapping[str, Mapping[str, Any]] = {
    "a.parquet": {},
    "plain.parquet": {"compression": "none", "use_dictionary": False},
    "gz.parquet": {"compression": "gzip", "row_group_size": 1},
}
"""Name → how the same rows are written as a parquet file."""
ASKED, GIVEN = PAIRS[0]
USER, ASSISTANT = {"role": "user", "content": ASKED}, {"role": "assistant", "content": GIVEN}
SHAPES: Mapping[str, tuple[dict[str, Any], tuple[str, ...], str, str]] = {
    "alpaca": (
        {"instruction": "Add.", "input": ASKED, "output": GIVEN}, (), f"Add.\n\n{ASKED}", GIVEN,
    ),
    "chat": ({"messages": [USER, ASSISTANT]}, (), ASKED, GIVEN),
    "sharegpt": (
        {"conversations": [{"from": "human", "value": ASKED}, {"from": "gpt", "value": GIVEN}]},
        (), ASKED, GIVEN,
    ),
    "evals": ({"input": [USER], "ideal": GIVEN}, (), ASKED, GIVEN),
    "trl": ({"prompt": [USER], "completion": [ASSISTANT]}, (), ASKED, GIVEN),
    "preference": ({"prompt": ASKED, "chosen": GIVEN, "rejected": "3"}, (), ASKED, GIVEN),
    "verl": ({"prompt": [USER], "reward_model": {"ground_truth": GIVEN}}, (), ASKED, GIVEN),
    "other names": ({"problem": ASKED, "gold": GIVEN}, (), ASKED, GIVEN),
    "mapped": (
        {"task": ASKED, "info": {"right": GIVEN}},
        ("--map", "question=task", "--map", "answer=info.right"), ASKED, GIVEN,
    ),
    "a template": (
        {"subject": "sums", "question": ASKED, "answer": GIVEN},
        ("--template", "About {subject}: {question}"), f"About sums: {ASKED}", GIVEN,
    ),
    "a passage": (
        {"context": "One and one.", "question": ASKED, "answer": GIVEN},
        (), f"One and one.\n\n{ASKED}", GIVEN,
    ),
    "options": (
        {"question": ASKED, "choices": ["1", "2"], "answer": 1},
        ("--gold", "index"), f"{ASKED}\n\nA. 1\nB. 2", "B",
    ),
    "letters": (
        {"question": ASKED, "A": "1", "B": "2", "answer": "B"}, (), f"{ASKED}\n\nA. 1\nB. 2", "B",
    ),
    "hashes": ({"question": ASKED, "answer": f"One and one.\n#### {GIVEN}"}, (), ASKED, GIVEN),
    "a box": ({"problem": ASKED, "solution": f"So \\boxed{{{GIVEN}}}."}, (), ASKED, GIVEN),
}  # fmt: skip
"""Shape → row, options, and the question and the answer that come of it."""
BAD: Mapping[str, tuple[bytes, tuple[str, ...], str]] = {
    "empty.jsonl": (b"", (), "empty.jsonl"),
    "broken.jsonl": (lines(ROWS) + b'{"question": \n', (), "broken.jsonl:3"),
    "broken.json": (b"[{", (), "broken.json"),
    "twice.jsonl": (b'{"question": "a", "question": "b", "answer": 1}\n', (), "twice.jsonl:1"),
    "latin.csv": (b"question,answer\ncaf\xe9,1\n", (), "latin.csv"),
    "headless.csv": (table(header=()), (), "--columns"),
    "no question.jsonl": (b'{"x": 1, "answer": 2}\n', (), "question"),
    "cut.gz": (gzip.compress(lines(ROWS))[:-9], ("--format", "jsonl"), "cut.gz"),
    "nameless": (lines(ROWS), (), "--format"),
    "nan.jsonl": (b'{"question": "a", "answer": NaN}\n', (), "nan.jsonl:1"),
    "two.json": (json.dumps({"a": ROWS, "b": ROWS}).encode(), (), "--rows"),
    "options.jsonl": (
        lines([{"question": ASKED, "choices": ["3", "2", "1"], "answer": "2"}]), (), "--gold",
    ),
    "several.jsonl": (
        lines([{"question": ASKED, "choices": ["1", "2"], "answer": ["A", "B"]}]), (), "--select",
    ),
}  # fmt: skip
"""Name → content, options, and what the error or its hint names."""


def first(gp: Gp, name: str) -> tuple[str, str]:
    """Return question and answer of the first row of a stored dataset."""
    row = gp("data", "show", name, "--json").document["rows"][0]
    return row["question"], str(row["answer"])


def test_each_format_holds_the_same_rows(gp: Gp) -> None:
    wrong = {}
    parquet = {name: (columns(ROWS, **options), ()) for name, options in PARQUET.items()}
    for i, (name, (content, options)) in enumerate({**FILES, **parquet}.items()):
        Path(name).write_bytes(content)
        ran = gp("data", "upload", name, "--name", f"d{i}", *options, "--json")
        got = (ran.document.get("dataset", {}).get("n"), ran.code) if ran.out else ran
        if got != (2, 0) or first(gp, f"d{i}") != PAIRS[0]:
            wrong[name] = ran
    assert wrong == {}
    hashes = {d["sha256"] for d in gp("data", "list", "--json").document["datasets"]}
    assert len(hashes) == 1, "one content has one hash, whatever file it came in"


def test_each_shape_gives_question_and_answer(gp: Gp) -> None:
    wrong = {}
    for i, (shape, (row, options, question, answer)) in enumerate(SHAPES.items()):
        Path("rows.jsonl").write_bytes(lines([row]))
        ran = gp("data", "upload", "rows.jsonl", "--name", f"d{i}", *options)
        if ran.code != 0:
            wrong[shape] = ran.err
        elif (got := first(gp, f"d{i}")) != (question, answer):
            wrong[shape] = str(got)
    assert wrong == {}


def test_a_file_that_cannot_be_read_is_refused_by_name(gp: Gp) -> None:
    wrong = {}
    cut = (columns(ROWS)[:-9], (), "cut.parquet")
    for name, (content, options, said) in {**BAD, "cut.parquet": cut}.items():
        Path(name).write_bytes(content)
        ran = gp("data", "upload", name, "--name", "d", *options)
        if ran.code not in (2, 4) or said not in ran.err or "internal" in ran.err:
            wrong[name] = ran
    assert wrong == {}
    assert "there is no database" in gp("data", "list").err, "nothing is stored"


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_what_is_exported_is_what_was_uploaded(gp: Gp, name: str) -> None:
    Path(name).write_bytes(columns(ROWS) if name == "a.parquet" else FILES[name][0])
    assert gp("data", "upload", name, "--name", "d").code == 0
    assert gp("data", "export", "d", "-o", "out.jsonl").code == 0
    again = gp("data", "upload", "out.jsonl", "--name", "e", "--json").document["dataset"]
    assert again["sha256"] == gp("data", "show", "d", "--json").document["dataset"]["sha256"]
