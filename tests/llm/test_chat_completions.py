"""Streamed replies: put together as if they had come in one piece, or not at all."""

import asyncio
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import override

from grpo_practice.core.calls import Reply, Usage
from grpo_practice.core.errors import ContextOverflowError, EndpointError, EndpointRefusedError
from grpo_practice.llm.chat_completions import assemble
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.http_response import decode
from tests.contract.endpoint.actions import completion
from tests.fakes import Answer, FakeEndpoint, FakeSleep, answers, reply
from tests.llm.test_client import URL, ask, connect
from tests.processes import HANG_S

SSE = {"content-type": "text/event-stream; charset=utf-8"}
STREAM = Endpoint(URL, stream=True, max_tries=3)


def chunk(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"object": "chat.completion.chunk", "model": "m-1", "choices": [choice], "usage": None}


def usage(tokens_in: int, tokens_out: int) -> dict[str, Any]:
    counted = {"prompt_tokens": tokens_in, "completion_tokens": tokens_out}
    return {"object": "chat.completion.chunk", "model": "m-1", "choices": [], "usage": counted}


def sse(chunks: Iterable[dict[str, Any] | str], *, ascii_only: bool = False) -> bytes:
    lines = [c if isinstance(c, str) else json.dumps(c, ensure_ascii=ascii_only) for c in chunks]
    return "".join(f"data: {line}\n\n" for line in lines).encode("utf-8", "surrogatepass")


def pieces_of(message: dict[str, Any], sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """A message as servers stream it: the role, then the texts a few characters at a time."""
    yield chunk(role="assistant", content="", refusal=None)
    for key, value in message.items():
        if key == "tool_calls":
            for index, call in enumerate(value):
                name, arguments = call["function"]["name"], call["function"]["arguments"]
                head = {"index": index, "id": call["id"], "type": "function"}
                yield chunk(tool_calls=[{**head, "function": {"name": name, "arguments": ""}}])
                for part in _cut(arguments, sizes):
                    yield chunk(tool_calls=[{"index": index, "function": {"arguments": part}}])
        elif key != "role" and isinstance(value, str):
            for part in _cut(value, sizes):
                yield chunk(**{key: part})


def _cut(text: str, sizes: Sequence[int]) -> Iterator[str]:
    at = 0
    for i in range(len(text)):
        size = sizes[i % len(sizes)]
        if at < len(text):
            yield text[at : at + size]
        at += size


class Network(httpx.AsyncByteStream):
    """Bytes that come in these pieces, and then perhaps break off or never end."""

    def __init__(
        self, parts: Iterable[bytes], end: Exception | None = None, *, left_open: bool = False
    ) -> None:
        self.parts, self.end, self.left_open = parts, end, left_open

    @override
    async def __aiter__(self) -> Any:
        for part in self.parts:
            await asyncio.sleep(0)
            yield part
        if self.left_open:
            await asyncio.Event().wait()
        if self.end is not None:
            raise self.end


def streamed(raw: bytes | Network) -> httpx.Response:
    if isinstance(raw, bytes):
        return httpx.Response(200, content=raw, headers=SSE)
    return httpx.Response(200, stream=raw, headers=SSE)


async def send(*script: Answer, endpoint: Endpoint = STREAM) -> tuple[Reply, FakeEndpoint]:
    server = FakeEndpoint(answers(*script))
    async with connect(server, endpoint) as client:
        return await client.send(ask(max_tokens=9)), server


GOOD = sse([*pieces_of({"content": "é = 24 €"}, [2]), chunk("stop"), usage(11, 7), "[DONE]"])


async def test_a_streamed_reply_is_the_unstreamed_one() -> None:
    got, server = await send(streamed(GOOD))
    plain, _ = await send(reply("é = 24 €"))
    assert got.message == plain.message | {"refusal": None}
    assert (got.finish, got.usage, got.answered_by) == (
        plain.finish,
        plain.usage,
        plain.answered_by,
    )
    assert server.seen[0]["stream"] is True
    assert server.seen[0]["stream_options"] == {"include_usage": True}


async def test_a_server_that_answers_in_one_piece_all_the_same_is_fine() -> None:
    got, _ = await send(reply("24"))
    assert (got.content, got.tries) == ("24", 1)


@given(
    st.text(max_size=40),
    st.text(max_size=40),
    st.lists(st.text(max_size=30), max_size=3),
    st.lists(st.integers(1, 7), min_size=1, max_size=4),
    st.booleans(),
)
def test_whatever_is_said_and_however_it_is_cut_the_message_is_the_same(
    content: str, thought: str, arguments: list[str], sizes: list[int], ascii_only: bool
) -> None:
    calls = [
        {"id": f"call-{i}", "type": "function", "function": {"name": "f", "arguments": text}}
        for i, text in enumerate(arguments)
    ]
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
    message |= {"reasoning_content": thought} if thought else {}
    message |= {"tool_calls": calls} if calls else {}
    chunks = [*pieces_of(message, sizes), chunk("stop"), usage(1, 2)]
    events = [("message", json.dumps(c, ensure_ascii=ascii_only)) for c in chunks]
    body = assemble(events)
    assert body["choices"] == [{"index": 0, "message": message, "finish_reason": "stop"}]
    assert body["usage"] == {"prompt_tokens": 1, "completion_tokens": 2}


async def test_1_46_it_makes_no_difference_where_the_network_divides_the_bytes() -> None:
    for size in (1, 2, 3, 7, 4096):
        parts = [GOOD[i : i + size] for i in range(0, len(GOOD), size)]
        got, _ = await send(streamed(Network(parts)))
        assert (got.content, got.tries) == ("é = 24 €", 1)


async def test_a_piece_that_says_again_all_that_was_said_is_a_piece() -> None:
    raw = sse([chunk(content="ha"), chunk(content="ha"), chunk("stop")])
    assert (await send(streamed(raw)))[0].content == "haha"


async def test_a_character_that_a_server_divides_into_surrogates_is_whole_again() -> None:
    halves = [r'{"choices":[{"delta":{"content":"\ud83d"}}]}']
    halves += [r'{"choices":[{"delta":{"content":"\ude00"},"finish_reason":"stop"}]}', "[DONE]"]
    got, _ = await send(streamed(sse(halves)))
    assert got.content == "\U0001f600"


CUT = [
    pytest.param(sse(pieces_of({"content": "24"}, [1])), id="without-an-end"),
    pytest.param(sse(pieces_of({"content": "24"}, [1])) + b'data: {"choices": [{"de', id="mid"),
    pytest.param(sse(pieces_of({"content": "é"}, [1]))[:-6], id="mid-character"),
    pytest.param(b"", id="nothing"),
    pytest.param(b": keep-alive\n\n", id="comment"),
    pytest.param(GOOD.replace("€".encode(), b"\xff"), id="not-utf8"),
    pytest.param(GOOD.replace(b'"stop"', b"null").replace(b"data: [DONE]\n\n", b""), id="ends"),
]


@pytest.mark.parametrize("raw", CUT)
async def test_1_46_a_stream_that_is_cut_is_retried_and_may_have_been_paid(raw: bytes) -> None:
    got, server = await send(streamed(raw), streamed(GOOD))
    assert (got.content, got.tries, len(server.seen)) == ("é = 24 €", 2, 2)
    with pytest.raises(EndpointError, match="broke off") as caught:
        await send(streamed(raw))
    assert caught.value.maybe_paid


async def test_1_46_a_stream_that_is_reset_is_retried_unless_the_reply_was_whole() -> None:
    half = Network([sse(pieces_of({"content": "24"}, [1]))], httpx.ReadError("reset"))
    got, server = await send(streamed(half), streamed(GOOD))
    assert (got.tries, len(server.seen)) == (2, 2)
    whole = Network([GOOD.replace(b"data: [DONE]\n\n", b"")], httpx.ReadError("reset"))
    got, server = await send(streamed(whole))
    assert (got.content, got.usage) == ("é = 24 €", Usage(11, None, 7))
    assert (got.tries, len(server.seen)) == (1, 1)


async def test_the_last_event_needs_no_blank_line_after_it() -> None:
    raw = sse([*pieces_of({"content": "24"}, [1]), chunk("stop")]).rstrip()
    got, _ = await send(streamed(raw))
    assert (got.content, got.tries) == ("24", 1)


async def test_a_connection_left_open_after_the_end_is_not_waited_for() -> None:
    async with asyncio.timeout(HANG_S):
        got, _ = await send(streamed(Network([GOOD], left_open=True)))
    assert got.content == "é = 24 €"


async def test_1_46_a_stream_that_drips_for_ever_ends_at_the_total_deadline() -> None:
    def drip() -> Iterator[bytes]:
        while True:
            yield b": keep-alive\n\n"

    endpoint = Endpoint(URL, stream=True, timeout_s=0.05, max_tries=2)
    server = FakeEndpoint(lambda _: streamed(Network(drip())))
    async with connect(server, endpoint) as client:
        with pytest.raises(EndpointError, match="no complete response in time") as caught:
            await client.send(ask())
    assert (caught.value.maybe_paid, caught.value.tries) == (True, 2)


def said(error: dict[str, Any], *, name: str = "") -> httpx.Response:
    """An error in the middle of a stream."""
    event = f"event: {name}\n" if name else ""
    end = f"{event}data: {json.dumps(error)}\n\n".encode()
    return streamed(sse(pieces_of({"content": "2"}, [1])) + end)


@pytest.mark.parametrize(
    "error",
    [
        said({"error": {"message": "overloaded", "code": 502}}),
        said({"error": {"code": "rate_limit_exceeded"}}),
        said({"message": "busy", "code": 503}, name="error"),
        said({"object": "error", "message": "engine dead", "code": 500}),
        streamed(sse([chunk(content="2"), chunk("error")])),
    ],
)
async def test_1_46_an_error_in_the_stream_is_classified_by_its_body(error: Answer) -> None:
    got, _ = await send(error, streamed(GOOD))
    assert (got.content, got.tries) == ("é = 24 €", 2)


async def test_an_error_after_the_reply_was_whole_costs_it_nothing() -> None:
    late = GOOD.replace(b"data: [DONE]\n\n", sse([{"error": {"code": 500}}]))
    got, _ = await send(streamed(late))
    assert (got.content, got.tries) == ("é = 24 €", 1)


@pytest.mark.parametrize(
    "error",
    [
        said({"error": {"code": "insufficient_quota"}}),
        said({"message": "pay first", "code": "insufficient_quota"}, name="error"),
        said({"object": "error", "message": "pay first", "code": "insufficient_quota"}),
    ],
)
async def test_1_46_an_error_in_the_stream_that_no_retry_mends_is_not_retried(
    error: Answer,
) -> None:
    with pytest.raises(EndpointRefusedError, match="no credit or quota left"):
        await send(error, streamed(GOOD))


async def test_1_46_an_overflow_in_the_stream_is_one() -> None:
    with pytest.raises(ContextOverflowError):
        await send(
            said({"error": {"code": "context_length_exceeded", "status": 400}}), streamed(GOOD)
        )


async def test_comments_blank_events_and_empty_chunks_say_nothing() -> None:
    first = {"model": "", "choices": [], "prompt_filter_results": []}
    raw = b": hello\n\ndata:\n\n\r\n" + sse([first]) + GOOD.replace(b"\n", b"\r\n")
    got, _ = await send(streamed(raw))
    assert (got.content, got.answered_by) == ("é = 24 €", "m-1@api.example.com")


async def test_an_endpoint_that_refuses_stream_options_is_adapted_once() -> None:
    told = list[str]()

    def picky(body: dict[str, Any]) -> Answer:
        if "stream_options" in body:
            said = "Unrecognized request argument supplied: stream_options"
            return httpx.Response(400, json={"error": {"message": said}})
        return streamed(GOOD)

    server = FakeEndpoint(picky)
    async with connect(server, STREAM, notice=told.append) as client:
        for _ in range(3):
            await client.send(ask())
    assert ["stream_options" in body for body in server.seen] == [True, False, False, False]
    assert all(body["stream"] for body in server.seen)
    assert len(told) == 1


async def test_without_include_usage_no_counts_are_asked_for_and_none_are_known() -> None:
    raw = sse([*pieces_of({"content": "24"}, [1]), chunk("stop"), "[DONE]"])
    endpoint = Endpoint(URL, stream=True, stream_usage=False)
    got, server = await send(streamed(raw), endpoint=endpoint)
    assert "stream_options" not in server.seen[0]
    assert got.usage == Usage()


async def test_without_stream_nothing_about_it_is_sent() -> None:
    _, server = await send(reply("24"), endpoint=Endpoint(URL))
    assert server.seen[0].keys().isdisjoint({"stream", "stream_options"})


def test_pieces_of_unknown_keys_are_kept() -> None:
    deltas: list[dict[str, Any]] = [
        {
            "reasoning_details": [{"type": "t", "index": 0, "text": "Let"}],
            "lang": "en",
        },
        {
            "reasoning_details": [{"type": "t", "index": 0, "text": " us"}],
            "lang": "en",
        },
        {"annotations": [{"url": "a"}], "audio": {"id": "x", "transcript": "ha"}},
        {"annotations": [{"url": "b"}], "audio": {"id": "x", "transcript": "lt"}, "score": 0.5},
        {"tool_calls": [{"index": 1, "id": "t1", "function": {"name": "g", "arguments": "{}"}}]},
        {"tool_calls": [{"index": 0, "id": "t0", "function": {"name": "f", "arguments": ""}}]},
        {"tool_calls": [{"index": 0, "id": "x", "function": {"name": "f", "arguments": "{}"}}]},
    ]
    events = [("", json.dumps(chunk(**delta))) for delta in deltas]
    body = assemble([*events, ("", json.dumps(chunk("stop")))])
    assert body["choices"][0]["message"] == {
        "reasoning_details": [{"type": "t", "index": 0, "text": "Let us"}],
        "lang": "en",
        "annotations": [{"url": "a"}, {"url": "b"}],
        "audio": {"id": "x", "transcript": "halt"},
        "score": 0.5,
        "tool_calls": [
            {"id": "t0", "function": {"name": "f", "arguments": "{}"}},
            {"id": "t1", "function": {"name": "g", "arguments": "{}"}},
        ],
        "content": None,
    }


@given(st.lists(st.tuples(st.sampled_from(["", "error"]), st.text() | st.from_regex(r"\{.*\}"))))
def test_no_events_raise(events: list[tuple[str, str]]) -> None:
    assemble(events)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "index", "id", "tool_calls", "function", "message"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.lists(st.fixed_dictionaries({"choices": st.lists(JSON, max_size=2)}), max_size=4))
def test_no_chunks_raise(chunks: list[dict[str, Any]]) -> None:
    assemble([("", json.dumps(c)) for c in chunks] + [("", "[DONE]")])


def test_the_body_that_is_put_together_is_one_that_could_have_come() -> None:
    lines = GOOD.decode().split("\n\n")
    body = assemble([("", line.removeprefix("data: ")) for line in lines if line])
    assert body == {
        "object": "chat.completion",
        "model": "m-1",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "é = 24 €", "refusal": None},
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 11, "completion_tokens": 7},
    }
    assert decode(json.dumps(completion("x")).encode()) == completion("x")


async def test_a_retry_of_a_cut_stream_backs_off() -> None:
    sleep = FakeSleep()
    server = FakeEndpoint(answers(streamed(b""), streamed(GOOD)))
    async with connect(server, STREAM, sleep=sleep) as client:
        await client.send(ask())
    assert len(sleep.slept) == 1
