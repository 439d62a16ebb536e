"""Rows of training data: messages as templates read them, prompts without experiences."""

from dataclasses import replace
from typing import Any

import pytest

from grpo_practice.core.calls import Message, Turn, one_conversation
from grpo_practice.core.prompts.system import system_prompt
from grpo_practice.export.trl_rows import Attempt, dpo_rows, plain_messages, without_library
from tests.reports.sample import LIBRARY

BARE = "Solve it."
FULL = system_prompt(BARE, LIBRARY)


def user(text: Any) -> Message:
    return {"role": "user", "content": text}


def test_messages_keep_what_a_template_reads() -> None:
    said: list[Message] = [
        {
            "role": "developer",
            "content": [{"type": "text", "text": "a"}, {"type": "x", "text": "b"}],
        },
        {
            "role": "assistant",
            "content": None,
            "refusal": None,
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
                {"id": "2", "type": "function", "function": {"name": "g", "arguments": "{broken"}},
                {"type": "function", "function": {"name": "h", "arguments": "[1]"}},
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "ok"},
        {"content": "done", "annotations": []},
    ]
    assert plain_messages(said) == [
        {"role": "system", "content": "ab"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}},
                {"id": "2", "type": "function", "function": {"name": "g", "arguments": "{broken"}},
                {"type": "function", "function": {"name": "h", "arguments": "[1]"}},
            ],
        },
        {"role": "tool", "content": "ok", "tool_call_id": "1"},
        {"role": "assistant", "content": "done"},
    ]
    image = {"type": "image_url", "image_url": {"url": "data:…"}}
    assert plain_messages([user([image])]) is None
    assert plain_messages([user(["a"])]) is None


@pytest.mark.parametrize(
    ("prompt", "left"),
    [
        (
            [{"role": "system", "content": FULL}, user("q")],
            [{"role": "system", "content": BARE}, user("q")],
        ),
        ([user(f"{FULL}\n\nQuestion: q")], [user(f"{BARE}\n\nQuestion: q")]),
        ([user(FULL.replace("[E1]", "1."))], None),
        ([user(FULL.split("[E4]")[0])], None),
    ],
)
def test_the_library_is_taken_out_or_the_attempt_is(
    prompt: list[Message], left: list[Message] | None
) -> None:
    assert without_library(prompt, FULL) == left


def test_a_prompt_that_is_nothing_but_the_library_goes() -> None:
    only = system_prompt("", LIBRARY)
    assert without_library([{"role": "system", "content": only}, user("q")], only) == [user("q")]
    assert without_library([user("q")], "") == [user("q")]


def turn(call: int, before: int | None) -> Turn:
    return Turn(call, before, (call, b"", 0), [user(str(call))])


def test_a_play_is_one_conversation_where_each_call_continues_the_one_before() -> None:
    line = [turn(1, None), turn(5, 1), turn(9, 5)]
    assert one_conversation(line[::-1]) == [user("1"), user("5"), user("9")]
    assert one_conversation([]) is None
    assert one_conversation([turn(1, None), turn(2, None)]) is None
    assert one_conversation([turn(1, None), turn(2, 1), turn(3, 1)]) is None


ONE = Attempt(
    "r", 0, 0, 0, 1, 1.0, True, False, [user("q")], [{"role": "assistant", "content": "a"}]
)


def test_a_pair_has_one_prompt_and_one_set_of_tools() -> None:
    worse = replace(ONE, attempt=1, reward=0.0)
    assert len(dpo_rows([ONE, worse], 1)) == 1
    assert dpo_rows([ONE, replace(worse, prompt=[user("other")])], 1) == []
    assert dpo_rows([ONE, replace(worse, tools=[{"type": "function"}])], 1) == []
    assert dpo_rows([ONE, replace(worse, reward=1 - 1e-12)], 1) == []
    assert dpo_rows([replace(ONE, finished=False), worse], 1) == []
    assert dpo_rows([], 1) == []
    (first,) = dpo_rows([ONE, replace(ONE, attempt=2), worse, replace(worse, attempt=3)], 1)
    assert (first["chosen_attempt"], first["rejected_attempt"]) == (0, 1)
    both = dpo_rows([ONE, replace(ONE, attempt=2), worse, replace(worse, attempt=3)], 5)
    assert [(row["chosen_attempt"], row["rejected_attempt"]) for row in both] == [(0, 1), (2, 3)]
