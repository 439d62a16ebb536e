"""The simulated endpoint as an HTTP server, so that any client can be pointed at it."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable

from aiohttp import web

from grpo_practice.llm.sim import respond, spelt
from grpo_practice.sim import DEFAULT, World, stage_of
from grpo_practice.text import LOOPBACK

MAX_BODY = 64 * 2**20
"""Bytes a request may have."""


async def serve(
    port: int,
    *,
    host: str = LOOPBACK,
    world: World = DEFAULT,
    latency_s: float = 0.0,
    on_ready: Callable[[int], None],
) -> None:
    """Serve the world under `http://host:port/v1` until this call is cancelled.

    `GET /stats` tells how many chat requests were answered, in all and by stage; replies do not
    depend on it.

    Args:
        port: Where to listen; 0 for any free port.
        host: Address to listen on; the default is reached from this machine only.
        world: What answers.
        latency_s: Seconds every chat request takes.
        on_ready: Called once with the port, when requests are being answered.

    Raises:
        OSError: The port cannot be listened on.
    """
    by_stage: Counter[str] = Counter()

    async def reply(request: web.Request) -> web.Response:
        content = await request.read()
        status, told = respond(request.method, request.path, content, world)
        if status == 200 and request.method == "POST":
            by_stage[stage_of(json.loads(content))] += 1
            await asyncio.sleep(latency_s)
        kind, raw = spelt(content, told)
        return web.Response(status=status, headers={"content-type": kind}, body=raw)

    async def stats(_: web.Request) -> web.Response:
        return web.json_response({"requests": by_stage.total(), "by_stage": dict(by_stage)})

    app = web.Application(client_max_size=MAX_BODY)
    app.router.add_get("/stats", stats)
    app.router.add_route("*", "/{path:.*}", reply)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        on_ready(runner.addresses[0][1])
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
