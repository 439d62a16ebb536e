"""Stand-ins for the outside world. No mocks: each is a small working thing."""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from grpo_practice.core.calls import Message, Reply, Turn
from grpo_practice.core.fences import Fences
from grpo_practice.llm.ledgered import Play
from tests.contract.endpoint.actions import completion

FENCES = Fences(bytes(range(32)))
"""Fences of a run, with the same codes each time."""

Answer = str | Message | httpx.Response | Exception
Script = Callable[[dict[str, Any]], Answer | Awaitable[Answer]]


def head_of(
    model: str, params: Mapping[str, Any], tools: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """`{model, params, tools}` of a request, as it is hashed: `tools` only where there are any."""
    head: dict[str, Any] = {"model": model, "params": dict(params)}
    return head | ({"tools": list(tools)} if tools else {})


def reply(
    message: str | Message,
    *,
    finish: str = "stop",
    usage: Mapping[str, Any] | None = None,
    model: str = "m-1",
    headers: Mapping[str, str] | None = None,
) -> httpx.Response:
    """A 200 with that completion in it."""
    body = completion(message, finish=finish, usage=usage, model=model)
    return httpx.Response(200, content=json.dumps(body).encode(), headers=headers)


@dataclass
class FakeEndpoint:
    """An OpenAI-compatible server in memory; keeps every request it saw.

    `script` gets the request's body and says what to answer: a text, an assistant message, a
    whole response, or an exception to raise as the network would. It may be async.
    """

    script: Script
    seen: list[dict[str, Any]] = field(default_factory=list)
    """The bodies, in the order they came."""
    requests: list[httpx.Request] = field(default_factory=list)

    @property
    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._answer)

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        self.seen.append(body)
        self.requests.append(request)
        await asyncio.sleep(0)  # a reply that never suspends would hide every concurrency bug
        answer = self.script(body)
        if inspect.isawaitable(answer):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx.Response) else reply(answer)


def answers(*scripted: Answer) -> Script:
    """A script that gives these, one after another, and the last one for ever."""
    left = list(scripted)
    return lambda _: left.pop(0) if len(left) > 1 else left[0]


def cancelling(store: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    """Return what stores as `store` does, and then finds that everything is cancelled."""

    async def stored(*args: Any, **kwargs: Any) -> Any:
        await store(*args, **kwargs)
        for task in asyncio.all_tasks():
            task.cancel()
        await asyncio.sleep(0)
        raise AssertionError("it was cancelled")

    return stored


@dataclass
class FakeSleep:
    """Stands in for `asyncio.sleep`: no time passes, other tasks run, the seconds are kept."""

    slept: list[float] = field(default_factory=list)

    async def __call__(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)


@dataclass
class FakeChat:
    """An `AgentChat` that answers from a function of the messages; keeps what it was asked."""

    script: Callable[[list[Message]], str | Reply | Exception]
    seen: list[list[Message]] = field(default_factory=list)
    """The messages of each call, in the order asked."""
    options: list[dict[str, Any]] = field(default_factory=list)
    """`tools`, `r` and `limit_s` of each call."""
    model: str = "m"
    params: Mapping[str, Any] = field(default_factory=dict)
    play: Play = field(default_factory=Play)

    def with_model(self, name: str, params: Mapping[str, Any], play: Play) -> "FakeChat":
        return replace(self, model=name, params=params, play=play)

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        r: int = 0,
        limit_s: float | None = None,
    ) -> Reply:
        await asyncio.sleep(0)
        self.seen.append(list(messages))
        self.options.append({"tools": list(tools), "r": r, "limit_s": limit_s})
        answer = self.script(list(messages))
        if isinstance(answer, Exception):
            raise answer
        if not isinstance(answer, Reply):
            answer = Reply({"role": "assistant", "content": answer}, finish="stop")
        n = len(self.seen)
        turn = Turn(n, None, (n, b"", 0), [*messages, answer.message])
        self.play.answered(turn, b"%d" % n, len(messages) + 1)
        return answer
