"""What the teacher reads of a rollout."""

from typing import Any

from grpo_practice.calls import Message
from grpo_practice.practice.transcript import CHARS, KEPT, transcript_text


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"id": "c", "type": "function", "function": {"name": name, "arguments": arguments}}


def test_tool_calls_and_their_results_are_told_in_their_place() -> None:
    code = '{"code": "x = 1\\nprint(x)", "timeout": 5}'
    messages: list[Message] = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Q"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "let me see",
            "tool_calls": [call("run", code), call("find", "{broken"), call("n", {"a": 1})],
        },
        {"role": "tool", "tool_call_id": "c", "content": "1"},
        {"role": "assistant", "content": [{"type": "text", "text": "42"}]},
    ]
    assert transcript_text(messages) == (
        "[user]\nQ\n\n"
        "[assistant]\nlet me see\ncalls run(code=x = 1\nprint(x), timeout=5)\n"
        "calls find({broken)\ncalls n(a=1)\n\n"
        "[tool]\n1\n\n"
        "[assistant]\n42"
    )


def test_of_a_long_one_the_oldest_results_are_cut_and_no_turn_of_the_agent() -> None:
    messages: list[Message] = []
    for n in range(10):
        messages.append({"role": "assistant", "content": f"turn {n} " + "a" * 1_000})
        messages.append({"role": "tool", "content": str(n) * 16_000})
    text = transcript_text(messages)
    assert all(f"turn {n} " + "a" * 1_000 in text for n in range(10))
    whole = [n for n in range(10) if str(n) * 16_000 in text]
    assert whole == list(range(whole[0], 10))
    assert 0 < whole[0] < 5
    assert f"{'0' * KEPT} … [15,600 more characters were cut here]" in text
    assert len(text) < CHARS + 1_000


def test_what_is_long_without_tools_is_not_cut() -> None:
    assert "b" * 200_000 in transcript_text([{"role": "assistant", "content": "b" * 200_000}])


def test_odd_tool_calls_are_told_as_far_as_they_can_be() -> None:
    odd: list[Message] = [{"role": "assistant", "content": "", "tool_calls": ["x", {}]}]
    assert transcript_text(odd) == "[assistant]\ncalls a tool\ncalls a tool"
