"""An endpoint that misbehaves on purpose, over raw sockets. It counts what it was asked.

In process (the actions are in `tests.contract.endpoint.actions`):

    async with FaultServer(lambda asked: status(503) if asked.n < 3 else ok("24")) as server:
        ...                      # server.url is the base_url; server.asked, server.stats()

A script is any function from `Asked` (n from 1, parsed body, headers, stage, connection) to an
`Action`. Whole answers:

    ok(text or message, finish=, usage=, model=, headers=)   a chat completion
    simulated()                     what the simulated endpoint says to this request
    status(code, body, headers=)    any answer; the body is JSON, text or bytes
    error(code, message, **fields)  {"error": {"message": …, **fields}} with that status
    html(text)                      200 with a page
    sse(*chunks, done=, pieces=)    server-sent events; `pieces` cuts the bytes anywhere
    changed(action, change)         that completion with another message
    followed(action, second, after_s=)   that answer, and another one behind it

Broken ones (most take a whole answer and spoil it):

    cut(action, after=)             the head and so many bytes of the body, then the end
    reset(action, after=)           the same, then RST
    wrong_length(action, by=)       its Content-Length is off by so many bytes
    hang_up()                       closes instead of answering
    stall(action, after=)           nothing more, until the client goes; stall() says nothing at all
    drip(piece, interval_s=, times=, then=, headers=)   a head, and that piece again and again
    late(seconds, action)           answers after so many seconds
    raw(data)                       these bytes and the end: HTTP that is none, wrong chunking, …

`in_turn(a, b, c)` is the script that gives these, and the last one for ever; `always(a)` one.
What happens before any request is read is said by `greet`, a function of the connection's number:
None to serve it, bytes to send and then close it (b"" closes in the handshake), or RESET. `tls` is
a PEM file with key and certificate.

As a process of its own, which ends with the one that started it:

    python -m tests.contract.endpoint.server --script NAME [--port 0] [--seed 0] [--latency-s 0.0]

prints its port. NAME is one of SCRIPTS (scripts.py) or `package.module:function`; the function is
called with the seed and gives the script. `GET /stats` tells the counts, `GET /asked` one row for
each request.
`with FaultProcess(NAME) as server:` starts one (server.url, server.stats(), server.rows()).
"""

import argparse
import asyncio
import contextlib
import importlib
import json
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from tests.contract.endpoint.actions import RESET, Asked, Greet, Script, Wire, abort, late, status
from tests.contract.endpoint.scripts import SCRIPTS

ROOT = Path(__file__).parents[3]


@dataclass
class FaultServer:
    """Serves while the block runs, on a free port of this machine unless told one."""

    script: Script
    greet: Greet = lambda _: None
    tls: Path | None = None
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    at_once: int = 0
    most_at_once: int = 0
    """The most requests that were being answered at one time."""
    _stages: Counter[str] = field(default_factory=Counter)
    _answers: Counter[str] = field(default_factory=Counter)
    _finished: Counter[str] = field(default_factory=Counter)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _server: asyncio.Server | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}/v1"

    async def __aenter__(self) -> Self:
        context = None
        if self.tls:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(self.tls)
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", self.port, ssl=context, limit=2**20, backlog=1024
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def was_asked(self, times: int) -> None:
        """Return once it has been asked so often."""
        while len(self.asked) < times:
            self._changed.clear()
            await self._changed.wait()

    def stats(self) -> dict[str, Any]:
        return {
            "requests": len(self.asked),
            "by_stage": dict(self._stages),
            "by_answer": dict(self._answers),
            "finished": dict(self._finished),
            "connections": self.connections,
            "at_once": self.at_once,
            "most_at_once": self.most_at_once,
        }

    def rows(self) -> list[dict[str, Any]]:
        return [a.row() for a in self.asked]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        greeting = self.greet(self.connections)
        try:
            if greeting is None:
                await self._serve(reader, writer, self.connections)
            elif greeting == RESET:
                abort(writer)
            else:
                writer.write(greeting)
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client went away, as it may
        except asyncio.CancelledError:
            pass  # the server ends; nobody waits for this task
        finally:
            writer.close()
            self._tasks.discard(task)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int
    ) -> None:
        go_on = True
        while go_on:
            asked = await _read(reader, number)
            if asked.path in ("/stats", "/asked"):
                told: Any = self.stats() if asked.path == "/stats" else self.rows()
                await status(200, told).play(Wire(reader, writer, asked))
                continue
            self.asked.append(asked)
            asked.n, asked.at_s = len(self.asked), asyncio.get_running_loop().time()
            self._changed.set()
            with self._answering():
                action = self.script(asked)
                asked.said = action.name
                self._stages[asked.stage] += 1
                self._answers[asked.said] += 1
                go_on = await action.play(Wire(reader, writer, asked))
            asked.finished = True
            asked.took_s = asyncio.get_running_loop().time() - asked.at_s
            self._finished[asked.said] += 1

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            yield
        finally:
            self.at_once -= 1


async def _read(reader: asyncio.StreamReader, number: int) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    lines = (line.partition(":") for line in head[1:] if line)
    headers = {name.lower(): value.strip() for name, _, value in lines}
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    try:
        body = json.loads(content) if content else None
    except ValueError:
        body = None
    return Asked(0, number, head[0].split(" ")[1], headers, content, body)


@dataclass
class FaultProcess:
    """The server in a process of its own, while the block runs."""

    script: str
    seed: int = 0
    latency_s: float = 0.0
    port: int = 0
    _process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> Self:
        words = ["--script", self.script, "--port", str(self.port), "--seed", str(self.seed)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, *words, "--latency-s", str(self.latency_s)],
            cwd=ROOT,
            stdin=subprocess.PIPE,  # its end tells the server to end, however we do
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        with self._process:
            pass

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self._get("/stats")
        return found

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get("/asked")
        return found

    def _get(self, path: str) -> Any:
        url, direct = self.url.removesuffix("/v1") + path, urllib.request.ProxyHandler({})
        with urllib.request.build_opener(direct).open(url, timeout=60) as answer:
            return json.load(answer)


T = TypeVar("T")


@contextlib.contextmanager
def on_a_thread(server: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Serve from a thread of its own: a command runs its own event loop in this one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def serving(
    script: Script, *, greet: Greet = lambda _: None, tls: Path | None = None
) -> AbstractContextManager[FaultServer]:
    """Return the server on a thread of its own."""
    return on_a_thread(FaultServer(script, greet, tls))


def named(name: str, seed: int) -> Script:
    """One of SCRIPTS, or `package.module:function` called with the seed."""
    module, _, function = name.partition(":")
    made = getattr(importlib.import_module(module), function) if function else SCRIPTS[name]
    script: Script = made(seed)
    return script


async def _main(script: Script, port: int, latency_s: float) -> None:
    delayed: Script = (lambda asked: late(latency_s, script(asked))) if latency_s else script
    async with FaultServer(delayed, port=port) as server:
        print(server.port, flush=True)  # noqa: T201
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--script", required=True)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--latency-s", type=float, default=0.0)
    told = parser.parse_args()
    asyncio.run(_main(named(told.script, told.seed), told.port, told.latency_s))
