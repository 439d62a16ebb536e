"""An endpoint that answers as a test says, and an agent that is served in front of it."""

import asyncio
import json
import sqlite3
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from grpo_practice import Workspace
from tests.contract.endpoint.actions import completion
from tests.contract.project import running
from tests.processes import HANG_S

HEADING = """\
## Experience from practice

Learnt from earlier attempts at tasks like this one. Follow each entry where it applies."""
BASE = "Solve the problem: {{braces}}, $x, ünïcode.\nPut the answer into \\boxed{}."
PROMPT = f"{BASE}\n\n{HEADING}\n\n[E1] Signs: check them.\n[E3] Units: keep them to the end."
KEY = "upstream-key-0123456789"
SIM: dict[str, Any] = {"model": "sim", "base_url": None, "api_key": None}

Message = dict[str, Any]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def assistant(text: str, **more: Any) -> Message:
    return {"role": "assistant", "content": text, **more}


Q = user("1 + 1?")


def piece(text: str) -> bytes:
    """Return an event of a streamed answer."""
    return event({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]})


def event(data: dict[str, Any]) -> bytes:
    return f"data: {json.dumps(data)}\n\n".encode()


STOP = event({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
DONE = b"data: [DONE]\n\n"


async def stream(request: web.Request) -> web.StreamResponse:
    """Begin a streamed answer."""
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    return response


@dataclass
class Upstream:
    """A server on loopback that keeps the bodies and the headers of what it was sent."""

    handler: Handler | None = None
    """Function that answers; None: `reply N`."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(json.loads(await request.read()))
        self.headers.append({k.lower(): v for k, v in request.headers.items()})
        if self.handler is not None:
            return await self.handler(request)
        return web.json_response(completion(f"reply {len(self.bodies)}"))

    @property
    def messages(self) -> list[Message]:
        """Messages of the last request."""
        found: list[Message] = self.bodies[-1]["messages"]
        return found

    @property
    def settings(self) -> dict[str, Any]:
        """Last request without its messages."""
        return {k: v for k, v in self.bodies[-1].items() if k != "messages"}


@asynccontextmanager
async def upstream(handler: Handler | None = None) -> AsyncIterator[Upstream]:
    here = Upstream(handler)
    app = web.Application(client_max_size=2**27)
    for path in ("chat/completions", "responses"):
        app.router.add_post(f"/v1/{path}", here.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    here.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield here
    finally:
        await runner.cleanup()


def agent_file(folder: Path, url: str, **more: Any) -> Path:
    """Write an agent's file as `export-agent` does, whose model is asked at that URL."""
    provider = {"model": "m-1", "base_url": url, "api_key": KEY} | more.pop("provider", {})
    model = {"model_provider": provider, "model_settings": more.pop("settings", {})}
    instructions = more.pop("instructions", PROMPT)
    whole = {"model": model, "agent": {"name": "math_agent", "instructions": instructions}, **more}
    path = folder / "agent.yaml"
    path.write_text(json.dumps(whole), "utf-8")  # JSON is YAML
    return path


@dataclass
class Serving:
    """An agent that is served."""

    report: Any
    session: aiohttp.ClientSession
    notices: list[str]

    @property
    def url(self) -> str:
        url: str = self.report.url
        return url

    @property
    def counted(self) -> tuple[int, int, int]:
        """Number of requests, of errors, and of those that a client left."""
        counts = self.report.counts
        return counts.requests, counts.errors, counts.given_up

    def post(self, body: Any, path: str = "chat/completions", **options: Any) -> Any:
        """Return a request that is made by `async with`."""
        return self.session.post(f"{self.url}/{path}", json=body, **options)

    async def ask(self, *messages: Message, **body: Any) -> dict[str, Any]:
        """Return the body of the answer, with its status."""
        headers = body.pop("headers", {})
        asked = {"model": "any", "messages": list(messages), **body}
        async with self.post(asked, headers=headers) as response:
            found: dict[str, Any] = await response.json()
            return found | {"status": response.status}

    async def reply(self, *messages: Message, **body: Any) -> Message:
        """Return the message of the answer."""
        found: Message = (await self.ask(*messages, **body))["choices"][0]["message"]
        return found

    async def streamed(self, *messages: Message, **body: Any) -> bytes:
        """Return what came of a streamed answer, whole or not."""
        got = bytearray()
        async with self.post({"messages": list(messages), "stream": True, **body}) as came:
            try:
                async for chunk in came.content.iter_any():
                    got += chunk
            except aiohttp.ClientPayloadError:
                return bytes(got) + b"(broken)"
        return bytes(got)


@asynccontextmanager
async def served(agent: Path, run: str | None = None) -> AsyncIterator[Serving]:
    """Serve the agent for the block; `run` keeps what passes, in `rec.db` beside its file."""
    notices = list[str]()
    begin = partial(
        Workspace(agent.with_name("rec.db")).serve_async,
        agent,
        port=0,
        record=run,
        env={},
        on_event=lambda event: notices.append(event.text),  # type: ignore[union-attr]
    )
    async with (
        running(lambda ready: begin(on_ready=ready)) as served_at,
        aiohttp.ClientSession() as session,
    ):
        yield Serving(served_at, session, notices)


@asynccontextmanager
async def both(
    folder: Path, handler: Handler | None = None, run: str | None = None, **agent: Any
) -> AsyncIterator[tuple[Upstream, Serving]]:
    """Give an upstream and an agent that is served in front of it."""
    async with upstream(handler) as up, served(agent_file(folder, up.url, **agent), run) as place:
        yield up, place


@dataclass(frozen=True)
class Recorded:
    """The database that an agent in this folder was recorded in."""

    folder: Path

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.folder / "rec.db")) as db:
            return db.execute(sql).fetchall()

    async def holds(self, calls: int) -> None:
        """Return once so many answers are on disk, which are written after they have passed."""
        async with asyncio.timeout(HANG_S):
            while self.rows("SELECT count(*) FROM calls") < [(calls,)]:  # noqa: ASYNC110 - of a thread
                await asyncio.sleep(0.002)

    @property
    def bytes(self) -> bytes:
        """All of the database."""
        return b"".join(path.read_bytes() for path in self.folder.glob("rec.db*"))

    def passed(self, run: str = "rec") -> tuple[int, int, int]:
        """Number of answered requests, of conversations, and of failures."""
        ran = Workspace(self.folder / "rec.db").run(run).document()["traffic"]
        return ran["requests"], ran["conversations"], ran["failed"]

    def texts(self, column: str) -> list[Any]:
        """Return the requests or the replies, as docs/database.md says that they are stored."""
        found = self.rows(f"SELECT {column}, codec FROM call_bodies ORDER BY call_id")
        return [json.loads(zlib.decompress(raw) if codec else raw) for raw, codec in found]

    def talks(self) -> list[list[Message]]:
        """Return the conversations as `data upload --from-run` stores them."""
        datasets = Workspace(self.folder / "rec.db").datasets
        name = f"asked{len(datasets.list().document()['datasets'])}"
        datasets.upload_run(name, "rec")
        return [json.loads(line)["meta"]["conversation"] for line in datasets.lines(name)]
