"""Servers of tools: what a model reads of them, and what a bad one does to nobody else."""

import asyncio
import gzip
import json
import sys
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.contract.clerk import (
    Call,
    Student,
    calling,
    evaluated_with,
    misses,
    played,
    refused,
    turn,
)
from tests.contract.command import Gp
from tests.contract.endpoint.server import on_a_thread
from tests.processes import alive

HERE = Path(__file__).parent
SECRET = "correct-horse-battery-7"
UNUSED = "Error: the tool's server gave an unusable answer: tool "
MIB = 2**20
LINKS = """\
[link to a file: file:///a]
text of it
[resource file:///c, binary, 3 bytes]
[audio, audio/wav, 3 bytes]"""
"""Content of every kind, as the model reads it."""


def kit(*args: str, program: str = "crude.py", name: str = "kit", **more: Any) -> dict[str, Any]:
    """Return a toolkit whose server is a program in this folder."""
    words = ["-S", str(HERE / program), *args] if program == "crude.py" else [str(HERE / program)]
    config = {"command": sys.executable, "args": words} | more.pop("config", {})
    return {name: {"mode": "mcp", "config": config, **more}}


@pytest.mark.long
def test_a_server_of_the_mcp_package_gives_its_tools(
    gp: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-of-somebody-else-123")
    env = {"ITS_KEY": "one-of-its-own-123"}
    toolkit = kit(program="teller.py", config={"env": env})
    calls: dict[str, Call] = {
        "3": ("add", {"a": 1, "b": 2}),
        "4": ("count_up", {"n": 4}),
        "look:\n[image, image/png, 12 KB]": ("picture", {}),
        '{\n  "rows": 3\n}': ("table", {}),
    }
    clerk = played(
        gp,
        toolkit,
        turn(*calls.values(), ("fail", {}), ("add", {"a": "one"}), ("environment", "")),
        turn(*[("together", {"n": 8})] * 8),  # one by one, the first would wait for ever
    )
    *said, fails, wrong, names = clerk.results[:-8]
    assert said == [*calls]
    assert ("no such row" in fails, "validation error" in wrong) == (True, True)
    assert (fails[:7], wrong[:7]) == ("Error: ", "Error: ")
    assert {*names.split(",")} - {"LC_CTYPE"} == {"PATH", "HOME", "ITS_KEY"}
    assert clerk.results[-8:] == ["done"] * 8
    assert [*clerk.tools][:3] == ["add", "count_up", "environment"]
    add = clerk.tools["add"]
    assert (add["description"], add["parameters"]["required"]) == ("Adds two numbers.", ["a", "b"])
    assert "(mcp teller 1.2.3)" in clerk.notices


@pytest.mark.long
def test_1_48_a_call_that_fails_fails_no_other(gp: Gp, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    bad = {"{": "not valid JSON", '{"n": NaN}': "NaN is not a number", "[1]": "a JSON list"}
    bad["[" * 100_000] = "nested too deeply"
    again = "Please try again with valid JSON."
    toolkit = kit("well", str(notes), mcp_client_session_timeout_seconds=4)
    clerk = played(
        gp,
        toolkit,
        turn(("pid", ""), ("odd", {}), ("refuse", {}), ("say", {}), ("say", {"n": 500_000})),
        turn(*(("say", text) for text in bad), ("sya", {})),
        turn(*[("count", {"n": 2})] * 2, ("links", {}), ("empty", {})),
        turn(("crash", {})),
        turn(*[("pid", {})] * 2),
        turn(*[("sleep", {"s": 20})] * 3),
        turn(("pid", {})),
        turn(("flood", {})),
        turn(("pid", {})),
        turn(*(("crash", {"n": n}) for n in range(8))),
        turn(("say", {})),
    )
    results = iter(clerk.results)

    def next_(n: int) -> list[str]:
        return [next(results) for _ in range(n)]

    (first,), (odd, refuse, say, long) = next_(1), next_(4)
    assert "gave an unusable answer: 1 validation error" in odd
    assert "no tools/call" in refuse
    assert say == "ä"
    assert len(long.encode()) <= 16 * 1024
    assert long.endswith("[cut here: this is the beginning of 1,000,000 bytes]")
    assert all(why in (text := next(results)) and again in text for why in bad.values())
    assert next(results).startswith("Tool 'sya' not found. There are: count, pid, crash, sleep")
    assert next_(2) == ["2", "4"], "the same call twice is two calls"
    assert next_(2) == [LINKS, "[no content]"]
    assert "gave no answer" in next(results)
    second, also = next_(2)
    assert second == also != first
    assert next_(3) == ["Error: no answer within 4 s"] * 3
    third = next(results)
    assert third != second, "a server that hangs is used for no other call"
    assert "a message larger than 16 MiB and was stopped" in next(results)
    fourth = next(results)
    assert fourth != third
    assert all(text.startswith("Error: ") for text in next_(8))
    assert next_(1) == ["ä"]
    assert not any(alive(int(pid)) for pid in (first, second, third, fourth))
    # One dead server of many calls at once is replaced once.
    assert notes.read_text().count("start") == 5
    # asyncio buffers twice the limit; the pipe has a little more.
    assert notes.read_text().count("MiB") <= 2 * 16 + 2


@pytest.mark.long
def test_a_server_that_only_fails_stops_the_run(gp: Gp) -> None:
    fails = [calling("crash", n=n) for n in range(5)]
    clerk = Student(*fails[:4], calling("say"), *fails, calling("crash"))
    ran = evaluated_with(gp, clerk, kit())
    assert (ran.code, len(clerk.results)) == (3, 10)
    assert "5 times in a row" in ran.err
    rows = gp("rollouts", "list", "x/eval", "--json").document["rollouts"]
    assert all(row["reward"] is None for row in rows), "it is no wrong answer"


@pytest.mark.long
def test_a_server_that_cannot_be_used_costs_no_request(gp: Gp) -> None:
    leave = "leave it out with activated_tools"
    none: dict[str, Any] = {"args": []}
    for toolkit, said in (
        (kit("empty"), ["toolkits.kit: the MCP server has no tools"]),
        (kit("twins"), ["'a.b' and 'a b' would both be called 'a_b'", leave]),
        (kit("huge"), ["the description of tool 'big' takes 70,057 bytes in every request", leave]),
        (kit("endless"), ["its list of tools does not end"]),
        (
            kit("dies", config={"env": {"KEY": SECRET}}),
            ["toolkits.kit: ", "the key *** is refused"],
        ),
        (
            kit(config={"command": "no-such-here"} | none),
            ["cannot find the program 'no-such-here'"],
        ),
        (kit(config={"command": "./none"} | none), ["cannot find the program './none'"]),
        (kit(config={"command": "true", "cwd": "none"} | none), ["there is no folder"]),
        (kit(config={"command": "true"} | none), ["it ended immediately"]),
        (kit() | kit(name="other"), ["two toolkits have a tool 'count'", "leave one out with act"]),
        (kit(config={"workdir": "rollout"}), ["stateful: true"]),
        (kit(stateful=True, config={"workdir": "rollout", "cwd": "."}), ["remove config.cwd"]),
        (kit(stateful=True, config={"workdir": "run"}), ["rollout"]),
        (over_http(9, config={"workdir": "rollout"}), ["streamable_http does not use workdir"]),
        (over_http(1), ["toolkits.web: ", "connection attempts failed"]),
    ):
        ran = refused(gp, toolkit)
        assert [text for text in said if text not in ran.err] == [], ran.err
    for how in ("twins", "huge"):
        clerk = played(gp, kit(how, activated_tools=["c"]), calling("c"))
        assert clerk.results == ["c"], "what is left out may be unfit"


@pytest.mark.long
def test_names_that_endpoints_refuse_are_made_to_fit(gp: Gp) -> None:
    clerk = played(gp, kit("pages"), calling("c"))
    short, long = clerk.tools
    assert (short, long[:8], len(long)) == ("c", "n_me_xxx", 64)
    assert played(gp, kit("pages"), calling(long)).results == ["näme/" + "x" * 80]


def test_a_server_is_ended_and_reaches_no_terminal(gp: Gp, tmp_path: Path) -> None:
    for where in ("", "deep"):
        (tmp_path / where).mkdir(exist_ok=True)
        (tmp_path / where / "own.py").write_text((HERE / "crude.py").read_text())
        words = ["own.py", "noisy" if where else "deaf", "notes"]
        config = {"args": words} | ({"cwd": where} if where else {})
        clerk = played(gp, kit(config=config), calling("pid"))
        assert not alive(int(clerk.results[0]))
        assert (tmp_path / where / "notes").exists(), "it runs beside the config"
        assert "noise" not in clerk.notices
        assert "log" not in clerk.notices


CHECKED = {
    "fits": "read",
    "large": "read",
    "fits_not": f"{UNUSED}fits_not: invalid structured content: 'n' is a required property",
    "refs": f"{UNUSED}refs: the check against its schema needs too much memory",
    "no_schema": f"{UNUSED}no_schema: invalid schema: 'nothing' is not valid under any of",
    "nothing": f"{UNUSED}nothing: it has an output schema, but returned no structured content",
    "elsewhere": f"{UNUSED}elsewhere: invalid schema: Unresolvable: http://127.0.0.1:9/schema",
}
"""Tool → beginning of what the model reads."""


def test_a_result_is_used_if_it_fits_its_schema(gp: Gp) -> None:
    clerk = played(gp, kit("hostile"), turn(*((name, {}) for name in CHECKED)))
    said = dict(zip(CHECKED, clerk.results, strict=True))
    assert {name: said[name] for name in CHECKED if not said[name].startswith(CHECKED[name])} == {}


BOMB = gzip.compress(bytes(2**26))
"""64 KB that unpack to 64 MiB."""


def over_http(port: int, **more: Any) -> dict[str, Any]:
    config = {"url": f"http://127.0.0.1:{port}/mcp"} | more.pop("config", {})
    return {"web": {"mode": "mcp", "mcp_transport": "streamable_http", "config": config, **more}}


@dataclass
class Web:
    """A server over HTTP whose tools answer each in its own way."""

    port: int = 0
    status: int = 200
    sent: int = 0
    """Bytes of what is endless."""
    heads: list[str] = field(default_factory=list)

    def replies(self, body: bytes) -> dict[str, tuple[str, bytes]]:
        """Return tool → encoding and body of its reply."""
        return {
            "gzip": ("gzip", gzip.compress(body)),
            "deflate": ("deflate", zlib.compress(body)[2:-4]),
            "odd": ("br", body),
            "broken": ("gzip", b"\x1f\x8b\x08" + body),
            "bomb": ("gzip", BOMB),
            "endless": ("", b""),
            "events": ("", b""),
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            self.heads.append(head)
            size = int(head.lower().partition("content-length:")[2].split("\r\n")[0] or 0)
            message = json.loads(await reader.readexactly(size) or b"{}")
            await self._answer(message, writer)
        writer.close()

    async def _answer(self, message: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        about = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}}
        tools = [{"name": name, "inputSchema": {"type": "object"}} for name in self.replies(b"")]
        results = {
            "initialize": {**about, "serverInfo": {"name": "web", "version": "0"}},
            "tools/list": {"tools": tools},
            "tools/call": {"content": [{"type": "text", "text": "well"}]},
        }
        said: dict[str, Any] = {"jsonrpc": "2.0", "id": message.get("id")}
        method = message.get("method", "")
        if method in results:
            said["result"] = results[method]
        else:
            said["error"] = {"code": -32601, "message": "no such method"}
        encoding, body, more = "", json.dumps(said).encode() if "id" in message else b"", b""
        name = message.get("params", {}).get("name") if method == "tools/call" else None
        if name:
            encoding, body = self.replies(body)[name]
            more = {"endless": b"x" * 2**16, "events": b": a comment\n" * 1_000}.get(name, b"")
        kind = "text/event-stream" if name == "events" else "application/json"
        lines = [f"HTTP/1.1 {self.status if body or more else 202} OK", f"content-type: {kind}"]
        lines += [f"content-encoding: {encoding}"] if encoding else []
        writer.write("\r\n".join([*lines, "connection: close", "", ""]).encode() + body)
        await writer.drain()
        while more:
            writer.write(more)
            self.sent += len(more)
            await writer.drain()


@asynccontextmanager
async def web(it: Web) -> AsyncIterator[Web]:
    async with await asyncio.start_server(it.serve, "127.0.0.1", 0) as server:
        it.port = server.sockets[0].getsockname()[1]
        yield it


@pytest.mark.long
def test_a_reply_over_http_that_cannot_be_kept_fails_its_call(gp: Gp) -> None:
    token = "Bearer tkn-4711-of-nobody"
    names = [*Web().replies(b"")]
    with on_a_thread(web(Web())) as it:
        toolkit = over_http(it.port, config={"headers": {"authorization": token}})
        clerk = played(gp, toolkit, *(calling(name) for name in names))
        assert all(f"authorization: {token}" in head for head in it.heads)
        # What lies in the sockets' buffers was sent, and not read.
        assert it.sent < 4 * 16 * MIB
        for it.status in (401, 500):
            assert f"HTTP {it.status}" in refused(gp, toolkit).err
    said = dict(zip(names, clerk.results, strict=True))
    assert "larger than 16 MiB" in said["bomb"] or "more than 100 times" in said["bomb"]
    wanted = {
        "gzip": "well",
        "deflate": "well",
        "odd": ["the reply is encoded as 'br', which is not supported"],
        "broken": ["while decompressing"],
        "endless": ["the reply is larger than 16 MiB"],
        "events": ["the reply is larger than 16 MiB"],
    }
    assert misses(said, wanted) == {}
    stored = b"".join(path.read_bytes() for path in Path().glob("grpo-practice.db*"))
    assert b"tkn-4711" not in stored


def test_without_the_package_the_way_to_it_is_said(gp: Gp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    said = refused(gp, kit()).err
    assert "needs the package mcp" in said
    assert "hint: pip install 'grpo-practice[mcp]'" in said
