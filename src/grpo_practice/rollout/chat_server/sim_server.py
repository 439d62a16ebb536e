"""The simulated endpoint as an HTTP server that any client can use."""

import asyncio
from asyncio import sleep
from collections import Counter
from collections.abc import Callable

from aiohttp import web

from grpo_practice.llm.sim import chat_of, encode, respond
from grpo_practice.rollout.chat_server import server
from grpo_practice.sim import DEFAULT, World, stage_of


async def serve(
    port: int, *, world: World = DEFAULT, latency_s: float = 0.0, on_ready: Callable[[int], None]
) -> None:
    """Serve the world under `http://127.0.0.1:port/v1` until this call is cancelled.

    `GET /stats` returns the number of answered chat requests, in total and by stage.

    Port 0 selects any free port. `on_ready` is called once with the port. Each chat request takes
    `latency_s`.

    Raises:
        OSError: The port is not available.
    """
    by_stage: Counter[str] = Counter()

    async def reply(request: web.Request) -> web.Response:
        content = await request.read()
        served = by_stage.total()
        status, body = respond(request.method, request.path, content, world, served=served)
        if status == 200 and request.method == "POST":
            by_stage[stage_of(chat_of(request.path, content))] += 1
            await sleep(latency_s)
        kind, raw = encode(content, body)
        return web.Response(status=status, headers={"content-type": kind}, body=raw)

    async def stats(_: web.Request) -> web.Response:
        return web.json_response({"requests": by_stage.total(), "by_stage": dict(by_stage)})

    app = web.Application(client_max_size=server.MAX_BODY)
    app.router.add_get("/stats", stats)
    app.router.add_route("*", "/{path:.*}", reply)
    async with server.listening(app, port) as bound:
        on_ready(bound)
        await asyncio.Event().wait()
