"""All that the workflows talk to, on this machine: a model, a search engine, a reader, a hub."""

import asyncio
import json
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

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


@dataclass
class Services:
    """What answers, and what it was asked."""

    model_url: str
    web: Standins
    hub: Hub
    _loop: asyncio.AbstractEventLoop = field(repr=False)

    @property
    def env(self) -> Mapping[str, str]:
        """What a person would have in `.env`."""
        return {
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
def services(latency_s: float = 0.0) -> Iterator[Services]:
    """They answer until the block ends, in a thread of their own; each model call takes so long."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    ready: asyncio.Future[tuple[int, Standins]] = loop.create_future()
    task = asyncio.run_coroutine_threadsafe(_serve(latency_s, ready), loop)
    try:
        got = asyncio.run_coroutine_threadsafe(asyncio.wait_for(ready, 20), loop)
        port, web = got.result(20)
        with hub() as datasets:
            yield Services(f"http://127.0.0.1:{port}/v1", web, datasets, loop)
    finally:
        task.cancel()
        asyncio.run_coroutine_threadsafe(_ended(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _serve(latency_s: float, ready: "asyncio.Future[tuple[int, Standins]]") -> None:
    async with standins() as web:
        await serve(
            0, world=WORLD, latency_s=latency_s, on_ready=lambda port: ready.set_result((port, web))
        )


async def _ended() -> None:
    """Whatever else ran here has ended."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)
