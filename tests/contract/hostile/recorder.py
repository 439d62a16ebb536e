"""Two origins on this machine that keep every byte they are sent: the user's own, a stranger's."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.contract.endpoint.actions import completion
from tests.contract.endpoint.simulated import respond

ARGUMENTS = {
    "search": {"query": "anything"},
    "web_qa": {"url": "https://page.example/", "query": "anything?"},
}
"""Arguments with which the endpoint has each tool called."""


@dataclass
class Recorder:
    """An origin; what it received is kept byte for byte."""

    port: int = 0
    received: list[bytes] = field(default_factory=list)
    code: str = ""
    """Code that the endpoint has an agent's Python tool run."""
    says: str = ""
    """Answer of the endpoint; '' is the simulated one's."""
    redirect: str = ""
    """Origin to which every request is sent on; '' answers."""
    seen: Callable[[], None] = lambda: None
    """Function called before each request is answered."""

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def whole(self) -> bytes:
        """All that was received."""
        return b"\n".join(self.received)

    def reset(self) -> None:
        self.received.clear()
        self.code = self.redirect = self.says = ""
        self.seen = lambda: None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read requests and answer them until the other side goes."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.received.append(head)
                lines = head.decode("latin-1").split("\r\n")
                sizes = [line for line in lines if line.lower().startswith("content-length:")]
                size = int(sizes[0].partition(":")[2]) if sizes else 0
                body = await reader.readexactly(size)
                self.received.append(body)
                self.seen()
                method, target = lines[0].split(" ")[:2]
                writer.write(self._answer(method, target, body))
                await writer.drain()
        except asyncio.IncompleteReadError as e:
            self.received.append(e.partial)
        except (OSError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    def _answer(self, method: str, target: str, body: bytes) -> bytes:
        if self.redirect:
            head = f"HTTP/1.1 307 Go\r\nLocation: {self.redirect}{target}\r\n"
            return f"{head}Content-Length: 0\r\n\r\n".encode()
        status, told = self._told(method, target.partition("?")[0], body)
        content = json.dumps(told).encode()
        head = f"HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content

    def _told(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        asked = json.loads(body) if body[:1] == b"{" else {}
        if path.endswith("/search"):
            return 200, {"organic": [], "data": []}
        if method == "POST" and path == "/":
            return 200, {"data": {"content": "a page", "url": "https://page.example/"}}
        if not path.endswith("/chat/completions"):
            return 404, {"error": "nothing is here"}
        if asked.get("tools") and asked["messages"][-1]["role"] != "tool":
            return 200, completion(_calling(asked["tools"], self.code), finish="tool_calls")
        if self.says:
            return 200, completion(self.says)
        status, told = respond("/v1/chat/completions", body)
        return (status, told) if status == 200 else (200, completion("4"))


def _calling(tools: list[dict[str, Any]], code: str) -> dict[str, Any]:
    arguments = {**ARGUMENTS, "execute_python_code": {"code": code}}
    calls = [
        {
            "id": f"c{i}",
            "type": "function",
            "function": {
                "name": tool["function"]["name"],
                "arguments": json.dumps(arguments.get(tool["function"]["name"], {})),
            },
        }
        for i, tool in enumerate(tools)
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


@contextmanager
def recording(*recorders: Recorder) -> Iterator[None]:
    """Serve them on a thread of their own for the block."""
    loop, ready, done = asyncio.new_event_loop(), threading.Event(), asyncio.Event()

    async def serve() -> None:
        servers = [await asyncio.start_server(r.serve, "127.0.0.1", 0) for r in recorders]
        for recorder, server in zip(recorders, servers, strict=True):
            recorder.port = server.sockets[0].getsockname()[1]
        ready.set()
        await done.wait()
        for server in servers:
            server.close()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            runner.run(serve())

    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join()


@contextmanager
def names_looked_up() -> Iterator[list[str]]:
    """Yield the host names that this process looks up; none but those of this machine is found."""
    looked, real = list[str](), socket.getaddrinfo

    def look(host: Any, *args: Any, **kwargs: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else str(host)
        looked.append(name)
        if name not in ("127.0.0.1", "localhost", "127.0.0.2"):
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return real(host, *args, **kwargs)

    setattr(socket, "getaddrinfo", look)  # noqa: B010
    try:
        yield looked
    finally:
        setattr(socket, "getaddrinfo", real)  # noqa: B010
