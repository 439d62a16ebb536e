"""What a program asks in its own words goes through the ledger as what the agent asks does."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from typing_extensions import override

from grpo_practice.core.calls import Message, Reply, Request, Usage
from grpo_practice.core.errors import EndpointError
from grpo_practice.core.events import silent
from grpo_practice.core.redact import redactor
from grpo_practice.llm.ledgered import Head, LedgeredChat, Model, Play
from grpo_practice.rollout.chat_server.relay import Relay
from grpo_practice.rollout.chat_server.server import ChatRequest, RequestError, read_request
from tests.rollout.tools.fakes import SCOPE, FakeLedger

Script = Callable[[Request, int], str | Message | Exception]
Q = [{"role": "user", "content": "Q"}]


class Endpoint:
    """Answers from a function of the request and of how many came before; `gate` holds it up."""

    def __init__(self, script: Script = lambda request, n: f"answer {n}") -> None:
        self.script, self.seen = script, list[Request]()
        self.gate = asyncio.Event()
        self.gate.set()
        self.came = asyncio.Event()
        self.slow = ""
        """What makes an answer come later, where a message holds it."""

    async def __call__(self, request: Request, *, limit_s: float | None = None) -> Reply:
        n = len(self.seen)
        self.seen.append(request)
        self.came.set()
        await asyncio.sleep(0)
        await self.gate.wait()
        if self.slow and any(self.slow in message["content"] for message in request.messages):
            for _ in range(100):  # rounds of the event loop: the others need a few
                await asyncio.sleep(0)
        said = self.script(request, n)
        if isinstance(said, Exception):
            raise said
        message = said if isinstance(said, dict) else {"role": "assistant", "content": said}
        return Reply(message, "stop", Usage(1, 0, 1, 0), "m@host", seconds=2.0)


class Failing(FakeLedger):
    @override
    def fail(self, address: Any, error: EndpointError) -> None:
        pass


def relay(endpoint: Endpoint, ledger: FakeLedger | None = None, **params: Any) -> Relay:
    model = Model("configured", params, endpoint)
    ledger = ledger or Failing()
    head = Head(model.name, model.params)
    return Relay(LedgeredChat(model, head, ledger, silent, SCOPE, Play()))


def asked(messages: list[Message] = Q, **body: Any) -> ChatRequest:
    return read_request(json.dumps({"messages": messages, **body}).encode())


async def test_configured_settings_lie_under_what_the_program_sets() -> None:
    endpoint = Endpoint()
    ask = relay(endpoint, temperature=0.7, max_tokens=100, top_p=0.9)
    await ask(asked(temperature=0, max_completion_tokens=7, stop=["x"], stream=True, user="me"))
    assert endpoint.seen[0].model == "configured"
    assert endpoint.seen[0].params == {
        "temperature": 0.0,
        "max_tokens": 7,
        "top_p": 0.9,
        "stop": ["x"],
        "seed": SCOPE.seed(),
    }


async def test_how_it_is_delivered_makes_no_other_request_of_it() -> None:
    endpoint, ledger = Endpoint(), Failing()
    await relay(endpoint, ledger)(asked(temperature=1))
    await relay(endpoint, ledger)(
        asked(temperature=1.0, stream=True, user="u", metadata={"a": "b"})
    )
    assert len(endpoint.seen) == 1
    await relay(endpoint, ledger)(asked(temperature=1, response_format={"type": "json_object"}))
    assert len(endpoint.seen) == 2


async def test_the_seed_is_the_scopes_whatever_the_program_says() -> None:
    endpoint = Endpoint()
    ask = relay(endpoint)
    await ask(asked(seed=1))
    await ask(asked(seed=2))
    assert [request.params["seed"] for request in endpoint.seen] == [SCOPE.seed(0), SCOPE.seed(1)]


async def test_its_own_model_and_tools_are_asked() -> None:
    endpoint = Endpoint()
    tools = [{"type": "function", "function": {"name": "f"}}]
    await relay(endpoint)(asked(model="other", tools=tools))
    assert (endpoint.seen[0].model, list(endpoint.seen[0].tools)) == ("other", tools)


async def test_a_repeated_request_gets_another_sample_and_the_same_ones_again() -> None:
    endpoint, ledger = Endpoint(lambda request, n: str(request.params["seed"])), Failing()
    ask = relay(endpoint, ledger)
    first = [reply.content for reply in await asyncio.gather(*(ask(asked()) for _ in range(4)))]
    assert sorted(first) == sorted(str(SCOPE.seed(r)) for r in range(4))
    ask = relay(endpoint, ledger)
    again = [(await ask(asked())).content for _ in range(5)]
    assert again == [str(SCOPE.seed(r)) for r in range(5)]
    assert len(endpoint.seen) == 5


async def test_a_request_that_failed_is_the_same_one_when_it_is_made_again() -> None:
    endpoint = Endpoint(lambda request, n: EndpointError("down") if n == 0 else "up")
    ledger = Failing()
    ask = relay(endpoint, ledger)
    with pytest.raises(EndpointError):
        await ask(asked())
    await ask(asked())
    assert [(entry.nth, entry.turn) for entry in ledger.entries] == [(0, 0)]
    assert {request.params["seed"] for request in endpoint.seen} == {SCOPE.seed(0)}
    assert (await relay(endpoint, ledger)(asked())).replayed


@pytest.mark.parametrize("answered", [False, True])
async def test_a_request_that_was_given_up_and_made_again_is_paid_once(answered: bool) -> None:
    endpoint = Endpoint()
    ask = relay(endpoint)
    endpoint.gate.clear()
    gone = asyncio.create_task(ask(asked()))
    await endpoint.came.wait()
    gone.cancel()
    await asyncio.wait([gone])
    if answered:
        endpoint.gate.set()
        await asyncio.sleep(0.01)
    again = asyncio.create_task(ask(asked()))
    await asyncio.sleep(0.01)
    endpoint.gate.set()
    assert (await again).content == "answer 0"
    assert len(endpoint.seen) == 1
    assert (await ask(asked())).content == "answer 1"


async def test_once_closed_nothing_is_asked_any_more() -> None:
    endpoint = Endpoint()
    endpoint.gate.clear()
    ledger = Failing()
    ask = relay(endpoint, ledger)
    waiting = asyncio.create_task(ask(asked()))
    await endpoint.came.wait()
    await ask.aclose()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    endpoint.gate.set()
    await asyncio.sleep(0.01)
    assert not ledger.entries


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"temperature": "hot"}, None),
        ({"max_tokens": 1, "max_completion_tokens": 2}, None),
    ],
)
async def test_what_cannot_be_had_is_said(body: dict[str, Any], param: str | None) -> None:
    endpoint = Endpoint()
    with pytest.raises(RequestError) as told:
        await relay(endpoint)(asked(**body))
    assert (told.value.status, told.value.param) == (400, param)
    assert next(iter(body)) in str(told.value)
    assert "model_settings" not in str(told.value)
    assert not endpoint.seen


async def test_n_may_be_one_and_logprobs_false() -> None:
    endpoint = Endpoint()
    await relay(endpoint)(asked(n=1, logprobs=False))
    assert endpoint.seen[0].params == {"seed": SCOPE.seed()}


async def test_all_conversations_are_told_whoever_was_answered_first() -> None:
    endpoint = Endpoint(lambda request, n: f"to {request.messages[-1]['content']}")

    async def play(slow: str) -> list[Message]:
        ask, endpoint.slow = relay(endpoint), slow

        async def thread(n: int) -> None:
            messages: list[Message] = [{"role": "user", "content": f"plan {n}"}]
            reply = await ask(asked(messages))
            messages += [reply.message, {"role": "user", "content": f"go on {n}"}]
            await ask(asked(messages))

        await asyncio.gather(thread(0), thread(1))
        await ask(asked([{"role": "user", "content": "vote"}]))
        return ask.transcript

    said = await play("plan 0")
    assert sorted(m["content"] for m in said) == sorted(
        [
            *(f"{to}{what} {n}" for to in ("", "to ") for what in ("plan", "go on") for n in "01"),
            "vote",
            "to vote",
        ]
    )
    texts = [m["content"] for m in said]
    for n in range(2):
        at = texts.index(f"plan {n}")
        assert texts[at : at + 4] == [f"plan {n}", f"to plan {n}", f"go on {n}", f"to go on {n}"]
    assert texts[-2:] == ["vote", "to vote"]
    assert await play("plan 1") == await play("") == said


async def test_two_ways_on_are_told_one_after_the_other() -> None:
    endpoint = Endpoint(lambda request, n: f"a{n}")
    ask = relay(endpoint)
    reply = await ask(asked())
    for text in ("x", "y"):
        await ask(asked([*Q, reply.message, {"role": "user", "content": text}]))
    assert [m["content"] for m in ask.transcript] == ["Q", "a0", "x", "a1", "y", "a2"]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"reasoning_content": None},
        {"content": "said"},
        {"content": [{"type": "text", "text": "said "}]},
        {"audio": None, "refusal": None},
        {"tool_calls": [{"id": "a", "function": {"arguments": "{}", "name": "f"}}]},
        {"tool_calls": [{"id": "a", "function": {"arguments": "{ }", "name": "f"}}]},
    ],
)
async def test_a_reply_sent_back_in_other_words_is_continued(change: dict[str, Any]) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    first = {"role": "assistant", "content": "<think>hm</think> said", "tool_calls": [call]}
    first["reasoning_content"] = "deep"
    result = {"role": "tool", "tool_call_id": "a", "content": "1"}
    endpoint = Endpoint(lambda request, n: first if n == 0 else f"answer {n}")
    ledger = Failing()
    ask = relay(endpoint, ledger)
    await ask(asked())
    back = {k: v for k, v in (first | change).items() if v is not None}
    for temperature in (0.1, 0.1, 0.9):
        await ask(asked([*Q, back, result], temperature=temperature))
    assert [entry.prev_call_id for entry in ledger.entries] == [None, 1, 1, 1]
    assert endpoint.seen[1].messages == [*Q, back, result]  # sent as the program has it
    texts = [m["content"] for m in ask.transcript]
    assert texts == ["Q", first["content"], *(t for n in (1, 2, 3) for t in ("1", f"answer {n}"))]


@pytest.mark.parametrize(
    "change",
    [
        {"content": "other"},
        {"tool_calls": [{"id": "a", "function": {"arguments": "{1}", "name": "f"}}]},
        {"role": "user"},
    ],
)
async def test_what_was_not_said_is_another_conversation(change: dict[str, Any]) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    first = {"role": "assistant", "content": "said", "tool_calls": [call]}
    ledger = Failing()
    ask = relay(Endpoint(lambda request, n: first), ledger)
    await ask(asked())
    await ask(asked([*Q, first | change, {"role": "user", "content": "on"}]))
    assert [entry.prev_call_id for entry in ledger.entries] == [None, None]


async def test_a_secret_in_what_a_program_says_is_not_told() -> None:
    redactor.know(["sk-very-secret-1"])
    ask = relay(Endpoint())
    await ask(asked([{"role": "user", "content": "my key is sk-very-secret-1"}]))
    assert ask.transcript[0]["content"] == "my key is ***"
