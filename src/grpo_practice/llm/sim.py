"""The simulated endpoint as a transport: the real client code talks to it in process."""

import asyncio
import json
from typing import Any

import httpx
from typing_extensions import override

from grpo_practice.sim import DEFAULT, MODEL, World, answer

Answered = tuple[int, dict[str, Any]]
"""An HTTP status and the JSON that goes with it."""


def respond(method: str, path: str, content: bytes, world: World = DEFAULT) -> Answered:
    """What an OpenAI-compatible server with this world behind it says to a request."""
    if method == "GET" and path.endswith("/models"):
        return 200, {"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0}]}
    if not path.endswith("/chat/completions"):
        return 404, _error(f"there is nothing at {path}")
    if method != "POST":
        return 405, _error(f"{path} takes POST, not {method}")
    try:
        return 200, answer(json.loads(content), world)
    except (ValueError, RecursionError) as e:
        return 400, _error(str(e))


def _error(message: str) -> dict[str, Any]:
    kind = "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}


class SimTransport(httpx.AsyncBaseTransport):
    """Answers every request from a world, without a socket."""

    def __init__(self, world: World = DEFAULT) -> None:
        self.world = world

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The reply, after other tasks had their turn."""
        content = await request.aread()
        await asyncio.sleep(0)  # a reply that never suspends would hide every concurrency bug
        status, told = respond(request.method, request.url.path, content, self.world)
        return httpx.Response(status, json=told, request=request)
