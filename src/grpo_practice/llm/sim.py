"""The simulated endpoint as a transport, so that the real client code uses it in process."""

import asyncio
import json
from typing import Any

import httpx
from typing_extensions import override

from grpo_practice import sim
from grpo_practice.llm import chat_completions, responses, served_responses
from grpo_practice.llm.chat_completions import chunks
from grpo_practice.sim import DEFAULT, MODEL, World

StatusAndBody = tuple[int, dict[str, Any]]
"""HTTP status and JSON body of a response."""
PIECE = 32
"""Length of a streamed piece, in characters."""
JSON, STREAM = "application/json; charset=utf-8", "text/event-stream; charset=utf-8"


def respond(
    method: str, path: str, content: bytes, world: World = DEFAULT, *, served: int = 0
) -> StatusAndBody:
    """Answer a request as an OpenAI-compatible server backed by this world.

    `served`: the number of chat requests answered before.
    """
    if method == "GET" and path.endswith("/models"):
        return 200, {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0}]}
    if not path.endswith((chat_completions.PATH, responses.PATH)):
        return 404, _error(f"there is nothing at {path}")
    if method != "POST":
        return 405, _error(f"{path} takes POST, not {method}")
    try:
        body = chat_of(path, content)
        if sim.fails(body, world, served):
            return 500, _error("the simulated world makes this request fail", "server_error")
        answer = sim.answer(body, world, served)
        if path.endswith(responses.PATH):
            answer = served_responses.response(answer, json.loads(content), f"resp_{served}")
        return 200, answer
    except (ValueError, RecursionError) as e:
        return 400, _error(str(e))


def chat_of(path: str, content: bytes) -> Any:
    """Return the body of a request as that of a chat completion; raise ValueError if invalid."""
    body = json.loads(content)
    is_chat = not (isinstance(body, dict) and path.endswith(responses.PATH))
    return body if is_chat else served_responses.chat_body(body)


def _error(message: str, kind: str = "invalid_request_error") -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


def encode(content: bytes, answer: dict[str, Any]) -> tuple[str, bytes]:
    """Return content type and bytes of a response, streamed if the request asks for a stream."""
    is_reply = "choices" in answer or "output" in answer
    if not is_reply or not (body := json.loads(content)).get("stream"):
        return JSON, json.dumps(answer).encode()
    if "output" in answer:
        events = served_responses.events(answer, PIECE)
        return STREAM, "".join(f"data: {json.dumps(event)}\n\n" for event in events).encode()
    options = body.get("stream_options")
    usage = isinstance(options, dict) and options.get("include_usage") is True
    envelope = {k: answer[k] for k in ("id", "created", "model")} | {
        "object": "chat.completion.chunk"
    }
    choice = answer["choices"][0]
    told = [*chunks(envelope, choice["message"], choice["finish_reason"], PIECE)]
    told += [envelope | {"choices": [], "usage": answer["usage"]}] if usage else []
    lines = (f"data: {json.dumps(chunk)}\n\n" for chunk in told)
    return STREAM, "".join([*lines, "data: [DONE]\n\n"]).encode()


class SimTransport(httpx.AsyncBaseTransport):
    """A transport that answers every request from a world, without a socket."""

    def __init__(self, world: World = DEFAULT) -> None:
        self.world = world
        self._served = 0

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Answer after other tasks have had a turn."""
        content = await request.aread()
        # Suspend once: a reply that never suspends would hide every concurrency bug.
        await asyncio.sleep(0)
        method, path = request.method, request.url.path
        status, answer = respond(method, path, content, self.world, served=self._served)
        self._served += status == 200 and method == "POST"
        kind, raw = encode(content, answer)
        return httpx.Response(status, headers={"content-type": kind}, content=raw, request=request)
