"""Published shapes and packed files are read as written; splits never share a question."""

import gzip
import json
from typing import Any, Literal

from hypothesis import assume, event, given
from hypothesis import strategies as st

from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.hashing import canon
from grpo_practice.core.text import folded
from grpo_practice.core.types import Sample
from grpo_practice.data.published_shapes import SHAPES
from grpo_practice.data.split import split
from tests.properties.test_datasets import CELLS, PIECES, QUESTIONS, SAMPLES, WORDS, fields, read
from tests.properties.texts import JSON

NAMES = {
    "openai": ("role", "content", "user", "assistant"),
    "sharegpt": ("from", "value", "human", "gpt"),
}
TURNS = st.lists(st.tuples(QUESTIONS, WORDS), min_size=1, max_size=3)


def spelt(
    turns: list[tuple[str, str]], system: str | None, names: tuple[str, str, str, str]
) -> list[dict[str, Any]]:
    who, what, user, assistant = names
    first = [] if system is None else [{who: "system", what: system}]
    return [
        *first,
        *(
            {who: role, what: text}
            for pair in turns
            for role, text in zip((user, assistant), pair, strict=True)
        ),
    ]


@given(
    TURNS,
    st.none() | QUESTIONS,
    st.sampled_from(["messages", "conversations"]),
    st.sampled_from(sorted(NAMES)),
    st.booleans(),
)
def test_the_last_answer_of_a_conversation_is_the_answer_to_all_before_it(
    turns: list[tuple[str, str]], system: str | None, key: str, names: str, packed: bool
) -> None:
    conversation = spelt(turns, system, NAMES[names])
    row = {key: json.dumps(conversation) if packed else conversation}
    (sample,) = read("a.jsonl", json.dumps(row).encode()).samples
    assert sample.answer == turns[-1][1]
    assert sample.meta == ({} if system is None else {"system": system})
    if len(turns) == 1:
        assert sample.question == turns[0][0]
    else:
        before = [text for pair in turns for text in pair][:-1]
        said = [("User: ", "Assistant: ")[i % 2] + text for i, text in enumerate(before)]
        assert sample.question == "\n\n".join(said)


@given(QUESTIONS, WORDS, st.sampled_from(["alpaca", "evals", "trl", "preference", "verl"]))
def test_texts_of_every_shape_stay_as_they_are(question: str, answer: str, shape: str) -> None:
    assume(not question.lstrip().startswith("["))  # a packed conversation may look so
    rows: dict[str, dict[str, Any]] = {
        "alpaca": {"instruction": question, "output": answer},
        "evals": {"input": question, "ideal": answer},
        "trl": {"prompt": question, "completion": answer},
        "preference": {"prompt": question, "chosen": answer, "rejected": "no"},
        "verl": {"prompt": question, "reward_model": {"ground_truth": answer}},
    }
    (sample,) = read("a.jsonl", json.dumps(rows[shape]).encode()).samples
    assert (sample.question, sample.answer) == (question, answer)


@given(SAMPLES, st.booleans())
def test_packed_json_lines_are_read_as_they_were_written(samples: list[Sample], mark: bool) -> None:
    text = ("\ufeff" if mark else "") + "".join(json.dumps(fields(s)) + "\n" for s in samples)
    found = read("a.jsonl.gz", gzip.compress(text.encode())).samples
    assert [s.sha for s in found] == [s.sha for s in samples]


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=5))
def test_tsv_is_read_as_it_was_written(rows: list[tuple[str, str]]) -> None:
    lines = [("question", "answer"), *rows]
    quoted = ('"' + '"\t"'.join(cell.replace('"', '""') for cell in line) + '"' for line in lines)
    found = read("a.tsv", "\n".join(quoted).encode()).samples
    assert [(s.question, s.answer) for s in found] == rows


ODD = st.recursive(
    JSON | st.fixed_dictionaries({}, optional={"role": JSON, "content": JSON, "from": JSON,
                                               "value": JSON, "tool_calls": JSON}),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=4,
)  # fmt: skip
KEYS = st.sampled_from(
    ["messages", "conversations", "prompt", "completion", "chosen", "rejected", "label", "input",
     "ideal", "instruction", "output", "history", "reward_model", "answer", "system", "meta"]
)  # fmt: skip


@given(
    st.lists(st.dictionaries(KEYS, ODD, max_size=4), min_size=1, max_size=2),
    st.none() | st.sampled_from([*SHAPES, "columns"]),
)
def test_any_rows_are_samples_or_an_error_that_says_where(
    rows: list[dict[str, Any]], shape: str | None
) -> None:
    content = "\n".join(map(json.dumps, rows)).encode()
    said, found = "", list[Sample]()
    try:
        found = read("a.jsonl", content, shape=shape).samples
    except DataError as e:
        said = str(e)
    event("refused" if said else "read")
    assert bool(found) == ("a.jsonl" not in said)
    assert all(s.question.strip() for s in found)
    canon([fields(s) for s in found])


@given(
    st.lists(PIECES, max_size=8).map(b"".join),
    st.sampled_from(["a.tsv", "a.jsonl.gz", "a.csv.gz", "a.json.gz", "a.parquet"]),
    st.sampled_from(["as it is", "packed", "cut"]),
    st.booleans(),
)
def test_any_bytes_of_the_newer_formats_are_samples_or_an_error(
    content: bytes, name: str, how: Literal["as it is", "packed", "cut"], skip_bad: bool
) -> None:
    packed = content if how == "as it is" else gzip.compress(content)
    said, found = "", list[Sample]()
    try:
        found = read(name, packed[:-5] if how == "cut" else packed, skip_bad=skip_bad).samples
    except (DataError, ConfigError) as e:
        said = str(e)
    event("refused" if said else "read")
    assert bool(found) == (name not in said)
    assert not (found and how == "cut")


ROWS = st.lists(
    st.builds(
        Sample,
        question=st.sampled_from(["a", "A", " a", "b", "B\n", "c", "ß", "SS", "d e", "D  E"]),
        cluster=st.none() | st.sampled_from("12"),
    ),
    min_size=1,
)


@given(ROWS, st.integers(0, 3))
def test_no_question_and_no_cluster_is_ever_in_two_parts(rows: list[Sample], seed: int) -> None:
    try:
        parts = split(rows, {"x": 0.5, "y": 0.3, "z": 0.2}, seed=seed)
    except DataError:
        event("too few")
        return
    assert sum(map(len, parts.values())) == len(rows)
    for one, other in (("x", "y"), ("x", "z"), ("y", "z")):
        a, b = parts[one], parts[other]
        assert not {folded(s.question) for s in a} & {folded(s.question) for s in b}
        assert not {s.cluster for s in a} & {s.cluster for s in b} - {None}
