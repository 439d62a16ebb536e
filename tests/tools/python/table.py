"""What each backend does with code that means harm: `python -m tests.tools.python.table`.

Prints a Markdown table for the backends that run here. Nothing is let loose: the fork bomb makes
200 children at most, which sleep for a second.
"""

import argparse
import asyncio
import re
import secrets
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from grpo_practice.config.schema.tools import PythonConfig
from grpo_practice.errors import ConfigError
from grpo_practice.tools import Tool, ToolError
from grpo_practice.tools.python import open_python
from tests.tools.fakes import SCOPE

BACKENDS = ("monty", "bwrap", "subprocess")
LIMIT_S = 1.0
PROCESSES = 64
LOOP = "while True:\n    pass"
MEMORY = "x = [0] * (10**9 // 8)\nprint('allocated', len(x))"
BOMB = """
import os, time
made = 0
try:
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
        made += 1
except OSError:
    print('refused')
print(made, 'made')
"""
READ = "print(open({path!r}).read())"
CONNECT = """
import socket
socket.create_connection(('127.0.0.1', {port}), 1).close()
print('reached')
"""
FLOOD = "for _ in range(500_000):\n    print('x' * 999)"


@dataclass(frozen=True, slots=True)
class Attack:
    """Code that means harm, and what it says when it was held."""

    name: str
    code: str
    held: Callable[[str], bool]
    limit_s: float = 20.0
    """Enough for what is stopped by anything else than its time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of it."""

    held: bool
    said: str
    seconds: float


@contextmanager
def attacks() -> Iterator[list[Attack]]:
    """All of them: there is a secret in the home folder, and a port that listens."""
    secret = secrets.token_hex(8)
    path = Path.home() / f".grpo-practice-table-{secret[:4]}"
    with socketserver.TCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        path.write_text(secret)
        port = server.server_address[1]
        try:
            yield [
                Attack("infinite loop", LOOP, lambda said: "stopped after" in said, LIMIT_S),
                Attack("1 GB allocation", MEMORY, lambda said: "MemoryError" in said),
                Attack("fork bomb", BOMB, contained),
                Attack("read of `$HOME`", READ.format(path=str(path)), lambda s: secret not in s),
                Attack("network", CONNECT.format(port=port), lambda said: "reached" not in said),
                Attack("500 MB output", FLOOD, lambda said: "stopped: it wrote" in said),
            ]
        finally:
            path.unlink()
            server.shutdown()


def contained(said: str) -> bool:
    """True when the bomb was told to stop, and had not made more children than are allowed."""
    found = re.search(r"refused\n(\d+) made", said)
    return int(found[1]) <= PROCESSES if found else "no attribute 'fork'" in said


async def struck(tool: Tool, attack: Attack) -> Outcome:
    """The attack, made."""
    start = time.monotonic()
    try:
        said = (await tool.run({"code": attack.code, "timeout": attack.limit_s}, SCOPE)).text
    except ToolError as e:
        said = f"Error: {e}"
    return Outcome(attack.held(said), said, time.monotonic() - start)


def told(outcome: Outcome) -> str:
    """The outcome as a cell of the table."""
    bomb = re.search(r"(?:refused\n)?\d+ made", outcome.said)
    last = (bomb[0] if bomb else outcome.said.strip().rpartition("\n")[2]).replace("\n", ", ")
    if re.fullmatch("[0-9a-f]{16}", last):
        last = "the secret was read"
    last = re.sub(r"'/\S*", "'…'", last)
    return f"{'held' if outcome.held else '**NOT HELD**'}: {last[:70]}, {outcome.seconds:.1f} s"


async def main(backends: list[str]) -> None:
    """Print the table."""
    say = partial(print, flush=True)
    with attacks() as all_:
        say("| backend | " + " | ".join(a.name for a in all_) + " |")
        say("|---" * (len(all_) + 1) + "|")
        for backend in backends:
            config = PythonConfig.model_validate({"backend": backend})
            try:
                async with open_python(config, Path()) as (tool,):
                    cells = [told(await struck(tool, attack)) for attack in all_]
                    say(f"| {tool.runs_in} | " + " | ".join(cells) + " |")
            except ConfigError as e:
                say(f"| {backend} | not here: {e} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("backends", nargs="*", default=BACKENDS)
    asyncio.run(main(list(parser.parse_args().backends)))
