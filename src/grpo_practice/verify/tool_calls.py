"""The built-in `tool_calls`: the reward depends on the actions of the agent, not on its text."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from grpo_practice.core.played import ToolUse
from grpo_practice.core.text import brief, count
from grpo_practice.core.types import Sample, Verdict
from grpo_practice.verify.answers import gold_texts

MATCHES = "matches"
"""Key of a pattern in place of an argument's value."""
SHOWN = 80
"""Maximum number of characters that a critique shows of a value."""
ANSWER = "{answer}"
"""Value of an argument that stands for the gold answer."""
_SLOT = re.compile(r"\{meta\.(.+)\}")


def tool_calls(  # noqa: PLR0913 - each rule is a parameter of the config
    sample: Sample,
    response: str,
    calls: Sequence[ToolUse],
    *,
    required: list[str] | None = None,
    forbidden: list[str] | None = None,
    at_most: dict[str, int] | None = None,
    in_order: bool = False,
    arguments: dict[str, dict[str, Any]] | None = None,
) -> Verdict:
    """Return 1.0 if the rollout's tool calls follow all the rules.

    A call that failed only counts as a call of a forbidden tool. `required` may name a tool several
    times, which requires as many calls; `in_order` requires them in this order, with any others in
    between. Each call of a tool in `arguments` must have these arguments: `{answer}` is the gold
    answer, `{meta.x}` a column of the sample, and `{matches: …}` a pattern.
    """
    done = [use for use in calls if not use.failed]
    wrong = [
        *_miscounted(done, Counter(required), at_most or {}),
        *(f"{name} must not be called" for name in _names(calls) if name in (forbidden or ())),
        *_misused(done, arguments or {}, sample),
    ]
    if in_order and not wrong and not _in_order(required or [], done):
        wrong.append(f"the calls must be in the order {', '.join(required or [])}")
    made = ", ".join(use.name + (" (failed)" if use.failed else "") for use in calls)
    made = brief(made, 10 * SHOWN) or "none"
    if not wrong:
        return Verdict(1.0, extracted=f"calls: {made}")
    return Verdict(0.0, f"{'; '.join(wrong)}; the calls were: {made}", f"calls: {made}")


def _names(calls: Sequence[ToolUse]) -> list[str]:
    return list(dict.fromkeys(use.name for use in calls))


def _miscounted(
    done: Sequence[ToolUse], required: Mapping[str, int], at_most: Mapping[str, int]
) -> Iterator[str]:
    times = Counter(use.name for use in done)
    for name, least in required.items():
        if times[name] < least:
            yield f"{name} must be called {_times(least)}, but was called {_times(times[name])}"
    for name, most in at_most.items():
        if times[name] > most:
            yield f"{name} was called {_times(times[name])}, more than {_times(most)}"


def _times(n: int) -> str:
    return count(n, "time") if n != 1 else "once"


def _in_order(required: Sequence[str], done: Sequence[ToolUse]) -> bool:
    names = iter(use.name for use in done)
    # `in` consumes the iterator, so each name is looked for after the one before.
    return all(name in names for name in required)


def _misused(
    done: Sequence[ToolUse], arguments: Mapping[str, Mapping[str, Any]], sample: Sample
) -> Iterator[str]:
    for name, wanted in arguments.items():
        for key, value in wanted.items():
            allowed = _allowed(value, sample)
            for given in (use.arguments for use in done if use.name == name):
                if not isinstance(given, dict) or key not in given:
                    yield f"{name} must be called with {key}"
                elif not any(_fits(given[key], one) for one in allowed):
                    shown = " or ".join(_shown(one) for one in allowed)
                    yield f"{name} must be called with {key} = {shown}, not {_shown(given[key])}"


def _allowed(value: Any, sample: Sample) -> Sequence[Any]:
    """Return the values that an argument may have, with the sample's own in place of slots.

    Raises:
        ValueError: The sample does not have that value.
    """
    if value == ANSWER:
        return gold_texts(sample.answer)
    slot = _SLOT.fullmatch(value) if isinstance(value, str) else None
    if slot is None:
        return [value]
    if slot[1] not in sample.meta:
        raise ValueError(f"the sample has no meta.{slot[1]}")
    return [sample.meta[slot[1]]]


def _fits(given: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict) and MATCHES in wanted:
        return re.search(wanted[MATCHES], _text(given)) is not None
    # Datasets hold numbers as text, and models write texts as numbers.
    if isinstance(given, str) or isinstance(wanted, str):
        return _text(given).strip() == _text(wanted).strip()
    return json.dumps(given, sort_keys=True) == json.dumps(wanted, sort_keys=True)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shown(value: Any) -> str:
    if isinstance(value, dict) and MATCHES in value:
        return f"text that matches {brief(value[MATCHES], SHOWN)}"
    return brief(_text(value), SHOWN)


def unusable_rules(**params: Any) -> str | None:
    """Return why rules whose outer types are correct cannot be used, or None."""
    if not any(params.get(key) for key in _RULES):
        return f"needs at least one of {', '.join(_RULES)}"
    for key in ("required", "forbidden", "at_most"):
        for name in params.get(key) or ():
            if not isinstance(name, str) or not name:
                return f"{key}: a tool's name must be text, not {name!r}"
    required = params.get("required") or []
    if both := [name for name in required if name in params.get("forbidden", ())]:
        return f"{both[0]} is both required and forbidden"
    if params.get("in_order") and len(required) < 2:
        return "in_order needs at least two tools in required"
    wrong = (*_unusable_limits(params, required), *_unusable_arguments(params))
    return next(iter(wrong), None)


_RULES = ("required", "forbidden", "at_most", "arguments")


def _unusable_limits(params: Mapping[str, Any], required: Sequence[str]) -> Iterator[str]:
    for name, number in params.get("at_most", {}).items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 0:
            yield f"at_most.{name} must be a whole number, not {number!r}"
        elif number < (least := required.count(name)):
            yield f"at_most.{name} is {number}, but required names it {_times(least)}"


def _unusable_arguments(params: Mapping[str, Any]) -> Iterator[str]:
    for name, given in params.get("arguments", {}).items():
        if not isinstance(given, dict):
            yield f"arguments.{name} must map arguments to values, not {given!r}"
            continue
        for key, value in given.items():
            if why := _unusable_match(value):
                yield f"arguments.{name}.{key}: {why}"


def names_answer(**params: Any) -> bool:
    """Return True if a rule is about the gold answer."""
    rules = (params.get("arguments") or {}).values()
    return any(value == ANSWER for rule in rules for value in rule.values())


def tools_named(params: Mapping[str, Any]) -> list[str]:
    """Return the names of all tools in usable rules."""
    rules = (params.get(key) or () for key in _RULES)
    return list(dict.fromkeys(name for rule in rules for name in rule))


def _unusable_match(value: Any) -> str | None:
    if not isinstance(value, dict) or MATCHES not in value:
        return None
    pattern = value[MATCHES]
    if len(value) > 1 or not isinstance(pattern, str):
        return f"{MATCHES} takes one pattern and no other key, not {dict(value)!r}"
    try:
        re.compile(pattern)
    except re.error as e:
        return f"{pattern!r} is not a valid pattern: {e}"
    return None
