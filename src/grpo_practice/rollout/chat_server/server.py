"""The server side of both APIs: validates requests and encodes replies."""

import asyncio
import json
import logging
import re
import time
from collections.abc import (
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from ssl import SSLContext
from types import MappingProxyType
from typing import Any

from aiohttp import web

from grpo_practice.core.calls import Message, Reply, Usage
from grpo_practice.core.hashing import clean_json
from grpo_practice.core.redact import redactor
from grpo_practice.core.text import LOOPBACK, is_loopback
from grpo_practice.llm.chat_completions import chunks
from grpo_practice.llm.http_response import finite_number
from grpo_practice.llm.served_responses import chat_body, events
from grpo_practice.rollout.chat_server import unfinished

MAX_BODY = 64 * 2**20
"""Maximum size of a request in bytes."""
PIECE = 256
"""Length of a chunk in a streamed reply, in characters."""
DONE = b"data: [DONE]\n\n"
SHUTDOWN_S = 1.0
"""Maximum seconds to wait for clients that are still connected when a server ends."""

_SPOKEN = "only POST chat/completions, POST responses and GET models are supported here"


class RequestError(Exception):
    """An error response in the form of the OpenAI API.

    Secrets in the message are redacted; `kind` is sent as `type`, and `param` names the invalid
    body key.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(redactor.text(message))
        self.status, self.kind, self.param, self.code = status, kind, param, code

    @property
    def body(self) -> dict[str, Any]:
        """`{"error": {message, type, param, code}}`."""
        error = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error}

    def response(self) -> web.Response:
        """Return the HTTP response, which tells the client library not to retry."""
        return web.json_response(self.body, status=self.status, headers={"x-should-retry": "false"})


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A chat completion requested by a program."""

    model: str
    """Name of the model; '' if the body does not name one."""
    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]]
    settings: Mapping[str, Any]
    """Other keys in the body, without null values."""
    stream: bool = False
    stream_usage: bool = False
    """Whether the stream ends with a chunk that contains the usage."""


def read_request(raw: bytes) -> ChatRequest:
    """Parse the body of a chat completion request; see `read_body` and `chat_request`."""
    return chat_request(read_body(raw))


def chat_request(given: Mapping[str, Any]) -> ChatRequest:
    """Convert the body of a chat completion request; raise RequestError for an invalid key."""
    body = dict(given)
    stream, options = body.pop("stream", None), body.pop("stream_options", None) or {}
    if not isinstance(stream, bool | None):
        raise RequestError("'stream' must be true or false", param="stream")
    if not isinstance(options, dict):
        raise RequestError("'stream_options' must be an object", param="stream_options")
    model = body.pop("model", None) or ""
    if not isinstance(model, str):
        raise RequestError("'model' must be text", param="model")
    messages = _objects(body, "messages")
    if not messages:
        raise RequestError("'messages' must not be empty", param="messages")
    for n, message in enumerate(messages):
        if not isinstance(message.get("role"), str):
            where = f"messages[{n}].role"
            raise RequestError(f"{where!r} must be text", param=where)
    tools = _objects(body, "tools")
    settings = {key: value for key, value in body.items() if value is not None}
    usage = options.get("include_usage") is True
    return ChatRequest(model, messages, tools, settings, bool(stream), bool(stream) and usage)


def responses_body(
    given: Mapping[str, Any], known: Mapping[str, Sequence[Message]] = MappingProxyType({})
) -> dict[str, Any]:
    """Translate the body of a Responses request into that of a chat completion request.

    `known` has the conversation up to each response that a request can continue.

    Raises:
        RequestError: A key is invalid, or the response to continue is unknown.
    """
    previous = given.get("previous_response_id")
    if previous is not None and (not isinstance(previous, str) or previous not in known):
        raise RequestError(
            f"there is no response {previous!r} here: send the whole conversation as 'input'",
            status=404,
            param="previous_response_id",
            code="previous_response_not_found",
        )
    try:
        return chat_body(given, known.get(previous or "", ()))
    except ValueError as e:
        raise RequestError(str(e)) from None


def one_reply(request: ChatRequest) -> ChatRequest:
    """Return the request without `n` and `logprobs` if it asks for one plain reply.

    Raises:
        RequestError: The request asks for several choices, or for log-probabilities, which are not
            stored.
    """
    n = request.settings.get("n", 1)
    if n != 1 or isinstance(n, bool):
        raise RequestError("'n' must be 1: send the request again for another reply", param="n")
    if request.settings.get("logprobs"):
        raise RequestError("'logprobs' are not supported: they are not stored", param="logprobs")
    settings = {k: v for k, v in request.settings.items() if k not in ("n", "logprobs")}
    return replace(request, settings=settings)


def read_body(raw: bytes) -> dict[str, Any]:
    """Return a request's JSON without lone surrogates; raise RequestError if it is invalid."""
    try:
        # Python reads 1e999 as inf, which has no canonical JSON and so no hash.
        body = json.loads(raw.decode(), parse_constant=finite_number, parse_float=finite_number)
        # Valid UTF-8 contains a lone surrogate only as an escape; otherwise skip the traversal.
        if b"\\u" in raw:
            body = clean_json(body)
    except (ValueError, RecursionError) as e:
        raise RequestError(f"the body is not JSON: {e}") from None
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object")
    return body


def _objects(body: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = body.pop(key, None)
    if value is None:
        value = []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise RequestError(f"{key!r} must be a list of objects", param=key)
    return value


def completion(request: ChatRequest, reply: Reply) -> dict[str, Any]:
    """Return the reply as the body of a chat completion."""
    choice = {"index": 0, "message": dict(reply.message), "finish_reason": _finish(reply)}
    choice["logprobs"] = None
    return _envelope(request, reply, "chat.completion") | {
        "choices": [choice],
        "usage": usage_json(reply.usage),
    }


def pieces(request: ChatRequest, reply: Reply) -> Iterator[bytes]:
    """Yield the reply as the events of a stream, ending with `[DONE]`."""
    envelope = _envelope(request, reply, "chat.completion.chunk")
    if request.stream_usage:
        envelope["usage"] = None
    yield from map(event, chunks(envelope, reply.message, _finish(reply), PIECE))
    if request.stream_usage:
        yield event(envelope | {"choices": [], "usage": usage_json(reply.usage)})
    yield DONE


def event(value: Mapping[str, Any]) -> bytes:
    """Return a JSON value as one event of a stream."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def usage_json(usage: Usage) -> dict[str, Any] | None:
    """Return the token counts in the form that the API uses; None if they are unknown."""
    if usage.tokens_in is None and usage.tokens_out is None:
        return None
    tokens_in, tokens_out = usage.tokens_in or 0, usage.tokens_out or 0
    counts: dict[str, Any] = {
        "prompt_tokens": tokens_in,
        "completion_tokens": tokens_out,
        "total_tokens": tokens_in + tokens_out,
    }
    if usage.tokens_cached is not None:
        counts["prompt_tokens_details"] = {"cached_tokens": usage.tokens_cached}
    if usage.tokens_reasoning is not None:
        counts["completion_tokens_details"] = {"reasoning_tokens": usage.tokens_reasoning}
    return counts


def models(*names: str) -> dict[str, Any]:
    """Return the body of `GET models`."""
    kept = dict.fromkeys(name for name in names if name)
    rows = [{"id": n, "object": "model", "created": 0, "owned_by": "grpo-practice"} for n in kept]
    return {"object": "list", "data": rows}


def _envelope(request: ChatRequest, reply: Reply, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{reply.call_id}",
        "object": kind,
        "created": int(time.time()),
        "model": reply.answered_by.rpartition("@")[0] or request.model,
    }


def _finish(reply: Reply) -> str:
    return reply.finish or ("tool_calls" if reply.message.get("tool_calls") else "stop")


async def respond(
    http_request: web.Request, request: ChatRequest, reply: Reply
) -> web.StreamResponse:
    """Send the reply as a chat completion, as one body or as a stream."""
    if not request.stream:
        return web.json_response(completion(request, reply))
    return await streamed(http_request, pieces(request, reply))


async def respond_with(
    http_request: web.Request, body: dict[str, Any], *, stream: bool
) -> web.StreamResponse:
    """Send a body of the Responses API, as it is or as a stream."""
    if not stream:
        return web.json_response(body)
    named = ((f"event: {e['type']}\n".encode(), event(e)) for e in events(body, PIECE))
    return await streamed(http_request, (name + data for name, data in named))


async def streamed(http_request: web.Request, parts: Iterable[bytes]) -> web.StreamResponse:
    """Send the parts as a stream of events."""
    response = web.StreamResponse(headers=STREAM)
    await response.prepare(http_request)
    for part in parts:
        await response.write(part)
    await response.write_eof()
    return response


STREAM = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-store"}


def application(
    *routes: web.AbstractRouteDef,
    unexpected: Callable[[Exception], None] = lambda _: None,
    names: Collection[str] = (),
) -> web.Application:
    """Return an application with these routes; errors are returned as JSON.

    A caller is accepted only from this machine, or if it addresses the server by one of `names`.
    Handlers may raise `RequestError`; any other error is passed to `unexpected`, and the program
    receives a 500.
    """

    @web.middleware
    async def door(request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            check_caller(request.headers, names)
            response: web.StreamResponse = await handler(request)
            return response
        except RequestError as e:
            return e.response()
        except web.HTTPException as e:
            return _request_error(e, request).response()
        except ConnectionError:
            raise  # the client has disconnected
        except Exception as e:  # noqa: BLE001 - a program must not wait for ever
            unexpected(e)
            what = f"{type(e).__name__} while the request was answered"
            return RequestError(what, status=500, kind="server_error").response()

    app = web.Application(client_max_size=MAX_BODY, middlewares=[door])
    app.add_routes(routes)
    return app


def check_caller(headers: Mapping[str, str], names: Collection[str] = ()) -> None:
    """Raise RequestError unless the request addresses this server by one of its names.

    A page in a browser can reach any local port, even under the page's own domain name if that name
    resolves to this machine; the `Host` and `Origin` headers reveal it.
    """
    host, origin = headers.get("Host", ""), headers.get("Origin")
    called = _HOST.fullmatch(host)
    name = (called[1] or called[2]).lower() if called else None
    if name is None or not (is_loopback(name) or name in names):
        raise RequestError("the Host header does not name this server", status=403)
    foreign = origin is not None and origin.lower().partition("://")[2] != host.lower()
    if foreign or headers.get("Sec-Fetch-Site") == "cross-site":
        raise RequestError("requests from pages of other origins are not allowed", status=403)


# Not urlsplit, which parses the host `::1` out of `[::1].evil.example`.
_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]/?#@:\s]+))(?::[0-9]{1,5})?")


def _request_error(error: web.HTTPException, request: web.Request) -> RequestError:
    """Translate the framework's error into the terms of the API."""
    match error.status:
        case 404 if "/v1/" not in request.path:
            text = "there is nothing here: base_url ends in /v1"
        case 404:
            text = f"there is nothing at {request.path.rpartition('/v1')[2]}: {_SPOKEN}"
        case 405:
            text = f"{request.method} is not allowed there: {_SPOKEN}"
        case 413:
            text = f"the request is larger than {MAX_BODY // 2**20} MiB"
        case _:
            text = error.reason
    return RequestError(text, status=error.status)


_SILENT = logging.getLogger(f"{__name__}.silent")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


@asynccontextmanager
async def listening(
    app: web.Application, port: int = 0, host: str = LOOPBACK, tls: SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve the application while the block runs, and yield the port.

    Raises:
        OSError: The port is taken.
    """
    runner = web.AppRunner(
        app,
        access_log=None,
        logger=_SILENT,  # aiohttp would print pieces of malformed requests
        shutdown_timeout=SHUTDOWN_S,
        keepalive_timeout=unfinished.IDLE_S,
        # Off by default: the request of a disconnected client would continue and be billed.
        handler_cancellation=True,
    )
    # Append it last, so that unauthorised callers are rejected before anything is read.
    app.middlewares.append(unfinished.whole_requests)
    await runner.setup()
    http, owing = runner.server, unfinished.Unfinished()
    assert http is not None, "the runner has been set up"
    listener: asyncio.Server | None = None
    try:
        # Not a TCPSite, because connections are wrapped. A run may begin a thousand rollouts
        # together, while asyncio's default backlog is 100.
        listener = await asyncio.get_running_loop().create_server(
            lambda: unfinished.Connection(http(), owing), host, port, backlog=1024, ssl=tls
        )
        yield int(listener.sockets[0].getsockname()[1])
    finally:
        if listener is not None:
            listener.close()
        owing.stop()
        await runner.cleanup()
