"""Programs in the place of `bwrap` and `docker`, which run code on this machine and keep a log."""

import json
import os
import shutil
import stat
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.processes import processes

_STAND_IN = """#!{python}
import json, os, sys
def log(**told):
    with open({log!r}, "a") as file:
        file.write(json.dumps(told) + chr(10))
words, seccomp = sys.argv[1:], b""
log(words=[word for word in words if len(word) < 200])
if words[0] in ("version", "--version"):
    print({version!r})
    sys.exit({code})
if words[0] == "kill":
    sys.exit()
if "--seccomp" in words:
    seccomp = os.read(int(words[words.index("--seccomp") + 1]), 65536)
log(filter=len(seccomp))
ours = words[words.index("--") + 2:]
first = '''
import importlib.util, json, os, platform, socket, sys
class Closed(socket.socket):
    def connect(self, address): raise OSError("unreachable")
if {closed}:
    socket.socket = Closed
os.setuid = os.setgid = os.setgroups = lambda _: None  # who runs the tests stays who that is
'''
ours[-1] = first + {first!r} + chr(10) + ours[-1]
os.execv(sys.executable, [sys.executable, *ours])
"""
VERSIONS = {"bwrap": "bubblewrap 0.8.1", "docker": "99.1"}


class StandIn:
    """A program of that name, first on the PATH; what it runs has no network if it is `closed`."""

    def __init__(self, name: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._program, self._log = folder / name, folder / f"{name}.log"
        folder.mkdir(exist_ok=True)
        patch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        self.does()

    def does(
        self, *, version: str = "", code: int = 0, closed: bool = True, first: str = ""
    ) -> None:
        """Say this version and end with this code; run `first` before what is to be run."""
        version = version or VERSIONS[self._program.name]
        told = {"python": sys.executable, "log": str(self._log), "version": version}
        text = _STAND_IN.format(**told, code=code, closed=closed, first=first)
        self._program.write_text(text)
        self._program.chmod(self._program.stat().st_mode | stat.S_IXUSR)
        self._log.write_text("")

    def log(self, key: str) -> list[Any]:
        """Return what was noted under a key, in order."""
        rows = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [row[key] for row in rows if key in row]


def call(code: str, timeout: float | None = None) -> tuple[str, dict[str, Any]]:
    """Return a call of the tool that runs code."""
    given = {"code": code} | ({} if timeout is None else {"timeout": timeout})
    return "execute_python_code", given


def kit(**settings: Any) -> dict[str, Any]:
    """Return the toolkit that runs code, with these settings."""
    return {"python_executor": {"config": settings}}


@cache
def bwrap_works() -> bool:
    """Return True when the system lets bwrap make namespaces at all."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return False
    return not subprocess.run([bwrap, "--unshare-all", "--ro-bind", "/", "/", "true"]).returncode


def living(word: str) -> set[int]:
    """Return the processes with the word in their command line that have not ended."""
    return {process.pid for process in processes() if word in process.command}


def below(parent: int, word: str) -> set[int]:
    """Return those that this process has started."""
    found = [process for process in processes() if word in process.command]
    return {process.pid for process in found if process.parent == parent}


def seconds(pid: int) -> float:
    """Return how long a process has computed."""
    return sum(process.seconds for process in processes() if process.pid == pid)
