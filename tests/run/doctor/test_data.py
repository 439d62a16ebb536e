"""What `doctor` finds in the data, and in a verify function it tries on answers of its own."""

from pathlib import Path
from typing import Any

import pytest

from grpo_practice.config import load_eval
from grpo_practice.core.types import Sample
from grpo_practice.run.doctor.data import diagnose_questions, diagnose_verify
from grpo_practice.verify.trial import boxed, near_misses


def samples(*pairs: tuple[str, Any]) -> list[Sample]:
    return [Sample(question, answer) for question, answer in pairs]


def test_questions_that_stand_twice_are_counted_without_case_and_spaces() -> None:
    data = {
        "practice": samples(("What is  1+1?", 2), ("what is 1+1?", 2), ("b", 1)),
        "evaluation": samples(("WHAT IS 1+1? ", 2), ("c", 1)),
        "selection": samples(("d", 1)),
    }
    told = [(f.about, f.severity, f.sentence) for f in diagnose_questions(data)]
    assert told == [
        ("practice data", "warning", "1 question is repeated"),
        ("evaluation data", "warning", "1 of 2 questions is also in the practice data"),
    ]


SCORES = """
def said(sample):
    return sample.response.rpartition("{")[2].partition("}")[0] or sample.response
def lax(sample):
    return {"reward": 1.0}
def begins(sample):
    return {"reward": float(said(sample)[:1] == str(sample.correct_answer)[:1])}
def prefix(sample):
    return {"reward": float(sample.response[:3] == str(sample.correct_answer)[:3])}
def deaf(sample):
    return {"reward": 0.0}
def misspelt(sample):
    return {"reward": float(sample.responze == sample.correct_answer)}
def fragile(sample):
    return {"reward": float(int(said(sample)) == int(sample.correct_answer))}
"""


@pytest.mark.long_after(5)
@pytest.mark.anyio
@pytest.mark.parametrize(
    ("verify", "state", "said"),
    [
        ("math", "ok", "tried on 3 golds"),
        ("exact", "ok", "tried on 3 golds"),
        ("contains", "ok", "tried on 3 golds"),
        ("s.py:lax", "problem", "counts as right: an empty answer"),
        ("s.py:begins", "warning", "near misses count as right"),
        ("s.py:prefix", "warning", "2 of 6 near misses count as right, such as '1237' for '123'"),
        ("exact", "ok", "tried on 3 golds, 6 near misses"),
        ("s.py:deaf", "warning", "3 of 3 golds do not count as right answers"),
        ("s.py:fragile", "warning", "raised"),
        ("s.py:misspelt", "problem", "no field 'responze'; did you mean response?"),
        ("s.py:gone", "problem", "cannot load"),
        ("judge", "ok", "not tried"),
    ],
)
async def test_a_verify_function_is_tried_on_golds_near_misses_and_hostile_answers(
    tmp_path: Path, verify: str, state: str, said: str
) -> None:
    (tmp_path / "s.py").write_text(SCORES)
    flags = ["data.dataset=d", f"verify={verify}", "agent.model.model_provider.model=sim"]
    config = load_eval(None, flags, {}).config
    data = {"evaluation": samples(("a", 123), ("b", 145), ("c", 77))}
    findings = await diagnose_verify(config, data, tmp_path, run=True)
    assert any(f.severity == state and said in f.sentence for f in findings), findings
    if state == "ok":
        assert {f.severity for f in findings} == {"ok"}


@pytest.mark.anyio
async def test_one_is_not_several(tmp_path: Path) -> None:
    (tmp_path / "s.py").write_text(SCORES)
    said = []
    for verify in ("math", "s.py:deaf"):
        flags = ["data.dataset=d", f"verify={verify}", "agent.model.model_provider.model=sim"]
        config = load_eval(None, flags, {}).config
        said += [
            f.sentence
            for f in await diagnose_verify(config, {"d": samples(("a", 1.5))}, tmp_path, run=True)
        ]
    assert said[0].startswith("tried on 1 gold, 1 near miss, 7 hostile answers;")
    assert said[1] == "1 of 1 gold does not count as a right answer, such as '1.5'"


@pytest.mark.anyio
async def test_golds_that_a_function_cannot_read_are_exit_4(tmp_path: Path) -> None:
    flags = ["data.dataset=d", "verify=choice", "agent.model.model_provider.model=sim"]
    config = load_eval(None, flags, {}).config
    data = {"evaluation": samples(("a", "neither of them"), ("b", "B"))}
    (finding,) = await diagnose_verify(config, data, tmp_path, run=True)
    assert (finding.severity, finding.exit_code) == ("problem", 4)
    assert (
        "1 answer of dataset 'd' cannot be scored by verify 'choice': row 1: " in finding.sentence
    )


@pytest.mark.parametrize(
    ("gold", "misses"),
    [
        ("24", ["25", "247"]),
        ("1.9", ["1.0"]),
        ("Paris", ["Parit", "Paris7"]),
        ("(A)", ["(B)", "(A7)"]),
        ("Z", ["Y", "Z7"]),
        ("?", ["??7"]),
    ],
)
def test_a_near_miss_differs_in_one_place(gold: str, misses: list[str]) -> None:
    assert near_misses(Sample("q", gold)) == misses
    assert boxed("1") == r"The answer is \boxed{1}."


@pytest.mark.anyio
async def test_few_golds_that_a_function_cannot_use_are_a_warning(tmp_path: Path) -> None:
    flags = ["data.dataset=d", "verify=choice", "agent.model.model_provider.model=sim"]
    config = load_eval(None, flags, {}).config
    rows = [(f"{n}?", "B") for n in range(9)]
    data = {"evaluation": samples(*rows, ("a", "neither of them"))}
    first, *_ = await diagnose_verify(config, data, tmp_path, run=True)
    assert (first.severity, first.exit_code) == ("warning", 0)
    assert first.sentence.startswith(
        "1 of 10 questions cannot be scored and are left out: row 10: "
    )


@pytest.mark.parametrize(
    ("gold", "misses"),
    [
        ("31415.92653", ["32415.92653"]),
        ("1234567", ["1334567", "12345677"]),
        ("0.5", ["0.6"]),
        ("Henry 8", ["Henry 9", "Henry 87"]),
    ],
)
def test_a_near_miss_is_no_number_that_a_tolerance_accepts(gold: str, misses: list[str]) -> None:
    assert near_misses(Sample("q", gold)) == misses
