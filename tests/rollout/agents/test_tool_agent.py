"""The tool loop: every call has one result, in order, and the model always gets to answer."""

import asyncio
from collections.abc import Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from grpo_practice.core.calls import Message, Reply, Scope, ToolResult
from grpo_practice.core.errors import AgentError, ContextOverflowError, EndpointError
from grpo_practice.core.prompts.files import FINAL
from grpo_practice.core.types import Trajectory
from grpo_practice.rollout.agents import RolloutContext
from grpo_practice.rollout.agents.tool_agent import ToolAgent
from tests.fakes import FakeChat
from tests.rollout.tools.fakes import SCOPE


def call(*calls: tuple[str | None, str, str], **more: Any) -> Reply:
    """A reply that calls tools: (id, name, arguments)."""
    made = [
        ({"id": i} if i is not None else {})
        | {"type": "function", "function": {"name": name, "arguments": arguments}}
        for i, name, arguments in calls
    ]
    message = {"role": "assistant", "content": None, "tool_calls": made} | more
    return Reply(message, "tool_calls", seconds=1.0)


class Tools:
    """Answers with what it was asked, the last one first."""

    schemas = ({"type": "function", "function": {"name": "t"}},)

    def __init__(self, error: Exception | None = None) -> None:
        self.seen: list[tuple[str, str, float | None]] = []
        self.error, self.ended, self.failed = error, 0, False

    async def __call__(
        self, name: str, arguments: str, *, limit_s: float | None = None
    ) -> ToolResult:
        self.seen.append((name, arguments, limit_s))
        await asyncio.sleep(0.001 * (10 - len(self.seen)))
        if self.error and name == "bad":
            raise self.error
        self.ended += 1
        return ToolResult(f"{name}{arguments}", seconds=2.0, failed=self.failed)


async def play(
    *replies: str | Reply | Exception, tools: Tools | None = None, turns: int = 5, stop: str = ""
) -> tuple[Trajectory, FakeChat, Tools]:
    left, used = list(replies), tools or Tools()
    chat = FakeChat(lambda _: left.pop(0))

    @asynccontextmanager
    async def open_(scope: Scope) -> Any:
        yield used

    agent = ToolAgent(open_, max_turns=turns, stop_at=[stop] if stop else [])
    return await agent("Q", "S", RolloutContext(chat, SCOPE, 100.0)), chat, used


async def test_a_rollout_goes_on_until_the_model_answers() -> None:
    thought = call(("a", "t", "{1}"), reasoning_content="hm")
    played, chat, _ = await play(thought, call(("b", "t", "{2}")), "42")
    assert (played.outcome, played.response, played.turns, played.tool_calls) == ("ok", "42", 3, 2)
    assert played.model_s == 2 * 1.0 + 2 * 2.0
    assert chat.seen[-1] == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Q"},
        thought.message,  # verbatim, what it thought included
        {"role": "tool", "tool_call_id": "a", "content": "t{1}"},
        call(("b", "t", "{2}")).message,
        {"role": "tool", "tool_call_id": "b", "content": "t{2}"},
    ]
    assert played.transcript[-1] == {"role": "assistant", "content": "42"}
    assert all(options["tools"] == list(Tools.schemas) for options in chat.options)
    assert [options["limit_s"] for options in chat.options] == [100, 97, 94]


async def test_1_49_every_call_of_a_turn_has_one_result_in_order() -> None:
    _, chat, tools = await play(call(("a", "t", "1"), ("b", "u", "2"), ("c", "t", "3")), "x")
    assert [(m["tool_call_id"], m["content"]) for m in chat.seen[1][-3:]] == [
        ("a", "t1"), ("b", "u2"), ("c", "t3"),
    ]  # fmt: skip
    assert [seen[2] for seen in tools.seen] == [99.0] * 3


@pytest.mark.parametrize("ids", [(None, "b"), ("a", "a"), ("", "b")])
async def test_1_49_lost_and_doubled_ids_are_made_up(ids: tuple[str | None, str | None]) -> None:
    _, chat, _ = await play(call((ids[0], "t", "1"), (ids[1], "u", "2")), "x")
    message, one, two = chat.seen[1][-3:]
    named = [c["id"] for c in message["tool_calls"]]
    assert named == [one["tool_call_id"], two["tool_call_id"]] == ["call_1", "call_2"]


async def test_1_51_at_the_last_turn_the_answer_is_asked_for_without_tools() -> None:
    loop = [call((str(n), "t", "{}")) for n in range(3)]
    played, chat, _ = await play(*loop, "42 after all", turns=3)
    assert (played.outcome, played.reason, played.response) == ("limit", "turns", "42 after all")
    assert played.answered
    assert chat.options[-1]["tools"] == []
    assert chat.seen[-1][-1] == {"role": "user", "content": FINAL}
    assert played.turns == 4


async def test_no_answer_at_the_limit_is_no_answer() -> None:
    played, _, _ = await play(call(("a", "t", "{}")), "", turns=1)
    assert (played.outcome, played.reason, played.answered) == ("limit", "turns", False)


async def test_the_result_of_a_tool_to_stop_at_is_the_answer() -> None:
    played, chat, _ = await play(call(("a", "t", "1"), ("b", "done", "2")), stop="done")
    assert (played.outcome, played.response, len(chat.seen)) == ("ok", "done2", 1)
    called = call(("a", "t", "1"), ("b", "done", "2")).message
    done = {"role": "tool", "content": "done2"}
    assert list(played.transcript) == [*chat.seen[0], called, done]  # as it is read back


async def test_an_error_of_a_tool_to_stop_at_is_no_answer() -> None:
    tools = Tools()
    tools.failed = True
    played, chat, _ = await play(call(("a", "done", "1")), "42", tools=tools, stop="done")
    assert (played.outcome, played.response, len(chat.seen)) == ("ok", "42", 2)


async def test_tools_called_at_once_take_the_time_of_the_slowest() -> None:
    calls = call(("a", "t", "1"), ("b", "t", "2"), ("c", "t", "3"))
    played, chat, _ = await play(calls, "42")
    assert chat.options[1]["limit_s"] == 100 - 1.0 - 2.0
    assert played.model_s == 3.0


async def test_an_empty_reply_is_asked_for_again_as_a_resample() -> None:
    played, chat, _ = await play(call(("a", "t", "1")), "", call(("b", "t", "2")), "x")
    assert played.response == "x"
    assert [options["r"] for options in chat.options] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("error", "outcome", "reason"),
    [
        (TimeoutError(), "limit", "time"),
        (ContextOverflowError("too long"), "context_overflow", None),
        (EndpointError("down"), "error", "provider"),
    ],
)
async def test_1_40_what_ends_a_rollout_in_the_middle(
    error: Exception, outcome: str, reason: str | None
) -> None:
    played, _, _ = await play(call(("a", "t", "1")), error)
    assert (played.outcome, played.reason, played.tool_calls) == (outcome, reason, 1)
    assert played.response == ""
    assert [m["role"] for m in played.transcript] == ["system", "user", "assistant"]


async def test_a_tool_that_ends_the_rollout_waits_for_its_siblings() -> None:
    tools = Tools(AgentError("its state is lost"))
    played, _, _ = await play(call(("a", "bad", "1"), ("b", "t", "2")), tools=tools)
    assert (played.outcome, played.reason, played.error) == ("error", "agent", "its state is lost")
    assert tools.ended == 1


async def test_a_refusal_with_tool_calls_calls_nothing() -> None:
    played, _, tools = await play(call(("a", "t", "1"), refusal="no"))
    assert (played.outcome, tools.seen) == ("refused", [])


async def test_arguments_that_come_parsed_are_taken() -> None:
    message: Message = {
        "role": "assistant",
        "tool_calls": [{"id": "a", "function": {"name": "t", "arguments": {"n": 1}}}],
    }
    _, _, tools = await play(Reply(message), "x")
    assert tools.seen[0][:2] == ("t", '{"n": 1}')


async def test_1_49_a_call_that_is_none_has_a_result_all_the_same() -> None:
    message: Message = {"role": "assistant", "tool_calls": [{"id": "a", "function": "t"}, {}]}
    played, chat, _ = await play(Reply(message), "x")
    assert [m["role"] for m in chat.seen[1][-3:]] == ["assistant", "tool", "tool"]
    assert played.response == "x"


def test_what_is_no_call_is_none() -> None:
    from grpo_practice.rollout.agents.tool_agent import calls_in

    odd: list[Mapping[str, Any]] = [{}, {"tool_calls": None}, {"tool_calls": ["x"]}]
    assert [calls_in(m) for m in odd] == [[], [], []]
