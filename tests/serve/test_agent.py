"""The agent's prompt stands in front, byte for byte, and once."""

from typing import Any

import pytest

from grpo_practice.prompts.system import system_prompt
from grpo_practice.serve.served_agent import ServedAgent
from grpo_practice.types import Experience, Library
from tests.serve.place import BASE, PROMPT, assistant, system, user

AGENT = ServedAgent("math_agent", "m-1", PROMPT)
Q = user("1 + 1?")


def parts(*texts: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in texts]


@pytest.mark.parametrize(
    ("theirs", "first"),
    [
        ([Q], PROMPT),
        ([system(BASE), Q], PROMPT),
        ([system(PROMPT), Q], PROMPT),
        ([{"role": "developer", "content": BASE}, Q], PROMPT),
        ([{"role": "system", "content": parts(BASE)}, Q], PROMPT),
        ([system(""), Q], PROMPT),
        ([{"role": "system", "content": None}, Q], PROMPT),
        ([system("Be kind."), Q], f"{PROMPT}\n\nBe kind."),
        ([{"role": "developer", "content": "Be kind."}, Q], f"{PROMPT}\n\nBe kind."),
        ([system(f" {BASE}"), Q], f"{PROMPT}\n\n {BASE}"),
        (
            [{"role": "system", "content": parts("Be", "kind.")}, Q],
            parts(f"{PROMPT}\n\n", "Be", "kind."),
        ),
    ],
)
def test_there_is_one_system_message_and_ours_comes_first(theirs: Any, first: Any) -> None:
    sent = AGENT.messages(theirs)
    assert sent == [{"role": "system", "content": first}, Q]
    assert AGENT.theirs(sent) in ([Q], [theirs[0] | {"role": "system"}, Q])


def test_what_follows_is_as_it_came_and_what_is_theirs_is_not_changed() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    theirs = [
        system("Be kind."),
        Q,
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "c", "content": "2"},
        system("And brief."),
    ]
    before = [dict(m) for m in theirs]
    assert AGENT.messages(theirs)[1:] == theirs[1:]
    assert theirs == before


def test_what_is_theirs_is_found_again() -> None:
    talk = [system("Be kind."), Q, assistant("2")]
    assert AGENT.theirs(AGENT.messages(talk)) == talk
    assert AGENT.theirs(AGENT.messages([Q])) == [Q]


def test_an_agent_without_instructions_adds_nothing() -> None:
    plain = ServedAgent("a", "m", "")
    assert plain.messages([Q]) == [Q]
    assert plain.messages([system("Be kind."), Q]) == [system("Be kind."), Q]
    assert plain.theirs([system("Be kind."), Q]) == [system("Be kind."), Q]


@pytest.mark.parametrize("base", ["", BASE, "[E9] looks like an entry", "Ends\n\n"])
def test_instructions_and_library_are_told_apart(base: str) -> None:
    library = Library((Experience(2, "A: b."), Experience(7, "C: d.")))
    agent = ServedAgent("a", "m", system_prompt(base, library))
    assert (agent.base, agent.experiences) == (base, 2)
    bare = ServedAgent("a", "m", base)
    assert (bare.base, bare.experiences) == (base, 0)
