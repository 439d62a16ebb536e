"""The endpoint that a client sees: every request goes on under the agent's prompt."""

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from aiohttp import web

from grpo_practice.chat_server.server import RequestError, application, event, models, read_request
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.redact import Redactor
from grpo_practice.serve.exchange import Exchange
from grpo_practice.serve.passing import Hiding, headers, own_secrets
from grpo_practice.serve.served_agent import ServedAgent
from grpo_practice.serve.upstream import BrokenError, Sent, Upstream

WHOLE = 256 * 1024
"""Bytes up to which an answer whose length is known is passed on in one piece."""


@dataclass(slots=True)
class Counts:
    """What has passed so far."""

    requests: int = 0
    errors: int = 0
    """Answered with an error, or not to the end."""
    given_up: int = 0
    """Left by the client before they were answered."""


@dataclass(slots=True)
class Service:
    """An agent behind an OpenAI-compatible endpoint."""

    agent: ServedAgent
    endpoint: Endpoint
    upstream: Upstream
    record: Callable[[Exchange], None] | None = None
    """Told of every exchange once it is over."""
    counts: Counts = field(default_factory=Counts)
    secrets: Redactor = field(init=False)
    """What of our own must not go back to a client."""
    _at_work: set["asyncio.Task[Any]"] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.secrets = own_secrets(self.endpoint)

    def application(self, unexpected: Callable[[Exception], None]) -> web.Application:
        """It as an application; `unexpected` is told of errors of our own."""
        return application(
            web.post("/v1/chat/completions", self._chat),
            web.get("/v1/models", self._models),
            unexpected=unexpected,
        )

    def stop(self) -> None:
        """Whatever is under way ends now."""
        for task in self._at_work:
            task.cancel()

    async def _models(self, _: web.Request) -> web.Response:
        return web.json_response(models(self.agent.name, self.agent.model))

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        """What the agent's model says to a request."""
        self.counts.requests += 1
        task = asyncio.current_task()
        assert task is not None
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)
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
        raw = await request.read()
        read_request(raw)
        body = json.loads(raw)
        body["messages"] = self.agent.messages(body["messages"])
        turn = _Turn(request, Exchange(monotonic(), kept=self.record is not None))
        exchange = turn.exchange
        try:
            async with asyncio.timeout(self.endpoint.timeout_s):
                return await self._passed_on(turn, body)
        except TimeoutError:
            exchange.fail(f"no whole answer within {self.endpoint.timeout_s:g} s", "deadline")
            return await self._lost(turn, 504)
        except BrokenError as e:
            exchange.fail(str(e), e.what.kind)
            return await self._lost(turn, 502)
        except (asyncio.CancelledError, ConnectionError) as e:
            exchange.fail("left before it was answered", "CancelledError")
            raise asyncio.CancelledError from e
        except Exception as e:
            exchange.fail(f"{type(e).__name__}: {e}", "internal")
            raise
        finally:
            exchange.ended = monotonic()
            if self.record is not None:
                self.record(exchange)

    async def _passed_on(self, turn: "_Turn", body: dict[str, Any]) -> web.StreamResponse:
        exchange = turn.exchange
        async with self.upstream.ask(body) as sent:
            exchange.sent = sent
            status, kept = sent.came.status, headers(sent.came.headers, self.secrets)
            hiding = Hiding(self.secrets)
            if _is_short(sent):
                raw = await sent.whole()
                exchange.take(raw)
                return web.Response(status=status, headers=kept, body=hiding.hidden(raw))
            turn.response = response = web.StreamResponse(status=status, headers=kept)
            await response.prepare(turn.request)
            async with aclosing(sent.chunks()) as chunks:
                async for chunk in chunks:
                    exchange.take(chunk)
                    if passed := hiding.passed(chunk):
                        await response.write(passed)
            if rest := hiding.rest():
                await response.write(rest)
            await response.write_eof()
            return response

    async def _lost(self, turn: "_Turn", status: int) -> web.StreamResponse:
        """The client learns that there is no answer, or not the whole of one."""
        exchange, response = turn.exchange, turn.response
        code = {502: "upstream_unreachable", 504: "upstream_timeout"}[status]
        told = RequestError(exchange.failed, status=status, kind="upstream_error", code=code)
        if response is None:
            return web.json_response(told.body, status=status)
        self.counts.errors += 1
        with suppress(ConnectionError):
            if exchange.sent is not None and exchange.sent.came.is_stream:
                await response.write(b"\n\n" + event(told.body))
        if turn.request.transport is not None:
            turn.request.transport.close()  # without the end, so that nobody takes it for whole
        return response


@dataclass(slots=True)
class _Turn:
    """One request on its way."""

    request: web.Request
    exchange: Exchange
    response: web.StreamResponse | None = None
    """Once a part of it is on its way back."""


def _is_short(sent: Sent) -> bool:
    length = sent.came.headers.get("content-length", "")
    return (
        not sent.came.is_stream and length.isascii() and length.isdigit() and int(length) <= WHOLE
    )
