"""All that the workflows talk to, on this machine: a model, a search engine, a reader, a hub."""

import asyncio
import json
import threading
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

from aiohttp import ClientSession, web

from grpo_practice.rollout.chat_server.sim_server import serve
from grpo_practice.sim import World
from grpo_practice.sim.world import Difficulty, Rule, Teaching
from tests.contract.standins import JINA_KEY, SERPER_KEY, Standins, standins
from tests.data.hub.server import Hub, hub

WORLD = World(
    difficulty=Difficulty(4.0, 5.0),
    rule=Rule(size=(2.0, 2.5)),
    teacher=Teaching(top=1.0, miss=0.0),
)
"""Middling questions and a good teacher: what is learnt shows with few questions."""


REFUSAL = (
    "Function tools with reasoning_effort are not supported for student-1 in /v1/chat/completions."
    " To use function tools, use /v1/responses or set reasoning_effort to 'none'."
)
"""Message of OpenAI's reasoning models since GPT-5.4."""


@dataclass
class Services:
    """What answers, and what it was asked."""

    model_url: str
    web: Standins
    hub: Hub
    api: str
    """The API of the model, as the environment names it."""
    _loop: asyncio.AbstractEventLoop = field(repr=False)

    @property
    def env(self) -> Mapping[str, str]:
        """What a person would have in `.env`."""
        return {
            "UTU_LLM_TYPE": self.api,
            "UTU_LLM_MODEL": "student-1",
            "UTU_LLM_BASE_URL": self.model_url,
            "SERPER_API_KEY": SERPER_KEY,
            "SERPER_URL": self.web.serper_url,
            "JINA_API_KEY": JINA_KEY,
            "JINA_READER_URL": self.web.jina_reader_url,
        }

    def asked(self) -> dict[str, int]:
        """Requests so far: to the model by stage, and to the services of the web."""
        with urllib.request.urlopen(self.model_url.removesuffix("v1") + "stats") as reply:
            stages = json.loads(reply.read())["by_stage"]
        web = {name: len(self.web.asked(name)) for name in ("serper", "jina-reader")}
        return {**stages, **{name: n for name, n in web.items() if n}}


@contextmanager
def services(latency_s: float = 0.0, api: str = "chat.completions") -> Iterator[Services]:
    """They answer until the block ends, in a thread of their own; each model call takes so long.

    With any other API than chat completions, the model refuses tools there, as OpenAI's do.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    ready: asyncio.Future[tuple[int, Standins]] = loop.create_future()
    task = asyncio.run_coroutine_threadsafe(_serve(latency_s, api, ready), loop)
    try:
        got = asyncio.run_coroutine_threadsafe(asyncio.wait_for(ready, 20), loop)
        port, web = got.result(20)
        with hub() as datasets:
            yield Services(f"http://127.0.0.1:{port}/v1", web, datasets, api, loop)
    finally:
        task.cancel()
        asyncio.run_coroutine_threadsafe(_ended(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _serve(latency_s: float, api: str, ready: "asyncio.Future[tuple[int, Standins]]") -> None:
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with standins() as pages, asyncio.TaskGroup() as group:
        group.create_task(serve(0, world=WORLD, latency_s=latency_s, on_ready=port.set_result))
        async with refusing_tools(await port, chat=api == "chat.completions") as reached:
            ready.set_result((reached, pages))
            await asyncio.Event().wait()


@asynccontextmanager
async def refusing_tools(behind: int, *, chat: bool) -> AsyncIterator[int]:
    """Forward requests to a port, unless they ask for tools on chat completions; yield a port.

    With `chat`, nothing is refused, and the port is the one behind.
    """
    if chat:
        yield behind
        return

    async def forward(request: web.Request) -> web.Response:
        content = await request.read()
        if request.path.endswith("/chat/completions") and json.loads(content).get("tools"):
            told = {"message": REFUSAL, "type": "invalid_request_error", "code": None}
            return web.json_response({"error": {**told, "param": "reasoning_effort"}}, status=400)
        url = f"http://127.0.0.1:{behind}{request.path}"
        async with client.request(request.method, url, data=content) as reply:
            return web.Response(
                status=reply.status, body=await reply.read(), content_type=reply.content_type
            )

    app = web.Application(client_max_size=2**26)
    app.router.add_route("*", "/{path:.*}", forward)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    async with ClientSession() as client:
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield int(runner.addresses[0][1])
        finally:
            await runner.cleanup()


async def _ended() -> None:
    """Whatever else ran here has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)
