import pytest

from grpo_practice.config.reading.interpolate import escaped, interpolate, variables
from grpo_practice.config.reading.problems import Problem

ENV = {"A": "alpha", "E": "", "U": "https://h/v1?x=${B}"}


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("${oc.env:A}", "alpha"),
        ("${oc.env:A,other}", "alpha"),
        ("${oc.env:NO,other}", "other"),
        ("${oc.env:NO, https://h/v1?a=1&b=2 }", "https://h/v1?a=1&b=2"),
        ("${oc.env:NO,'a, b'}", "a, b"),
        ("${oc.env:NO,null}", None),
        ("${oc.env:NO,}", None),
        ("${oc.env:NO,''}", ""),
        ("${oc.env:E,other}", ""),
        ("Bearer ${oc.env:A}", "Bearer alpha"),
        ("${oc.env:A}-${oc.env:A}", "alpha-alpha"),
        ("x${oc.env:NO,null}y", "xy"),
        ("${oc.env:U}", "https://h/v1?x=${B}"),
        (r"\${oc.env:A}", "${oc.env:A}"),
        ("${oc.env:UTU_LLM_TYPE}", "chat.completions"),
        ("${oc.env:JUDGE_LLM_TYPE}", "chat.completions"),
        ("costs $5 {x} $$", "costs $5 {x} $$"),
        (7, 7),
    ],
)
def test_variables_are_filled_in(raw: object, value: object) -> None:
    problems: list[Problem] = []
    assert interpolate({"k": [raw]}, ENV, problems) == {"k": [value]}
    assert problems == []


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ("${oc.env:NO}", "the environment variable NO is not set"),
        ("a ${oc.env:NO} b", "the environment variable NO is not set"),
        ("${other.key}", "${other.key} is not supported"),
        ("${oc.decode:x}", "${oc.decode:x} is not supported"),
        ("${oc.env:A-B}", "is not supported"),
        ("${oc.env:A", "an unclosed ${"),
        ("${oc.env:NO,${oc.env:A}}", "an unclosed ${"),
    ],
)
def test_what_cannot_be_filled_in_is_named_with_its_key(raw: str, said: str) -> None:
    problems: list[Problem] = []
    interpolate({"a": {"k": raw}}, ENV, problems)
    assert problems[0].key == ("a", "k")
    assert said in problems[0].text
    assert problems[0].hint


def test_instructions_and_objectives_are_values_and_not_templates() -> None:
    tex = r"Put ${x}$ in \boxed{{…}} ${oc.env:A} ${"
    data = {"agent": {"instructions": tex}, "agent_objective": tex, "learning_objective": tex}
    problems: list[Problem] = []
    assert interpolate(data, ENV, problems) == data
    assert problems == []


def test_a_literal_text_can_be_written_for_the_reference_as_well() -> None:
    tex = r"${x} \${y} \\${z} \\\${oc.env:A} \\\\boxed ${"
    problems: list[Problem] = []
    assert interpolate({"instructions": escaped(tex)}, ENV, problems) == {"instructions": tex}
    assert problems == []


def test_the_variables_of_a_value_are_known() -> None:
    assert variables(["${oc.env:A}/${oc.env:B,x}", r"\${oc.env:C}", "${d}"]) == ["A", "B"]
    assert variables(None) == []
