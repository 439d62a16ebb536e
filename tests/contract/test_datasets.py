"""Datasets from datasets, from pipes and from published shapes, as a person makes them."""

import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.contract.command import Gp

EVAL = """
exp_id: e
agent: {model: {model_provider: {model: sim}}}
data: {dataset: D}
verify: math
"""

CHAT = {"messages": [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]}


def put(name: str, *rows: dict[str, Any]) -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def made(gp: Gp, *rows: dict[str, Any]) -> None:
    assert gp("data", "upload", put("d.jsonl", *rows), "--name", "d").code == 0


def numbered(n: int, **more: str) -> list[dict[str, Any]]:
    return [{"question": f"{i} + 1?", "answer": str(i + 1), **more} for i in range(n)]


def questions(gp: Gp, name: str) -> set[str]:
    rows = gp("data", "show", name, "--rows", "9999", "--json").document["rows"]
    return {row["question"] for row in rows}


def sizes(gp: Gp) -> dict[str, int]:
    return {d["name"]: d["n"] for d in gp("data", "list", "--json").document["datasets"]}


def test_the_shape_is_said_and_may_be_chosen(gp: Gp) -> None:
    ran = gp("data", "upload", put("a.jsonl", CHAT), "--name", "a")
    assert "read as a chat: the answer is the last turn of 'messages'" in ran.out
    both = put("b.jsonl", CHAT | {"question": "3+3?", "answer": "6"})
    ran = gp("data", "upload", both, "--name", "b")
    assert ran.code == 4
    assert "b.jsonl:1: the columns fit a chat and a table" in ran.err
    assert "--shape chat or --shape columns" in ran.err
    assert gp("data", "upload", both, "--name", "b", "--shape", "columns").code == 0
    assert questions(gp, "b") == {"3+3?"}
    assert gp("data", "upload", both, "--name", "c", "--shape", "gpt").code == 2


@pytest.mark.parametrize("packed", [False, True])
def test_rows_may_be_piped_in(gp: Gp, monkeypatch: pytest.MonkeyPatch, packed: bool) -> None:
    content = b"question\tanswer\n2+2?\t4\n"
    raw = io.BytesIO(gzip.compress(content) if packed else content)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(raw))
    ran = gp("data", "upload", "-", "--format", "tsv", "--name", "d")
    assert ran.out.startswith("d (revision 1) holds 1 row\n")
    assert gp("data", "list", "--json").document["datasets"][0]["origin"] == "stdin"
    ran = gp("data", "upload", "-", "--name", "e")
    assert (ran.code, "--format jsonl" in ran.err) == (2, True)


def test_parquet_as_verl_writes_it_and_what_is_left_out_is_said(gp: Gp) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    rows = [
        {
            "data_source": "math",
            "prompt": [{"role": "user", "content": f"{i} + 1?"}],
            "reward_model": {"ground_truth": str(i + 1), "style": "rule"},
            "image": b"\x00",
        }
        for i in range(3)
    ]
    parquet.write_table(pa.Table.from_pylist(rows), "d.parquet")
    ran = gp("data", "upload", "d.parquet", "--name", "d")
    assert ran.code == 0, ran
    assert "read as verl: the question is 'prompt'" in ran.out
    assert "columns left out: 'image' (binary)" in ran.out
    (row,) = gp("data", "show", "d", "--rows", "1", "--json").document["rows"]
    assert (row["question"], row["answer"], row["source"]) == ("0 + 1?", "1", "math")
    assert gp("data", "upload", "d.parquet", "--name", "d", "--format", "parquet").code == 0


def test_a_split_divides_and_says_how(gp: Gp) -> None:
    made(gp, *numbered(50), *numbered(5))
    ran = gp("data", "split", "d", "--into", "train=0.8,test=0.2")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()[2:4]] == ["d-train", "d-test"]
    assert "next: grpo-practice eval --model sim --dataset d-test" in ran.out
    train, test = questions(gp, "d-train"), questions(gp, "d-test")
    assert not train & test
    assert (len(train | test), sum(sizes(gp).values())) == (50, 110)
    assert "is split, as before" in gp("data", "split", "d").out


def test_the_split_document(gp: Gp) -> None:
    made(gp, *numbered(10, source="x"))
    words = ("data", "split", "d", "--into", "a=0.5,b=0.5", "--by", "source", "--json")
    document = gp(*words).document
    assert document["schema"] == "grpo-practice.split/1"
    assert (document["by"], document["seed"]) == ("source", 0)
    named = [(p["dataset"]["name"], p["dataset"]["n"], p["new"]) for p in document["parts"]]
    assert named == [("d-a", 5, True), ("d-b", 5, True)]
    assert document["parts"][0]["dataset"]["origin"] == "split of d (revision 1, seed 0)"
    assert [p["new"] for p in gp(*words).document["parts"]] == [False, False]


def test_another_split_needs_replace_and_half_of_one_is_never_stored(gp: Gp) -> None:
    made(gp, *numbered(20))
    other = put("o.jsonl", {"question": "mine", "answer": "1"})
    gp("data", "upload", other, "--name", "d-test")
    ran = gp("data", "split", "d")
    assert ran.code == 4
    assert "'d-test' already exists" in ran.err
    assert sizes(gp) == {"d": 20, "d-test": 1}
    assert gp("data", "split", "d", "--replace").code == 0
    assert sizes(gp) == {"d": 20, "d-test": 4, "d-train": 16}


def test_keep_leaves_every_question_where_it_is(gp: Gp) -> None:
    made(gp, *numbered(20))
    gp("data", "split", "d")
    train, test = questions(gp, "d-train"), questions(gp, "d-test")
    more = put("m.jsonl", *numbered(40))
    gp("data", "upload", more, "--name", "d", "--replace")
    assert gp("data", "split", "d", "--keep", "--seed", "5").code == 0
    assert train <= questions(gp, "d-train")
    assert test <= questions(gp, "d-test")
    assert sizes(gp) == {"d": 40, "d-test": 8, "d-train": 32}


@pytest.mark.long_after(4)
@pytest.mark.parametrize(
    "into", ["train=0.8", "a=0.5,b=0.6", "a=0.5,a=0.5", "a", "a=x,b=0.5", "a=nan,b=1", "a=1,b=0",
             "a/b=0.5,c=0.5", "=0.5,b=0.5", ""]
)  # fmt: skip
def test_parts_that_cannot_be_are_refused(gp: Gp, into: str) -> None:
    made(gp, *numbered(4))
    assert gp("data", "split", "d", "--into", into).code == 2
    assert sizes(gp) == {"d": 4}


def test_a_share_that_is_all_is_told_what_a_share_is(gp: Gp) -> None:
    made(gp, *numbered(4))
    ran = gp("data", "split", "d", "--into", "train=1")
    assert "'train=1' is not PART=SHARE with a share above 0 and below 1" in ran.err


def test_a_sample_is_drawn_and_named(gp: Gp) -> None:
    made(gp, *numbered(30))
    ran = gp("data", "sample", "d", "-n", "10", "--name", "d10")
    assert ran.out.startswith("d10 (revision 1) holds 10 rows of the 30 of d (seed 0)\n")
    document = gp("data", "sample", "d", "-n", "10", "--name", "d10", "--json").document
    assert (document["schema"], document["new"]) == ("grpo-practice.sample/1", False)
    gp("data", "sample", "d", "-n", "20", "--name", "d20")
    assert questions(gp, "d10") < questions(gp, "d20")
    assert gp("data", "sample", "d", "-n", "31", "--name", "d31").code == 4
    assert gp("data", "sample", "d", "-n", "5", "--name", "d").code == 2
    assert gp("data", "sample", "d", "-n", "10", "--seed", "1", "--name", "d10").code == 4


@pytest.mark.long
def test_each_command_names_a_function_that_can_use_the_answers(gp: Gp) -> None:
    def named(verify: str, *rows: dict[str, Any], missing: str = "") -> None:
        words = [word for word in (missing, "--replace") if word]
        ran = gp("data", "upload", put("d.jsonl", *rows), "--name", "d", *words)
        commands = ["show d", "sample d -n 10 --name s --replace", "split d --replace"]
        for told in [ran, *(gp("data", *command.split()) for command in commands)]:
            assert told.out.splitlines()[-1].endswith(f"--verify {verify}"), told

    named("math", *numbered(10))
    cities = [{"question": f"Capital of {i}?", "answer": f"City {'ab'[i % 2]}"} for i in range(10)]
    named("contains", *cities)
    named("choice", *[row | {"answer": "B"} for row in cities])
    named("judge", *[row | {"answer": "prose, " * 20} for row in cities])
    named("judge", *[row | {"answer": None} for row in cities], missing="--no-answers")
    named("judge", *numbered(10), *({"question": f"Why {n}?"} for n in range(9)))
    rows = [*numbered(401), {"question": "Why?"}]  # more than are tried
    ran = gp("data", "upload", put("m.jsonl", *rows), "--name", "m")
    assert ran.out.splitlines()[-1].endswith("--verify math"), ran
    rows[-1] = {"question": "Why?", "answer": "1" * 6_000 + "+x"}  # no mathematics that is read
    ran = gp("data", "upload", put("l.jsonl", *rows), "--name", "l")
    assert "verify math cannot use 1 of 402 answers" in ran.out
    assert ran.out.splitlines()[-1].endswith("--verify math"), ran
    for command in ("show m", "sample m -n 402 --name n"):
        ran = gp("data", *command.split())
        assert ran.out.splitlines()[-1].endswith("--verify math"), ran


def test_a_published_dataset_that_lacks_is_to_be_downloaded(gp: Gp) -> None:
    made(gp, *numbered(4))
    for name, way in (
        ("AIME24", "download AIME24"),
        ("aime24", "download AIME24 --name aime24"),
        ("mine", "list"),
    ):
        ran = gp("data", "show", name)
        assert f"hint: grpo-practice data {way}\n" in ran.err
    ran = gp("eval", "--model", "sim", "--dataset", "DAPO-Math-17k", "--verify", "math")
    assert (ran.code, "grpo-practice data download DAPO-Math-17k" in ran.err) == (4, True)


def test_a_mixed_dataset_is_scored_by_source_and_a_single_one_is_not(gp: Gp) -> None:
    rows = [
        *({"question": f"{i} + 1?", "answer": str(i + 1), "source": "sums"} for i in range(4)),
        *({"question": f"Who is {i}?", "answer": "nobody", "source": "people"} for i in range(2)),
        {"question": "9 + 9?", "answer": "18"},
    ]
    put("m.jsonl", *rows)
    Path("c.yaml").write_text(EVAL.replace("dataset: D", "dataset: m.jsonl, type: mixed"))
    document = gp("eval", "--config", "c.yaml", "--json").document
    parts = document["by_source"]
    assert {name: part["questions"] for name, part in parts.items()} == {
        "": 1, "people": 2, "sums": 4,
    }  # fmt: skip
    for part in parts.values():
        assert {"mean", "ci95", "coverage", "questions_scored"} <= set(part)
    means = sum(part["mean"] * part["questions"] for part in parts.values()) / 7
    assert means == pytest.approx(document["score"]["mean"])
    text = gp("eval", "--config", "c.yaml").out
    table = text[text.index("source ") :].splitlines()[1:4]
    assert [line.split()[0] for line in table] == ["(none)", "people", "sums"]
    Path("c.yaml").write_text(EVAL.replace("dataset: D", "dataset: m.jsonl"))
    assert gp("eval", "--config", "c.yaml", "--json").document["by_source"] == {}
