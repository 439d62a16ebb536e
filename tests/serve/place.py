"""An upstream that does what it is told, and an agent served in front of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from grpo_practice.app.serving import prepare, recording, serve
from grpo_practice.calls import Message
from grpo_practice.config.reading.env import Environment, read_environment
from grpo_practice.prompts.system import HEADING
from grpo_practice.serve.recorder import Recorder
from grpo_practice.serve.service import Counts
from grpo_practice.store import Store, recorded_runs
from grpo_practice.store.queries import runs
from grpo_practice.store.recorded_runs import Conversation, Traffic
from tests.contract.endpoint.actions import completion

BASE = "Solve the problem: {{braces}}, $x, ünïcode.\nPut the answer into \\boxed{}."
PROMPT = f"{BASE}\n\n{HEADING}\n\n[E1] Signs: check them.\n[E3] Units: keep them to the end."
KEY = "upstream-key-0123456789"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Upstream:
    """A real server on loopback; keeps the bodies and the headers of what it was sent."""

    handler: Handler | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        self.bodies.append(json.loads(raw))
        self.headers.append({k.lower(): v for k, v in request.headers.items()})
        if self.handler is not None:
            return await self.handler(request)
        return web.json_response(completion(f"reply {len(self.bodies)}"))

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Of the last request."""
        found: list[dict[str, Any]] = self.bodies[-1]["messages"]
        return found


@asynccontextmanager
async def upstream(handler: Handler | None = None) -> AsyncIterator[Upstream]:
    here = Upstream(handler)
    app = web.Application(client_max_size=2**27)
    app.router.add_post("/v1/chat/completions", here.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    here.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield here
    finally:
        await runner.cleanup()


def agent_file(folder: Path, url: str, **more: Any) -> Path:
    """An agent as `export-agent` writes one, asked at that URL."""
    provider = {"model": "m-1", "base_url": url, "api_key": KEY} | more.pop("provider", {})
    model = {"model_provider": provider, "model_settings": more.pop("settings", {})}
    instructions = more.pop("instructions", PROMPT)
    whole = {"model": model, "agent": {"name": "math_agent", "instructions": instructions}, **more}
    path = folder / "agent.yaml"
    path.write_text(json.dumps(whole), "utf-8")  # JSON is YAML
    return path


NOTHING: Environment = read_environment({})


@dataclass
class Served:
    url: str
    counts: Counts
    session: aiohttp.ClientSession
    notices: list[str]
    recorder: Recorder | None = None

    async def ask(self, *messages: dict[str, Any], **body: Any) -> dict[str, Any]:
        """The body of what comes back."""
        headers = body.pop("headers", {})
        asked = {"model": "any", "messages": list(messages), **body}
        async with self.session.post(
            f"{self.url}/chat/completions", json=asked, headers=headers
        ) as response:
            found: dict[str, Any] = await response.json()
            return found | {"status": response.status}


@asynccontextmanager
async def served(
    agent: Path, store: Store | None = None, run: str = "rec"
) -> AsyncIterator[Served]:
    """The agent answers for the block; with a store, what passes is recorded there as `run`."""
    prepared, notices = prepare(agent, NOTHING), list[str]()
    ready: asyncio.Future[tuple[int, Counts]] = asyncio.get_running_loop().create_future()
    with ExitStack() as stack:
        recorder = None
        if store is not None:
            what = recording(store, run, prepared, "serve", notices.append)
            recorder = stack.enter_context(what)
        work = serve(
            prepared,
            0,
            recorder=recorder,
            on_ready=lambda port, counts: ready.set_result((port, counts)),
            notice=notices.append,
        )
        task = asyncio.create_task(work)
        both: list[asyncio.Future[Any]] = [task, ready]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            await task
        port, counts = ready.result()
        url = f"http://127.0.0.1:{port}/v1"
        async with aiohttp.ClientSession() as session:
            yield Served(url, counts, session, notices, recorder)
        task.cancel()
        await asyncio.wait([task])


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def assistant(text: str, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": text, **more}


def branch(store: Store, run: str) -> int:
    head = store.read(runs.get, run).head_branch
    assert head is not None
    return head


def talks(store: Store, run: str = "rec") -> list[Conversation]:
    return store.read(lambda db: list(recorded_runs.conversations(db, branch(store, run))))


def traffic(store: Store, run: str = "rec") -> Traffic:
    return store.read(recorded_runs.traffic, branch(store, run))


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    return store.read(lambda db: [tuple(row) for row in db.execute(sql)])


async def ask(place: Served, *messages: Message, **body: Any) -> Message:
    """The reply; it is on disk."""
    told = await place.ask(*messages, **body)
    assert place.recorder is not None
    await place.recorder.drain()
    message: Message = told["choices"][0]["message"]
    return message


def files(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.is_file()]
