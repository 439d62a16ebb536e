"""An MCP server in plain Python, for tests, that starts fast and does what its author forbids."""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

HOW = sys.argv[1] if len(sys.argv) > 1 else "well"
NOTES = Path(sys.argv[2]) if len(sys.argv) > 2 else None
ANY: dict[str, Any] = {"type": "object", "properties": {}}
PAGES: dict[str, list[list[Any]]] = {
    "empty": [[]],
    "twins": [[("a.b", ANY)], [("a b", ANY), ("c", ANY)]],
    "huge": [[("c", ANY)], [("big", {**ANY, "description": "x" * 70_000})]],
    "pages": [[("c", ANY)], [("näme/" + "x" * 80, ANY)]],
}
ENDLESS = {"type": "string", "pattern": "^(a+)+$"}
LONG = "a" * 60 + "!"


def doubled(how: str) -> dict[str, Any]:
    """A schema with 2 ** 60 ways to its end."""
    steps = {f"d{n}": {how: [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    last = {"type": "integer" if how == "allOf" else "string"}
    return {"properties": {"x": {"$ref": "#/$defs/d0"}}, "$defs": steps | {"d60": last}}


HOSTILE: dict[str, tuple[Any, Any]] = {
    "pattern": ({"properties": {"x": ENDLESS}}, {"x": LONG}),
    "names": ({"patternProperties": {"^(a+)+$": True}}, {LONG: 1}),
    "all": (doubled("allOf"), {"x": 1}),
    "any": (doubled("anyOf"), {"x": 1}),
    "refs": ({"$ref": "#"}, {"x": 1}),
    "large": (
        {"properties": {"x": {"enum": [f"{n:040}" for n in range(50_000)]}}},
        {"x": f"{7:040}"},
    ),
    "elsewhere": ({"properties": {"x": {"$ref": "http://127.0.0.1:9/schema"}}}, {"x": 1}),
    "no_schema": ({"properties": {"x": {"type": "nothing"}}}, {"x": 1}),
    "fits": ({"required": ["n"]}, {"n": 1}),
    "fits_not": ({"required": ["n"]}, {}),
    "nothing": ({}, None),
}
"""Tools with a schema for their result, and that result."""
CONTENT: dict[str, list[dict[str, Any]]] = {
    "links": [
        {"type": "resource_link", "name": "a file", "uri": "file:///a"},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "text of it"}},
        {"type": "resource", "resource": {"uri": "file:///c", "blob": "AAAA"}},
        {"type": "audio", "data": "AAAA", "mimeType": "audio/wav"},
    ],
    "empty": [],
}
"""Tools whose results are more than text."""
PLAIN = (
    "count",
    "pid",
    "crash",
    "sleep",
    "odd",
    "refuse",
    "say",
    "flood",
    "links",
    "empty",
    "record",
)
TOOLS = [(name, ANY) for name in PLAIN]
total = 0


def note(text: str) -> None:
    """Remember over all servers."""
    if NOTES:
        with NOTES.open("a") as file:
            file.write(f"{text}\n")


def put(line: str) -> None:
    """Write to stdout."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def listed(params: dict[str, Any]) -> dict[str, Any]:
    """A page of tools."""
    page = int(params.get("cursor") or 0)
    if HOW == "endless":
        found, more = [(f"t{page}_{n}", ANY) for n in range(50)], True
    else:
        pages = PAGES.get(HOW, [[(name, ANY) for name in HOSTILE] if HOW == "hostile" else TOOLS])
        found, more = pages[page], page + 1 < len(pages)
    tools: list[dict[str, Any]] = [{"name": name, "inputSchema": schema} for name, schema in found]
    for tool in tools:
        if tool["name"] in HOSTILE:
            tool["outputSchema"] = {"type": "object", **HOSTILE[tool["name"]][0]}
    return {"tools": tools} | ({"nextCursor": str(page + 1)} if more else {})


def called(params: dict[str, Any]) -> dict[str, Any]:
    """What a tool answers."""
    global total
    name, given = params["name"], params.get("arguments") or {}
    note(f"{name} {os.getpid()}")
    if name == "count":
        total += given.get("n", 0)
    elif name == "crash":
        os._exit(3)
    elif name == "sleep":
        time.sleep(given["s"])
    elif name == "flood":
        while True:
            sys.stdout.write("x" * 2**20)
            note("MiB")
    elif name == "odd":
        return {"content": "no list"}
    if name in CONTENT:
        return {"content": CONTENT[name]}
    if name in HOSTILE:
        content = HOSTILE[name][1]
        structured = {} if content is None else {"structuredContent": content}
        return {"content": [{"type": "text", "text": "read"}], **structured}
    text = {"count": str(total), "pid": str(os.getpid()), "say": "ä" * given.get("n", 1)}
    return {"content": [{"type": "text", "text": text.get(name, name)}]}


def answer(message: dict[str, Any]) -> dict[str, Any]:
    """To one request."""
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        about = {"serverInfo": {"name": "crude", "version": "0"}, "capabilities": {"tools": {}}}
        return {"result": about | {"protocolVersion": params["protocolVersion"]}}
    if method == "tools/list":
        return {"result": listed(params)}
    if method == "tools/call" and params["name"] != "refuse":
        return {"result": called(params)}
    return {"error": {"code": -32601, "message": f"no {method}"}}


def main() -> None:
    """Serve until the input ends."""
    note(f"start {os.getpid()}")
    if HOW == "hangs":
        time.sleep(60)
    if HOW == "dies":
        sys.exit(f"the key {os.environ.get('KEY')} is refused")
    if HOW == "useless" and NOTES and NOTES.read_text().count("start") > 1:
        sys.exit("no more")
    if HOW == "deaf":
        threading.Thread(target=time.sleep, args=(60,)).start()
    if HOW == "noisy":
        put("a line that belongs into a log")
        sys.stderr.write("noise " * 100_000)
    while HOW == "garbage":
        put("this is no message")
        time.sleep(0.05)
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            reply = {"jsonrpc": "2.0", "id": message["id"]} | answer(message)
            put(json.dumps(reply))


if __name__ == "__main__":
    main()
