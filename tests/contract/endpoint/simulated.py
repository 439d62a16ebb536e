"""The simulated endpoint's answers, from the installed command: `grpo-practice demo --serve`."""

import atexit
import json
import os
import subprocess
from contextlib import closing
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from threading import Lock
from typing import Any

from tests.processes import program

_ENDS_WITH_US = """
import os, threading
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
"""
_LOCK = Lock()

STAGES = {
    "tool": "## The page at ",
    "judge": "## The answer to grade",
    "summarise": "## The attempt\n",
    "compare": "## The attempts",
    "propose": "## The lessons",
    "merge": "## The proposals",
    "direct": "## The library to write",
}
"""Stage → heading that only its shipped prompt has."""


def respond(path: str, content: bytes, world: Path | None = None) -> tuple[int, dict[str, Any]]:
    """Return status and JSON body of the simulated endpoint's answer to a POST."""
    with _LOCK:
        connection = _connection(world)
        # The next request opens it again: a server closes connections that are idle for long.
        with closing(connection):
            connection.request("POST", path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            body: dict[str, Any] = json.load(answer)
            return answer.status, body


def stage_of(body: Any) -> str:
    """Return the stage whose prompt a chat request shows: else `play`; `other` for no request."""
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        return "other"
    text = "\n".join(str(m.get("content")) for m in body["messages"] if isinstance(m, dict))
    return next((stage for stage, heading in STAGES.items() if f"\n{heading}" in text), "play")


@cache
def _connection(world: Path | None) -> HTTPConnection:
    """Start the command, once for this process and world, and connect to it."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
    of_world = ["--world", str(world)] if world else []
    server = subprocess.Popen(
        program("demo", "--serve", "0", *of_world, first=_ENDS_WITH_US),
        cwd=Path(__file__).parent,
        env=kept,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    said = server.stdout.readline()
    connection = HTTPConnection("127.0.0.1", int(said.partition("127.0.0.1:")[2].partition("/")[0]))

    def end() -> None:
        server.kill()
        server.communicate()

    atexit.register(end)
    return connection
