"""`type: simple` with toolkits: the model calls tools, turn by turn, until it answers."""

import asyncio
import json
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Any

from grpo_practice.core.calls import Message, Reply, Scope, ToolResult, Tools, Usage, ended_by_tool
from grpo_practice.core.errors import AgentError, EndpointError, StepError
from grpo_practice.core.prompts.files import FINAL
from grpo_practice.core.types import Trajectory
from grpo_practice.rollout.agents import RolloutContext
from grpo_practice.rollout.agents.simple import (
    answer_of,
    failed_trajectory,
    opening_messages,
    outcome_of,
    trajectory,
)

Open = Callable[[Scope], AbstractAsyncContextManager[Tools]]
"""Function that opens the tools for one play of a rollout."""


class ToolAgent:
    """An `Agent` that calls tools, turn by turn.

    All tool calls of a turn run concurrently, and each has exactly one result, in the order of the
    calls. After `max_turns`, the model is asked once for its answer, without tools, and the outcome
    is `limit`. If `stop_at` names a called tool, that tool's result is the answer.
    """

    def __init__(self, tools: Open, *, max_turns: int, stop_at: Collection[str] = ()) -> None:
        self._tools, self._max_turns, self._stop_at = tools, max_turns, frozenset(stop_at)

    async def __call__(self, question: str, system: str, context: RolloutContext) -> Trajectory:
        """Answer the question."""
        async with self._tools(context.scope) as tools:
            game = _Game(context, tools, opening_messages(question, system))
            try:
                for _ in range(self._max_turns):
                    if not await game.ask():
                        return game.answered()
                    called = await game.call()
                    stops = (t for n, t in called if n in self._stop_at and not t.failed)
                    if stop := next(stops, None):
                        return game.stopped(stop.text)
                return await game.forced()
            except (TimeoutError, AgentError, EndpointError) as e:
                return game.failed(e)


class _Game:
    """One play of a rollout so far."""

    def __init__(self, context: RolloutContext, tools: Tools, messages: list[Message]) -> None:
        self._context, self._tools = context, tools
        self.messages = messages
        """Messages of the next request."""
        self._answered = 0
        """Number of messages that the last reply responds to; together with the reply, they are
        the transcript.
        """
        self.replies = list[Reply]()
        self._results = list[ToolResult]()
        self._turns = 0
        self._tools_s = 0.0
        """Seconds spent in tool calls; simultaneous calls count once."""

    @property
    def _left_s(self) -> float:
        return self._context.limit_s - sum(r.own_s for r in self.replies) - self._tools_s

    async def ask(self) -> bool:
        """Send a request, again if the reply is empty; return True if the model calls tools."""
        # `r` gives the second request another seed; an identical one would return the stored
        # reply.
        for r in range(2):
            reply = await self._context.chat(
                self.messages, tools=self._tools.schemas, r=r, limit_s=self._left_s
            )
            self.replies.append(reply)
            self._answered = len(self.messages)
            if calls_in(reply.message):
                return outcome_of(reply)[0] not in ("refused", "content_filter")
            if outcome_of(reply)[0] != "empty":
                break
        return False

    async def call(self) -> list[tuple[str, ToolResult]]:
        """Call the tools in the last reply; return names and results, which the model will read."""
        self._turns += 1
        message, calls = with_call_ids(self.replies[-1].message)
        functions = [f if isinstance(f := call.get("function"), dict) else {} for call in calls]
        names = [str(function.get("name") or "") for function in functions]
        given: list[object] = [function.get("arguments", "") for function in functions]
        # Some endpoints send the arguments as parsed JSON.
        texts = [a if isinstance(a, str) else "" if a is None else json.dumps(a) for a in given]
        # Read the time left once, since all calls run concurrently.
        left = self._left_s
        outcomes = await asyncio.gather(
            *(
                self._tools(name, arguments, limit_s=left)
                for name, arguments in zip(names, texts, strict=True)
            ),
            return_exceptions=True,  # one failure must not discard the others, which may be billed
        )
        results = [result for result in outcomes if isinstance(result, ToolResult)]
        self._results += results
        self._tools_s += max((r.seconds for r in results), default=0.0)
        errors = [e for e in outcomes if isinstance(e, BaseException)]
        # Prefer an error that stops the run to one that ends only the rollout.
        if errors:
            raise min(errors, key=lambda e: isinstance(e, TimeoutError | StepError))
        self.messages.append(message)
        for call, result in zip(calls, results, strict=True):
            self.messages.append(
                {"role": "tool", "tool_call_id": call["id"], "content": result.text}
            )
        return list(zip(names, results, strict=True))

    async def forced(self) -> Trajectory:
        """Ask the model once for its answer, without tools."""
        self.messages.append({"role": "user", "content": FINAL})
        self.replies.append(await self._context.chat(self.messages, limit_s=self._left_s))
        turns = f"it called tools in each of its {self._turns} turns"
        ended = trajectory("limit", self.messages, self.replies, reason="turns", error=turns)
        return self._with_tools(replace(ended, response=answer_of(self.replies[-1].content)))

    def answered(self) -> Trajectory:
        """Return the trajectory whose answer is the last reply."""
        outcome, why = outcome_of(self.replies[-1])
        return self._with_tools(trajectory(outcome, self.messages, self.replies, error=why))

    def stopped(self, text: str) -> Trajectory:
        """Return the trajectory whose answer is a tool's result."""
        ended = trajectory("ok", self.messages[: self._answered], self.replies)
        transcript = ended_by_tool(ended.transcript, text)
        return self._with_tools(replace(ended, response=text, transcript=transcript))

    def failed(self, error: TimeoutError | AgentError | EndpointError) -> Trajectory:
        """Return the trajectory that an error ended."""
        messages = self.messages[: self._answered] if self.replies else self.messages
        ended = failed_trajectory(error, self._context.limit_s, messages, self.replies)
        return self._with_tools(ended)

    def _with_tools(self, ended: Trajectory) -> Trajectory:
        """Add the time and cost of the tool calls to the trajectory."""
        return replace(
            ended,
            tool_calls=len(self._results),
            usage=sum((Usage(cost_micro=r.cost_micro) for r in self._results), start=ended.usage),
            model_s=ended.model_s + self._tools_s,
        )


def calls_in(message: Mapping[str, Any]) -> list[Message]:
    """Return the tool calls of an assistant message."""
    calls = message.get("tool_calls")
    return [c for c in calls if isinstance(c, dict)] if isinstance(calls, list) else []


def with_call_ids(message: Message) -> tuple[Message, list[Message]]:
    """Return a message and its calls, replacing missing or duplicate ids with our own."""
    calls = calls_in(message)
    ids = [call.get("id") for call in calls]
    if all(isinstance(i, str) and i for i in ids) and len(set(ids)) == len(ids):
        return message, calls
    named: list[Message] = [{**call, "id": f"call_{n}"} for n, call in enumerate(calls, 1)]
    return {**message, "tool_calls": named}, named
