"""The built-in `tool_calls`: each rule alone, rules that cannot be used, calls that are odd."""

from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import ConfigError, VerifyError
from grpo_practice.core.played import PlayedRollout, PlayedTurn, ToolUse
from grpo_practice.core.types import Sample, Verdict
from grpo_practice.verify.resolve import check_gold, resolve
from grpo_practice.verify.tool_calls import tool_calls
from grpo_practice.verify.verifier import Verifier

LOOK, REFUND = ToolUse("look", {"q": "x"}), ToolUse("refund", {"order": "A-17", "n": 3})
FAILED = ToolUse("refund", {"order": "A-17"}, "Error: try again", failed=True)
SAMPLE = Sample("q", ["A-17", "A-71"], meta={"n": "3", "max": 3, "who": {"id": 1}})


def verdict(*calls: ToolUse, sample: Sample = SAMPLE, **rules: Any) -> Verdict:
    return tool_calls(sample, "Done.", calls, **rules)


def wants(**arguments: Any) -> dict[str, Any]:
    return {"arguments": {"refund": arguments}}


TWICE = "refund must be called 2 times, but was called once"
RULES: list[tuple[dict[str, Any], list[ToolUse], str | None]] = [
    ({"required": ["look"]}, [REFUND, LOOK], None),
    ({"required": ["look"]}, [REFUND], "look must be called once, but was called 0 times"),
    ({"required": ["refund"] * 2}, [REFUND], TWICE),
    ({"required": ["refund"] * 2}, [REFUND, FAILED], TWICE),
    ({"required": ["refund"] * 2}, [REFUND, LOOK, REFUND], None),
    ({"forbidden": ["refund"]}, [LOOK], None),
    ({"forbidden": ["refund"]}, [FAILED, FAILED], "refund must not be called"),
    ({"at_most": {"refund": 1}}, [REFUND, FAILED], None),
    ({"at_most": {"refund": 1}}, [REFUND] * 2, "refund was called 2 times, more than once"),
    ({"at_most": {"refund": 0}}, [REFUND], "refund was called once, more than 0 times"),
    ({"required": ["look", "refund"], "in_order": True}, [LOOK, LOOK, REFUND], None),
    ({"required": ["look", "refund"], "in_order": True}, [REFUND, LOOK, REFUND], None),
    (
        {"required": ["look", "refund"], "in_order": True},
        [REFUND, LOOK],
        "the calls must be in the order look, refund",
    ),
    ({"required": ["look", "look"], "in_order": True}, [LOOK, REFUND, LOOK], None),
    (wants(order="A-17"), [REFUND], None),
    (wants(order="A-18"), [REFUND], "refund must be called with order = A-18, not A-17"),
    (wants(order="A-17"), [LOOK], None),
    (wants(order="A-17"), [REFUND, ToolUse("refund", {"order": "B"})], "order = A-17, not B"),
    (wants(why="late"), [REFUND], "refund must be called with why"),
    (wants(order="A-17"), [ToolUse("refund", "A-17")], "refund must be called with order"),
    (wants(order="{answer}"), [REFUND], None),
    (wants(n="{answer}"), [REFUND], "n = A-17 or A-71, not 3"),
    (wants(n="{meta.n}"), [REFUND], None),
    (wants(n="{meta.max}"), [REFUND], None),
    (wants(n=3), [REFUND], None),
    (wants(n=True), [ToolUse("refund", {"n": 1})], "n = true, not 1"),
    (wants(n={"id": 1}), [ToolUse("refund", {"n": {"id": 1}})], None),
    (wants(n="{meta.who}"), [ToolUse("refund", {"n": {"id": 1}})], None),
    (wants(order={"matches": r"^A-\d+$"}), [REFUND], None),
    (wants(order={"matches": r"^B"}), [REFUND], "order = text that matches ^B, not A-17"),
    (wants(n={"matches": "3"}), [REFUND], None),
    (wants(order={"matches": "-1"}), [REFUND], None),
]


@pytest.mark.parametrize(("rules", "calls", "wrong"), RULES)
def test_a_rule_is_kept_or_the_critique_says_how_not(
    rules: dict[str, Any], calls: list[ToolUse], wrong: str | None
) -> None:
    resolve("tool_calls", rules, None, Path())
    found = verdict(*calls, **rules)
    assert found.reward == (wrong is None)
    assert (wrong or "") in (found.critique or "")


def test_the_critique_names_all_that_is_wrong_and_the_calls() -> None:
    rules: dict[str, Any] = {
        "required": ["look"],
        "forbidden": ["refund"],
        "at_most": {"refund": 0},
    }
    critique = verdict(REFUND, FAILED, **rules).critique or ""
    assert critique.count(";") == 3
    assert critique.endswith("the calls were: refund, refund (failed)")
    assert (verdict(**rules).critique or "").endswith("the calls were: none")


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "needs at least one of required, forbidden, at_most, arguments"),
    ({"required": []}, "needs at least one"),
    ({"required": "look"}, "required must be a list, not 'look'"),
    ({"required": [1]}, "required: a tool's name must be text, not 1"),
    ({"required": [None]}, "not None"),
    ({"at_most": ["look"]}, "at_most must be a mapping"),
    ({"at_most": {"look": -1}}, "at_most.look must be a whole number, not -1"),
    ({"at_most": {"look": True}}, "not True"),
    ({"at_most": {"look": 1}, "required": ["look", "look"]}, "required names it 2 times"),
    ({"required": ["look"], "forbidden": ["look"]}, "look is both required and forbidden"),
    ({"required": ["look"], "in_order": True}, "in_order needs at least two"),
    ({"arguments": {"look": "x"}}, "arguments.look must map arguments to values, not 'x'"),
    ({"arguments": {"look": {"q": {"matches": "("}}}}, "arguments.look.q: '(' is not a valid"),
    ({"arguments": {"look": {"q": {"matches": "x", "of": 1}}}}, "no other key"),
    ({"require": ["look"]}, "unknown parameter 'require'"),
]


@pytest.mark.parametrize(("rules", "why"), BAD)
def test_rules_that_cannot_be_used_are_refused_with_their_key(
    rules: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError) as e:
        resolve("tool_calls", rules, None, Path())
    assert why in str(e.value)


async def test_what_cannot_be_judged_is_no_reward() -> None:
    rollout = PlayedRollout("ok", 0.0, lambda: [PlayedTurn("assistant", "", (REFUND,))])
    function = resolve("tool_calls", wants(order="{answer}", n="{meta.k}"), None, Path())
    async with Verifier(function) as verify:
        assert check_gold(function, Sample("q")) == "verify tool_calls needs an answer"
        for sample, why in ((Sample("q"), "no answer"), (Sample("q", "A-17"), "no meta.k")):
            with pytest.raises(VerifyError, match=f"the sample has {why}"):
                await verify(sample, "Done.", None, rollout)
        with pytest.raises(ConfigError, match="here there is only a text"):
            await verify(SAMPLE, "Done.", None)
