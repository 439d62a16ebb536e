"""What the client sends, when it waits, and what it remembers."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from grpo_practice.core.calls import Message, Request
from grpo_practice.core.errors import ConfigError, EndpointError, EndpointRefusedError
from grpo_practice.core.events import Event, RetryWaits
from grpo_practice.llm.admission import Admission
from grpo_practice.llm.budget import Account, Caps
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import FIRST, Limit
from grpo_practice.llm.endpoint import Endpoint
from tests.fakes import Answer, FakeEndpoint, FakeSleep, answers, reply
from tests.llm.virtual import virtual
from tests.processes import HANG_S

URL = "https://api.example.com/v1"
HI: list[Message] = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f"}}
SECRET = "sk-live-0123456789"


def ask(*, tools: bool = False, text: str = "hi", **params: Any) -> Request:
    messages = [{"role": "user", "content": text}]
    return Request("m-1", {"seed": 5, **params}, messages, [TOOL] if tools else ())


def connect(
    server: FakeEndpoint,
    endpoint: Endpoint | None = None,
    *,
    n: int = 8,
    limit: Limit | None = None,
    max_tries: int = 5,
    notice: Callable[[str], None] = lambda _: None,
    sleep: Callable[[float], Awaitable[None]] | None = None,
    admission: Admission | None = None,
) -> Client:
    return Client(
        endpoint or Endpoint(URL, max_tries=max_tries),
        limit or Limit(n),
        notice=notice,
        transport=server.transport,
        sleep=sleep or FakeSleep(),
        admission=admission,
    )


def down(status: int = 503, **said: Any) -> httpx.Response:
    return httpx.Response(status, json={"error": said})


# What is sent


async def test_a_request_is_one_post_with_everything_in_its_place() -> None:
    server = FakeEndpoint(answers("24"))
    endpoint = Endpoint(
        "https://api.example.com/v1/?api-version=2",
        api_key=SECRET,
        headers={"X-Team": "a"},
        query={"k": "v w"},
        unhashed={"user": "u", "metadata": {"a": 1}},
    )
    async with connect(server, endpoint) as client:
        await client.send(ask(tools=True, temperature=0.7, tool_choice="auto"))
    assert server.seen == [
        {
            "model": "m-1",
            "messages": HI,
            "tools": [TOOL],
            "seed": 5,
            "temperature": 0.7,
            "tool_choice": "auto",
            "user": "u",
            "metadata": {"a": 1},
        }
    ]
    (request,) = server.requests
    assert request.method == "POST"
    assert request.url.path == "/v1/chat/completions"
    assert dict(request.url.params) == {"api-version": "2", "k": "v w"}
    assert request.headers["authorization"] == f"Bearer {SECRET}"
    assert request.headers["x-team"] == "a"


async def test_without_tools_nothing_about_tools_is_sent() -> None:
    server = FakeEndpoint(answers("24"))
    async with connect(server) as client:
        await client.send(ask(tool_choice="auto", parallel_tool_calls=True))
    assert server.seen == [{"model": "m-1", "messages": HI, "seed": 5}]


async def test_send_seed_false_keeps_the_seed_off_the_wire_and_the_reply_says_so() -> None:
    server = FakeEndpoint(answers("24"))
    async with connect(server, Endpoint(URL, send_seed=False)) as client:
        assert not (await client.send(ask())).seeded
    assert "seed" not in server.seen[0]
    async with connect(server) as client:
        assert (await client.send(ask())).seeded
    assert "seed" in server.seen[1]


async def test_a_reply_after_the_seed_was_refused_is_not_seeded() -> None:
    refusal = down(400, message="Unrecognized request argument supplied: seed")
    server = FakeEndpoint(lambda body: refusal if "seed" in body else "24")
    async with connect(server) as client:
        assert [(await client.send(ask())).seeded for _ in range(2)] == [False, False]


async def test_numbers_beyond_json_outside_the_text_cost_no_reply() -> None:
    body = (
        b'{"choices":[{"message":{"role":"assistant","content":"24","score":NaN},'
        b'"logprobs":{"content":[{"logprob":-Infinity,"p":1e400}]}}]}'
    )
    server = FakeEndpoint(answers(httpx.Response(200, content=body)))
    async with connect(server) as client:
        got = await client.send(ask())
    assert (got.content, got.tries, got.message["score"]) == ("24", 1, None)


async def test_1_45_lone_surrogates_are_replaced_on_the_way_out_and_in() -> None:
    body = b'{"choices":[{"message":{"role":"assistant","content":"b\\ud800\\u0000"}}]}'
    server = FakeEndpoint(answers(httpx.Response(200, content=body)))
    async with connect(server) as client:
        got = await client.send(ask(text="a\ud800é"))
    assert server.seen[0]["messages"][0]["content"] == "a\ufffdé"
    assert got.content == "b\ufffd\0"


async def test_1_45_ten_megabytes_are_read_whole() -> None:
    server = FakeEndpoint(answers("x" * 10_000_000))
    async with connect(server) as client:
        assert len((await client.send(ask())).content) == 10_000_000


# Secrets


async def test_a_secret_in_a_reply_is_replaced_before_it_is_used() -> None:
    message: Message = {"role": "assistant", "content": f"it is {SECRET}"}
    message["tool_calls"] = [{"function": {"arguments": f'{{"k": "{SECRET}"}}'}}]
    server = FakeEndpoint(answers(reply(message, model=SECRET)))
    async with connect(server, Endpoint(URL, api_key=SECRET)) as client:
        got = await client.send(ask())
    assert SECRET not in repr(got)
    assert got.content == "it is ***"
    assert got.message["tool_calls"][0]["function"]["arguments"] == '{"k": "***"}'


@pytest.mark.parametrize(
    "fault",
    [
        down(400, message=f"key {SECRET} may not"),
        down(401, message=f"no such key {SECRET}"),
        httpx.Response(200, text=SECRET),
        httpx.Response(302, headers={"location": f"/login/{SECRET}"}),
        httpx.ReadError(f"lost {SECRET}"),
    ],
    ids=["400", "401", "text", "redirect", "broken"],
)
async def test_a_secret_in_an_error_is_replaced(fault: Answer) -> None:
    server = FakeEndpoint(answers(fault))
    async with connect(server, Endpoint(URL, api_key=SECRET)) as client:
        with pytest.raises((EndpointError, EndpointRefusedError), match=r"\*\*\*") as caught:
            await client.send(ask())
    assert SECRET not in str(caught.value)


# Waits and limits


async def test_our_own_backoff_is_random_and_grows() -> None:
    waits = list[list[float]]()
    for _ in range(40):
        sleep = FakeSleep()
        async with connect(FakeEndpoint(answers(down())), sleep=sleep) as client:
            with pytest.raises(EndpointError):
                await client.send(ask())
        waits.append(sleep.slept)
    assert all(0 <= w <= 2 ** (i + 1) for slept in waits for i, w in enumerate(slept))
    assert len({slept[0] for slept in waits}) == 40
    assert max(slept[3] for slept in waits) > 8 > max(slept[1] for slept in waits)


async def test_a_wait_before_another_try_is_told_with_its_reason() -> None:
    admission, events = Admission(), list[Event]()
    admission.emit = events.append
    asked = httpx.Response(429, headers={"retry-after": "12"}, json={"error": {}})
    server = FakeEndpoint(answers(asked, down(), httpx.ConnectError("refused"), reply("4")))
    sleep = FakeSleep()
    async with connect(server, sleep=sleep, admission=admission) as client:
        await client.send(ask())
    waits = [event for event in events if isinstance(event, RetryWaits)]
    assert [(wait.host, wait.status, wait.asked) for wait in waits] == [
        ("api.example.com", 429, True),
        ("api.example.com", 503, False),
        ("api.example.com", None, False),
    ]
    assert waits[0].seconds == 12
    assert [wait.seconds for wait in waits[1:]] == sleep.slept[1:]


async def test_1_28_no_more_requests_are_in_flight_than_the_limit_lets_through() -> None:
    inside = most = 0

    async def slow(_: dict[str, Any]) -> str:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.001)
        inside -= 1
        return "24"

    async with connect(FakeEndpoint(slow), n=3) as client:
        await asyncio.gather(*(client.send(ask()) for _ in range(12)))
    assert most == 3


async def test_a_sender_has_its_priority() -> None:
    started, go = asyncio.Event(), asyncio.Event()

    async def gate(_: dict[str, Any]) -> str:
        started.set()
        await go.wait()
        return "24"

    server = FakeEndpoint(gate)
    async with connect(server, n=1) as client, asyncio.TaskGroup() as group:
        group.create_task(client.send(ask(text="now")))
        await started.wait()
        group.create_task(client.send(ask(text="student")))
        await asyncio.sleep(0)
        group.create_task(client.sender(FIRST)(ask(text="teacher")))
        await asyncio.sleep(0)
        go.set()
    assert [b["messages"][0]["content"] for b in server.seen] == ["now", "teacher", "student"]


async def test_a_request_that_backs_off_holds_no_slot() -> None:
    server = FakeEndpoint(lambda b: down() if b["messages"][0]["content"] == "bad" else "24")
    woken = asyncio.Event()

    async def sleep(_: float) -> None:
        await woken.wait()

    async with connect(server, n=1, sleep=sleep) as client:
        bad = asyncio.create_task(client.send(ask(text="bad")))
        async with asyncio.timeout(HANG_S):
            assert (await client.send(ask(text="good"))).content == "24"
        woken.set()
        with pytest.raises(EndpointError):
            await bad


def test_seconds_are_those_of_the_answered_try_without_waits() -> None:
    async def slow(_: dict[str, Any]) -> str:
        await asyncio.sleep(50)
        return "24"

    async def story() -> list[float]:
        async with connect(FakeEndpoint(slow), n=1) as client:
            replies = await asyncio.gather(*(client.send(ask()) for _ in range(4)))
        return [reply.seconds for reply in replies]

    assert virtual(story()) == [50.0] * 4


def test_seconds_are_without_the_wait_for_the_admission() -> None:
    """One request may be paid for at a time, so the second waits until the first is settled."""

    async def slow(_: dict[str, Any]) -> str:
        await asyncio.sleep(10)
        return "24"

    async def story() -> list[float]:
        admission = Admission(Account(Caps(tokens=300)))
        async with connect(FakeEndpoint(slow), admission=admission) as client:
            got = await asyncio.gather(
                *(client.send(ask(text=text, max_tokens=200), limit_s=11) for text in "abc")
            )
        return [reply.seconds for reply in got]

    assert virtual(story()) == [10, 10, 10]


# Deadlines


async def forever(_: dict[str, Any]) -> str:
    await asyncio.Event().wait()
    return "never"


async def test_1_22_a_reply_that_never_ends_is_ended_tried_again_and_maybe_paid() -> None:
    server, admission, told = FakeEndpoint(forever), Admission(), list[Event]()
    admission.emit = told.append
    endpoint = Endpoint(URL, timeout_s=0.01, max_tries=2)
    async with connect(server, endpoint, admission=admission) as client:
        with pytest.raises(
            EndpointError, match=r"no complete response in time: .*0\.01 s"
        ) as caught:
            await client.send(ask(), limit_s=5)
    assert caught.value.maybe_paid
    assert caught.value.tries == len(server.seen) == 2
    assert [e.timed_out_s for e in told if isinstance(e, RetryWaits)] == [0.01]


async def test_the_callers_limit_is_a_timeout_and_is_not_tried_again() -> None:
    server = FakeEndpoint(forever)
    async with connect(server) as client:
        with pytest.raises(TimeoutError, match=r"0\.01 s"):
            await client.send(ask(), limit_s=0.01)
    assert len(server.seen) == 1


async def test_a_caller_without_time_left_sends_nothing() -> None:
    server = FakeEndpoint(answers("24"))
    async with connect(server) as client:
        with pytest.raises(TimeoutError):
            await client.send(ask(), limit_s=0)
    assert server.seen == []


def test_1_28_a_wait_for_a_slot_is_not_held_against_the_callers_limit() -> None:
    async def slow(_: dict[str, Any]) -> str:
        await asyncio.sleep(5)
        return "24"

    async def story() -> list[Any]:
        async with connect(FakeEndpoint(slow), n=1) as client:
            return await asyncio.gather(*(client.send(ask(), limit_s=6) for _ in range(8)))

    assert len(virtual(story())) == 8


async def test_a_request_refused_with_a_status_was_not_paid() -> None:
    async with connect(FakeEndpoint(answers(down()))) as client:
        with pytest.raises(EndpointError) as caught:
            await client.send(ask())
    assert not caught.value.maybe_paid
    assert caught.value.status == 503


async def test_a_reply_that_began_well_may_have_been_paid_whatever_came_after() -> None:
    garbled = httpx.Response(200, content=b'{"choi')
    async with connect(FakeEndpoint(answers(garbled, down()))) as client:
        with pytest.raises(EndpointError) as caught:
            await client.send(ask())
    assert caught.value.maybe_paid


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (asyncio.CancelledError(), "cancelled"),
        (ZeroDivisionError(), "internal"),
        (ConfigError("no"), "config"),
    ],
)
async def test_a_request_that_another_error_ended_is_kept_by_a_kind_not_by_a_class(
    error: BaseException, kind: str
) -> None:
    async def ends(_: dict[str, Any]) -> str:
        await asyncio.sleep(0)
        raise error

    async with connect(FakeEndpoint(ends)) as client:
        with pytest.raises(type(error)) as caught:
            await client.send(ask())
    cause = caught.value.__cause__
    assert isinstance(cause, EndpointError)
    assert cause.kind == kind
