"""An MCP server in plain Python, whose state is a file where it runs, as with many others."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

file = Path(os.environ.get("NOTEBOOK", "notebook.txt"))


def write(line: str) -> str:
    with file.open("a") as notebook:
        notebook.write(f"{line}\n")
    return file.read_text()


TOOLS: dict[str, Callable[..., str]] = {
    "write": write,
    "read": file.read_text,
    "where": lambda: str(Path.cwd()),
}


def schema(name: str) -> dict[str, Any]:
    words = ["line"] if name == "write" else []
    return {
        "type": "object",
        "properties": {word: {"type": "string"} for word in words},
        "required": words,
    }


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    match method:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "notebook", "version": "1"},
            }
        case "tools/list":
            return {"tools": [{"name": name, "inputSchema": schema(name)} for name in TOOLS]}
        case "tools/call":
            text = TOOLS[params["name"]](**params["arguments"])
            return {"content": [{"type": "text", "text": text}]}
        case _:
            return {}


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        if "id" in asked:
            found = answer(asked["method"], asked.get("params", {}))
            reply = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": found})
            sys.stdout.write(reply + "\n")
            sys.stdout.flush()
