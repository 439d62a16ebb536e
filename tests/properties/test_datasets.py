"""A dataset is read as it was written, by whatever wrote it, or refused with the line."""

import csv
import io
import json
import tempfile
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.hashing import canon, clean_json
from grpo_practice.core.types import Sample
from grpo_practice.data.formats import FileSource
from grpo_practice.data.read import ReadResult, read_samples
from tests.properties.texts import BROKEN, FLOATS, HARD, INTS, OBJECTS, TEXTS

Line = Literal["\n", "\r\n"]

QUESTIONS = TEXTS.map(lambda text: text if text.strip() else f"q{text}")
WORDS = QUESTIONS.map(lambda text: text.replace("####", "##"))  # GSM8K's form has its own tests
ANSWERS = (
    st.none() | st.booleans() | INTS | FLOATS | WORDS
    | st.lists(st.booleans() | INTS | FLOATS | WORDS, min_size=1, max_size=3)
)  # fmt: skip
LABELS = QUESTIONS
META = OBJECTS.filter(lambda meta: "solution" not in meta)
SAMPLES = st.lists(
    st.builds(
        Sample,
        question=QUESTIONS,
        answer=ANSWERS,
        source=st.just("") | LABELS,
        level=st.none() | LABELS,
        cluster=st.none() | LABELS,
        meta=META,
    ),
    min_size=1,
    max_size=5,
)
ENDS: st.SearchStrategy[Line] = st.sampled_from(["\n", "\r\n"])


def fields(sample: Sample) -> dict[str, Any]:
    return {
        "question": sample.question,
        "answer": sample.answer,
        "source": sample.source,
        "level": sample.level,
        "cluster": sample.cluster,
        "meta": dict(sample.meta),
    }


def read(name: str, content: bytes, **how: Any) -> ReadResult:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        source = FileSource(path, delimiter=how.pop("delimiter", None))
        return read_samples(source, **how)


@given(SAMPLES, st.booleans(), st.booleans(), ENDS)
def test_json_lines_are_read_as_they_were_written(
    samples: list[Sample], ascii_only: bool, mark: bool, end: Line
) -> None:
    lines = [json.dumps(fields(s), ensure_ascii=ascii_only) for s in samples]
    content = ("\ufeff" if mark else "") + "".join(line + end for line in lines)
    found = read("a.jsonl", content.encode()).samples
    assert canon([fields(s) for s in found]) == canon([fields(s) for s in samples])
    assert [s.sha for s in found] == [s.sha for s in samples]


@given(SAMPLES, st.sampled_from([None, 0, 1, "\t"]), st.booleans())
def test_a_json_list_is_read_as_it_was_written(
    samples: list[Sample], indent: int | str | None, mark: bool
) -> None:
    text = json.dumps([fields(s) for s in samples], indent=indent, ensure_ascii=False)
    found = read("a.json", (("\ufeff" if mark else "") + text).encode()).samples
    assert [s.sha for s in found] == [s.sha for s in samples]


CELLS = WORDS.map(lambda text: text.replace("\0", "0"))  # which no CSV has


@given(
    st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=5),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    ENDS,
)
def test_csv_is_read_as_it_was_written(
    rows: list[tuple[str, str]], delimiter: str, quoting: Literal[0, 1], end: Line
) -> None:
    if quoting == csv.QUOTE_MINIMAL:  # Python's writer forgets the quotes around a CR
        rows = [(q.replace("\r", "."), a.replace("\r", ".")) for q, a in rows]
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=delimiter, quoting=quoting, lineterminator=end)
    writer.writerows([("question", "answer"), *rows])
    found = read("a.csv", out.getvalue().encode()).samples
    assert [(s.question, s.answer) for s in found] == rows


@given(SAMPLES, st.data())
def test_a_broken_row_is_named_and_leaves_the_others_alone(
    samples: list[Sample], data: st.DataObject
) -> None:
    lines = [json.dumps(fields(s)) for s in samples]
    bad = data.draw(st.integers(0, len(lines)))
    whole = json.dumps(fields(samples[0]))
    cut = whole[: data.draw(st.integers(1, len(whole) - 1))]
    broken = data.draw(
        st.sampled_from([cut, "[]", '{"question": ""}', '{"answer": 1}', "NaN", "{"])
    )
    lines.insert(bad, broken)
    content = "\n".join(lines).encode()
    with pytest.raises(DataError, match=rf"a\.jsonl:{bad + 1}: "):
        read("a.jsonl", content)
    kept = read("a.jsonl", content, skip_bad=True)
    assert ([s.sha for s in kept.samples], kept.skipped) == ([s.sha for s in samples], 1)


@given(st.lists(st.tuples(BROKEN, BROKEN, BROKEN), min_size=1, max_size=3))
def test_lone_surrogates_are_replaced_and_counted(rows: list[tuple[str, str, str]]) -> None:
    written = [{"question": f"q{q}", "answer": f"a{a}", f"k{k}": q} for q, a, k in rows]
    assume(all(len(clean_json(row)) == 3 for row in written))
    found = read("a.jsonl", "\n".join(map(json.dumps, written)).encode())
    spelt = [
        json.loads(json.dumps(row)) for row in written
    ]  # two halves, one after the other, join
    expected = [clean_json(row) for row in spelt]
    assert [s.question for s in found.samples] == [row["question"] for row in expected]
    broken = sum(row != clean for row, clean in zip(spelt, expected, strict=True))
    said = [note for note in found.notes if "broken characters" in note]
    assert [note.split(" ")[0] for note in said] == ([str(broken)] if broken else [])
    event("broken" if broken else "whole")


PIECES = st.one_of(
    st.binary(max_size=8),
    st.sampled_from(HARD).map(str.encode),
    st.sampled_from(
        [b"\n", b"\r", b"\r\n", b",", b";", b'"', b"{", b"}", b"[", b"]", b'"question":', b'"x"',
         b"\xef\xbb\xbf", b"\xff\xfe", b"\xed\xa0\x80", b"question,answer\n", b"NaN", b"9" * 5_000,
         b"[" * 2_000, b'{"question":"x","answer":1}',
         b'{"question":"x","answer":1e999}', b'{"question":"\\ud800","answer":"\\ud800"}']
    ),
)  # fmt: skip


@given(
    st.lists(PIECES, max_size=8).map(b"".join),
    st.sampled_from(["a.jsonl", "a.ndjson", "a.json", "a.csv", "a.CSV"]),
    st.booleans(),
    st.just(None) | st.sampled_from([None, ",", "\\t", "|", "", "ab", '"', "\n"]),
)
def test_any_bytes_are_samples_or_an_error_that_says_where(
    content: bytes, name: str, skip_bad: bool, delimiter: str | None
) -> None:
    said, samples = "", list[Sample]()
    try:
        samples = read(name, content, skip_bad=skip_bad, delimiter=delimiter).samples
    except DataError as e:
        said = str(e)
    except ConfigError:
        said = name if delimiter is not None else "a delimiter where none was given"
    if said:
        assert name in said
    else:
        assert samples
        assert all(s.question.strip() for s in samples)
        canon([fields(s) for s in samples])
    event("refused" if said else "read")
