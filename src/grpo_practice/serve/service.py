"""The endpoint for clients: it forwards requests with the agent's prompt, and hides our own key."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any
from uuid import uuid4

from aiohttp import web
from multidict import CIMultiDict

from grpo_practice.core.errors import EndpointError
from grpo_practice.core.redact import Redactor, url_secrets
from grpo_practice.llm import chat_completions
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.served_responses import response
from grpo_practice.rollout.chat_server.server import (
    ChatRequest,
    RequestError,
    application,
    chat_request,
    completion,
    event,
    models,
    one_reply,
    read_body,
    respond,
    respond_with,
    responses_body,
)
from grpo_practice.run.served_agent import ServedAgent
from grpo_practice.serve.exchange import Exchange, replies_in
from grpo_practice.serve.upstream import BrokenError, Sent, Upstream

_OURS = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "transfer-encoding", "upgrade", "content-length", "content-encoding",
    "set-cookie", "server", "date", "alt-svc", "strict-transport-security",
})  # fmt: skip
"""Headers that belong to one connection or to the other host."""
_CORS = "access-control-"
HELD = 64 * 1024
"""Number of bytes without a line end after which everything except a tail is forwarded."""
TAIL = 8 * 1024
"""Maximum length of an encoded key in bytes."""


def own_secrets(endpoint: Endpoint) -> Redactor:
    """Return a redactor for the endpoint's key and all other credentials, to hide from clients."""
    given = [*endpoint.headers.values(), *endpoint.query.values()]
    return Redactor([endpoint.api_key or "", *given, *url_secrets(endpoint.base_url)])


def headers(came: Mapping[str, str], hide: Redactor) -> CIMultiDict[str]:
    """Return the headers of a response that are forwarded."""
    kept = CIMultiDict[str]()
    for name, value in came.items():
        if name.lower() not in _OURS and not name.lower().startswith(_CORS):
            # A model may echo the key in a header, for example in an error about it.
            kept.add(name, hide.text(value))
    return kept


class Hiding:
    """Filter that hides secrets in a body that arrives in chunks.

    No secret spans lines, so complete lines are forwarded immediately and the rest waits for the
    end of its line. Every event of a stream ends with a line end.
    """

    def __init__(self, hide: Redactor) -> None:
        self._hide = hide
        self._held = b""

    def passed(self, chunk: bytes) -> bytes:
        """Add a chunk; return the bytes that can be forwarded now."""
        if not self._hide.known:
            return chunk
        whole = self._held + chunk
        end = whole.rfind(b"\n") + 1
        if not end and len(whole) > HELD:
            whole = self.hidden(whole)
            # Keep the tail, because a secret may start in it.
            end = len(whole) - TAIL
        self._held = whole[end:]
        return self.hidden(whole[:end])

    def rest(self) -> bytes:
        """Return the remaining bytes at the end."""
        left, self._held = self._held, b""
        return self.hidden(left)

    def hidden(self, raw: bytes) -> bytes:
        """Replace every secret in the bytes."""
        text = raw.decode("latin-1")  # lossless for any bytes; keys are ASCII
        return self._hide.text(text).encode("latin-1") if self._hide.suspects(text) else raw


WHOLE = 256 * 1024
"""Maximum size in bytes of a response of known length that is forwarded in one piece."""


@dataclass(slots=True)
class Counts:
    """Numbers of requests so far."""

    requests: int = 0
    errors: int = 0
    """Requests that ended in an error or in an incomplete response."""
    given_up: int = 0
    """Requests that the client cancelled before they were answered."""


@dataclass(slots=True)
class Service:
    """An agent behind an OpenAI-compatible endpoint."""

    agent: ServedAgent
    endpoint: Endpoint
    upstream: Upstream
    record: Callable[[Exchange], None] | None = None
    """Function called with every exchange when it ends."""
    counts: Counts = field(default_factory=Counts)
    secrets: Redactor = field(init=False)
    """Our own secrets, which must not reach a client."""
    _tasks: set["asyncio.Task[Any]"] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.secrets = own_secrets(self.endpoint)

    def application(self, unexpected: Callable[[Exception], None]) -> web.Application:
        """Return the web application; `unexpected` is called with internal errors."""
        return application(
            # Serve it without /v1, too, because not every client's base_url ends in it.
            *(web.post(f"{at}/chat/completions", self._chat) for at in ("/v1", "")),
            *(web.post(f"{at}/responses", self._chat) for at in ("/v1", "")),
            *(web.get(f"{at}/models", self._models) for at in ("/v1", "")),
            unexpected=unexpected,
        )

    def stop(self) -> None:
        """Cancel the requests in flight."""
        for task in self._tasks:
            task.cancel()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response(models(self.agent.name, self.agent.model))

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        """Answer with the reply of the agent's model, and count the request."""
        self.counts.requests += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            response = await self._answer(request)
        except asyncio.CancelledError:
            self.counts.given_up += 1
            raise
        except Exception:
            self.counts.errors += 1
            raise
        self.counts.errors += response.status >= 400
        return response

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = given = read_body(await request.read())
        is_chat = request.path.endswith(chat_completions.PATH)
        if not is_chat:
            body = responses_body(given)
        asked = chat_request(body)  # raises for an invalid chat request
        body["messages"] = self.agent.messages(body["messages"])
        turn = _Turn(request, Exchange(monotonic(), kept=self.record is not None))
        # Bytes can be passed on if client and model use the same API. This works only for chat
        # completions, since everything else here reads that format.
        passes = is_chat and self.endpoint.api == "chat.completions"
        exchange = turn.exchange
        try:
            async with asyncio.timeout(self.endpoint.timeout_s):
                if passes:
                    return await self._pass_on(turn, body)
                return await self._translate(turn, one_reply(asked), body, given)
        except TimeoutError:
            exchange.fail(f"no complete answer within {self.endpoint.timeout_s:g} s", "deadline")
            return await self._lost(turn, 504)
        except BrokenError as e:
            exchange.fail(str(e), e.failure.kind)
            return await self._lost(turn, 502)
        except (asyncio.CancelledError, ConnectionError) as e:
            exchange.fail("disconnected before it was answered", "CancelledError")
            # A broken connection to the client means that it left, not that anything failed.
            raise asyncio.CancelledError from e
        except Exception as e:
            exchange.fail(f"{type(e).__name__}: {e}", "internal")
            raise
        finally:
            exchange.ended = monotonic()
            if self.record is not None:
                # Record in any case, because an incomplete reply may have been billed.
                self.record(exchange)

    async def _pass_on(self, turn: "_Turn", body: dict[str, Any]) -> web.StreamResponse:
        exchange = turn.exchange
        async with self.upstream.ask(body) as sent:
            exchange.sent = sent
            status, kept = sent.response.status, headers(sent.response.headers, self.secrets)
            hiding = Hiding(self.secrets)
            if _is_short(sent):
                raw = await sent.whole()
                exchange.take(raw)
                return web.Response(status=status, headers=kept, body=hiding.hidden(raw))
            turn.response = response = web.StreamResponse(status=status, headers=kept)
            await response.prepare(turn.request)
            # Close it now, not at garbage collection, because the upstream would continue to send.
            async with aclosing(sent.chunks()) as chunks:
                async for chunk in chunks:
                    # Before the write, which fails if the client is gone.
                    exchange.take(chunk)
                    if passed := hiding.passed(chunk):
                        await response.write(passed)
            if rest := hiding.rest():
                await response.write(rest)
            await response.write_eof()
            return response

    async def _translate(
        self, turn: "_Turn", asked: ChatRequest, body: dict[str, Any], given: Mapping[str, Any]
    ) -> web.StreamResponse:
        """Answer with the whole reply, in the format of the client's API."""
        exchange = turn.exchange
        left_out = ("stream", "stream_options", "n", "logprobs")
        whole = {key: value for key, value in body.items() if key not in left_out}
        async with self.upstream.ask(whole) as sent:
            exchange.sent, raw = sent, await sent.whole()
            exchange.take(raw)
            status = sent.response.status
            if status >= 300:
                kept = headers(sent.response.headers, self.secrets)
                hidden = Hiding(self.secrets).hidden(raw)
                return web.Response(status=status, headers=kept, body=hidden)
        try:
            reply = replies_in(sent, raw, monotonic() - exchange.began, self.endpoint)[0]
        except EndpointError as e:
            raise RequestError(str(e), status=502, kind="upstream_error") from None
        if turn.request.path.endswith(chat_completions.PATH):
            return await respond(turn.request, asked, reply)
        made = response(completion(asked, reply), given, f"resp_{uuid4().hex}")
        return await respond_with(turn.request, made, stream=asked.stream)

    async def _lost(self, turn: "_Turn", status: int) -> web.StreamResponse:
        """Tell the client that there is no response, or that it is incomplete."""
        exchange, response = turn.exchange, turn.response
        code = {502: "upstream_unreachable", 504: "upstream_timeout"}[status]
        error = RequestError(exchange.failed, status=status, kind="upstream_error", code=code)
        if response is None:
            return web.json_response(error.body, status=status)
        self.counts.errors += 1
        with suppress(ConnectionError):
            if exchange.sent is not None and exchange.sent.response.is_stream:
                await response.write(b"\n\n" + event(error.body))
        if turn.request.transport is not None:
            # Close without the final chunk, or the client would accept the part as complete.
            turn.request.transport.close()
        return response


@dataclass(slots=True)
class _Turn:
    """A request in progress."""

    request: web.Request
    exchange: Exchange
    response: web.StreamResponse | None = None
    """Response; None until a part of it was sent."""


def _is_short(sent: Sent) -> bool:
    length = sent.response.headers.get("content-length", "")
    return (
        not sent.response.is_stream
        and length.isascii()
        and length.isdigit()
        and int(length) <= WHOLE
    )
