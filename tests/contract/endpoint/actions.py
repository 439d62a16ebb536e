"""What an endpoint can answer, well or badly, as values: see `tests.contract.endpoint.server`."""

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Literal

from tests.contract.endpoint.simulated import respond, stage_of

Message = dict[str, Any]


@dataclass(slots=True)
class Asked:
    """One chat request, and what became of it."""

    n: int
    connection: int
    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    content: bytes = b""
    body: Any = None
    """The JSON; None when it is none."""
    at_s: float = 0.0
    """When it was read, on the loop's clock."""
    said: str = ""
    """The name of the action that answered it."""
    finished: bool = False
    """True when every byte of the answer was handed to the network."""
    took_s: float = 0.0
    """Seconds from the request to the last byte of its answer, once it is finished."""

    @property
    def stage(self) -> str:
        return stage_of(self.body)

    @property
    def seed(self) -> int | None:
        return self.body.get("seed") if isinstance(self.body, dict) else None

    @property
    def request_hash(self) -> str:
        """The ledger's hash of this request, if it came over the wire as it was asked; else ''."""
        if not isinstance(self.body, dict) or "messages" not in self.body:
            return ""
        params = {k: v for k, v in self.body.items() if k not in ("model", "messages", "tools")}
        head = {"model": self.body["model"], "params": params}
        if self.body.get("tools"):
            head["tools"] = self.body["tools"]
        state = sha256(b"gp1\0" + _canonical(head))
        for message in self.body["messages"]:
            kept = {k: v for k, v in message.items() if v is not None or k == "content"}
            state = sha256(state.digest() + _canonical(kept))
        return state.hexdigest()[:32]

    def row(self) -> dict[str, Any]:
        """What is worth knowing of it, as JSON."""
        kept = {"n": self.n, "stage": self.stage, "seed": self.seed, "hash": self.request_hash}
        return kept | {"said": self.said, "finished": self.finished, "took_s": self.took_s}


def _canonical(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class Wire:
    """Where an action writes."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    asked: Asked

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def gone(self) -> None:
        """Return when the client has closed its side."""
        while await self.reader.read(65_536):
            pass


@dataclass(frozen=True, slots=True)
class Action:
    """Something to answer with. `play` returns True when the connection may go on."""

    name: str
    play: Callable[[Wire], Awaitable[bool]]
    answer: Callable[[Asked], tuple[bytes, bytes]] | None = None
    """Head and body, of a whole answer."""


Script = Callable[[Asked], Action]
Headers = Mapping[str, str]
RESET: Literal["reset"] = "reset"
Greet = Callable[[int], bytes | Literal["reset"] | None]
"""What a connection gets before anything is read from it, by its number; None: it is served."""


def always(action: Action) -> Script:
    return lambda _: action


def in_turn(*actions: Action) -> Script:
    return lambda asked: actions[min(asked.n, len(actions)) - 1]


def _whole(name: str, answer: Callable[[Asked], tuple[bytes, bytes]]) -> Action:
    async def play(wire: Wire) -> bool:
        await wire.send(b"".join(answer(wire.asked)))
        return True

    return Action(name, play, answer)


def _head(code: int, headers: Headers, length: int | None) -> bytes:
    lines = {"Content-Type": "application/json"} | dict(headers)
    if length is not None:
        lines["Content-Length"] = str(length)
    text = "".join(f"{k}: {v}\r\n" for k, v in lines.items())
    return f"HTTP/1.1 {code} Whatever\r\n{text}\r\n".encode("latin-1")


def completion(
    message: str | Message,
    *,
    finish: str = "stop",
    usage: Mapping[str, Any] | None = None,
    model: str = "m-1",
) -> dict[str, Any]:
    """The body of a chat completion, as an OpenAI-compatible server writes it."""
    if isinstance(message, str):
        message = {"role": "assistant", "content": message}
    if usage is None:
        usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return {"id": "c-1", "object": "chat.completion", "model": model} | {
        "choices": [choice],
        "usage": dict(usage),
    }


def status(code: int, body: Any = b"", headers: Headers | None = None) -> Action:
    raw = body if isinstance(body, bytes) else body.encode() if isinstance(body, str) else None
    raw = json.dumps(body).encode() if raw is None else raw
    return _whole(str(code), lambda _: (_head(code, headers or {}, len(raw)), raw))


def ok(
    message: str | Message,
    *,
    finish: str = "stop",
    usage: Mapping[str, Any] | None = None,
    model: str = "m-1",
) -> Action:
    told = completion(message, finish=finish, usage=usage, model=model)
    return replace(status(200, told), name="ok")


def simulated() -> Action:
    def answer(asked: Asked) -> tuple[bytes, bytes]:
        code, told = respond(asked.path, asked.content)
        raw = json.dumps(told).encode()
        return _head(code, {}, len(raw)), raw

    return _whole("ok", answer)


def changed(action: Action, change: Callable[[Asked, Message], Message]) -> Action:
    """Return the completion with another message in it."""

    def answer(asked: Asked) -> tuple[bytes, bytes]:
        body = json.loads(_parts(action, asked)[1])
        (choice,) = body["choices"]
        choice["message"] = change(asked, choice["message"])
        raw = json.dumps(body).encode()
        return _head(200, {}, len(raw)), raw

    return _whole(action.name, answer)


def followed(action: Action, second: Action, *, after_s: float = 0.0) -> Action:
    """Return the answer with another one to the same request behind it, at once or later."""

    async def play(wire: Wire) -> bool:
        first, more = (b"".join(_parts(each, wire.asked)) for each in (action, second))
        await wire.send(first if after_s else first + more)
        if after_s:
            await asyncio.sleep(after_s)
            with contextlib.suppress(ConnectionError):  # the client has its answer, and may be gone
                await wire.send(more)
        return True

    return Action(action.name, play)


def error(code: int, message: str, headers: Headers | None = None, /, **fields: Any) -> Action:
    return status(code, {"error": {"message": message, **fields}}, headers)


def html(text: str = "<!DOCTYPE html><html><body>Please log in</body></html>") -> Action:
    return replace(status(200, text, {"Content-Type": "text/html"}), name="html")


def sse(*chunks: Any, done: bool = True, pieces: int | None = None) -> Action:
    """Events, each chunk JSON or a line as it is, in pieces of so many bytes; then the end."""
    lines = [c if isinstance(c, str) else f"data: {json.dumps(c)}" for c in chunks]
    lines += ["data: [DONE]"] if done else []
    raw = "".join(f"{line}\n\n" for line in lines).encode()
    head = _head(200, {"Content-Type": "text/event-stream", "Connection": "close"}, None)

    async def play(wire: Wire) -> bool:
        await wire.send(head)
        for start in range(0, len(raw), pieces or len(raw) or 1):
            await wire.send(raw[start : start + (pieces or len(raw))])
            await asyncio.sleep(0)
        return False

    return Action("sse", play, lambda _: (head, raw))


def _parts(action: Action, asked: Asked) -> tuple[bytes, bytes]:
    if action.answer is None:
        raise TypeError(f"{action.name} is no whole answer")
    return action.answer(asked)


def _part(action: Action, asked: Asked, after: int) -> bytes:
    head, raw = _parts(action, asked)
    return head + raw[:after]


def wrong_length(action: Action, by: int) -> Action:
    """Return the answer with a Content-Length that is off by so many bytes; then the end."""

    async def play(wire: Wire) -> bool:
        raw = _parts(action, wire.asked)[1]
        await wire.send(_head(200, {}, len(raw) + by) + raw)
        return False

    return Action("wrong_length", play)


def cut(action: Action, after: int) -> Action:
    async def play(wire: Wire) -> bool:
        await wire.send(_part(action, wire.asked, after))
        return False

    return Action("cut", play)


def reset(action: Action, after: int) -> Action:
    async def play(wire: Wire) -> bool:
        await wire.send(_part(action, wire.asked, after))
        abort(wire.writer)
        return False

    return Action("reset", play)


def hang_up() -> Action:
    return raw(b"", name="hang_up")


def stall(action: Action | None = None, after: int = 0) -> Action:
    async def play(wire: Wire) -> bool:
        if action is not None:
            await wire.send(_part(action, wire.asked, after))
        await wire.gone()
        raise ConnectionError

    return Action("stall", play)


def drip(
    piece: bytes,
    *,
    interval_s: float,
    times: int | None = None,
    then: Action | None = None,
    headers: Headers | None = None,
) -> Action:
    """Without `then` the head promises more than will ever come; `then` gives its body at last."""

    async def play(wire: Wire) -> bool:
        body = b"" if then is None else _part(then, wire.asked, 10**9).partition(b"\r\n\r\n")[2]
        length = 10**9 if times is None else times * len(piece) + len(body)
        await wire.send(_head(200, headers or {}, length))
        sent = 0
        while times is None or sent < times:
            await wire.send(piece)
            await asyncio.sleep(interval_s)
            sent += 1
        await wire.send(body)
        return True

    return Action("drip", play)


def late(seconds: float, action: Action) -> Action:
    async def play(wire: Wire) -> bool:
        await asyncio.sleep(seconds)
        return await action.play(wire)

    return replace(action, play=play)


def raw(data: bytes, *, name: str = "raw") -> Action:
    async def play(wire: Wire) -> bool:
        await wire.send(data)
        return False

    return Action(name, play)


def abort(writer: asyncio.StreamWriter) -> None:
    """Close it so that the other side sees a reset."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
