"""The table of the built-in verify functions: each row is complete, and everything follows it."""

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.config.schema.runs import VerifySpec
from grpo_practice.core.played import PlayedRollout, PlayedTurn, ToolUse
from grpo_practice.core.types import Sample
from grpo_practice.verify import READ_NO_ANSWER, builtin
from grpo_practice.verify.builtin import BUILT_INS
from grpo_practice.verify.resolve import check_gold, resolve
from grpo_practice.verify.verifier import Verifier
from tests.verify.test_judge import Scripted

ROOT = Path(__file__).parents[2]
PLACE = "BUILT_INS in src/grpo_practice/verify/builtin.py"

CASES: dict[str, tuple[dict[str, Any], Any, str, str]] = {
    "choice": ({}, "B", "Answer: B", "Answer: C"),
    "math": ({}, "1/2", r"\boxed{0.5}", r"\boxed{0.6}"),
    "exact": ({}, "Paris", "It is\nparis", "It is\nRome"),
    "contains": ({}, "Paris", "Paris it is", "Rome it is"),
    "regex": ({"pattern": "is (\\w+)"}, "Paris", "It is Paris", "It is Rome"),
    "tool_calls": ({"required": ["look"]}, "Paris", "look", "listen"),
    "judge": ({}, "Paris", "GRADE: CORRECT", "GRADE: INCORRECT"),
}
"""Name → parameters, a gold, a response that gets 1, one that gets 0 (a judge says the same)."""


def rollout(response: str) -> PlayedRollout:
    """Return a rollout that calls the tool with this name."""
    turn = PlayedTurn("assistant", response, (ToolUse(response, {}),))
    return PlayedRollout("ok", 0.0, lambda: [turn])


@pytest.mark.parametrize("name", BUILT_INS)
async def test_each_built_in_scores_a_right_and_a_wrong_answer(name: str) -> None:
    assert name in CASES, f"give {name} a row in CASES of tests/verify/test_built_ins.py"
    params, gold, right, wrong = CASES[name]
    function, sample = resolve(name, params, None, Path()), Sample("q", gold)
    assert check_gold(function, sample) is None
    async with Verifier(function) as verify:
        assert (await verify(sample, right, Scripted(right), rollout(right))).reward == 1
        assert (await verify(sample, wrong, Scripted(wrong), rollout(wrong))).reward == 0


@pytest.mark.parametrize("gold", ["Paris", "B", "1/2", "7", "[1, 2]", "no answer", "?"])
@pytest.mark.parametrize(
    "name", [name for name, row in BUILT_INS.items() if row.runs != "judge" and not row.own_form]
)
async def test_a_gold_is_a_right_answer_or_cannot_be_used(name: str, gold: str) -> None:
    function, sample = resolve(name, CASES[name][0], None, Path()), Sample("q", gold)
    if check_gold(function, sample) is None:
        async with Verifier(function) as verify:
            assert (await verify(sample, gold, Scripted(gold))).reward == 1, (
                f"{gold!r} answered with itself gets no 1: let unusable_gold of the row {name!r} of"
                f" {PLACE} say why no answer can match it"
            )


def test_each_function_of_the_module_is_in_the_table_by_its_name() -> None:
    for name, function in inspect.getmembers(builtin, inspect.isfunction):
        first = list(inspect.signature(function).parameters)[:2]
        if function.__module__ == builtin.__name__ and first == ["sample", "response"]:
            row = BUILT_INS.get(name)
            assert row is not None, f"add {name!r} to {PLACE}"
            assert row.function is function, f"add {name!r} to {PLACE}"


def test_those_that_extract_no_answer_are_built_in() -> None:
    assert BUILT_INS.keys() > READ_NO_ANSWER


@pytest.mark.parametrize("name", BUILT_INS)
async def test_an_answer_that_is_wrong_is_extracted_too(name: str) -> None:
    params, gold, _, wrong = CASES[name]
    function, sample = resolve(name, params, None, Path()), Sample("q", gold)
    async with Verifier(function) as verify:
        verdict = await verify(sample, wrong, Scripted(wrong), rollout(wrong))
    extracted = verdict.extracted
    assert (extracted is None) == (name in READ_NO_ANSWER)


@pytest.mark.parametrize("name", BUILT_INS)
def test_each_row_says_all_that_others_need(name: str) -> None:
    row, home = BUILT_INS[name], f"the row {name!r} of {PLACE}"
    assert name.isidentifier(), f"{home}: a config could not name it"
    assert row.about, f"{home}: say what gets reward 1"
    for key, param in row.params.items():
        assert param.wanted, f"{home}: {key} must be a bool, str, int, float, list or dict"
    assert (row.runs == "judge") == VerifySpec(name=name, params={}).may_ask, (
        f"{home} and VerifySpec.may_ask of config/schema/runs.py differ on whether it asks a model"
    )


def test_no_other_file_lists_the_built_ins() -> None:
    for path in (ROOT / "src").rglob("*.py"):
        source = path.read_text("utf-8")
        if sum(name in source for name in BUILT_INS) < 3:
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Tuple | ast.List | ast.Set):
                parts = {part.value for part in node.elts if isinstance(part, ast.Constant)}
                assert len(parts & BUILT_INS.keys()) < 3, f"{path} lists them: derive from {PLACE}"


def test_the_readme_names_each_built_in_with_what_it_rewards() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    for name, row in BUILT_INS.items():
        params = ", ".join(f"`{param}`" for param in row.params)
        line = f"| `{name}` | {row.about} | {params} |"
        assert line in readme, f"write this line into the table of README.md: {line}"
