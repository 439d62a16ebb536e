"""The backend `bwrap`: CPython in namespaces of its own, without a network or the user's files."""

import asyncio
import itertools
import os
import re
import shutil
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_practice.tools.python.backend import Backend, refused
from grpo_practice.tools.python.cpython import (
    ENVIRONMENT,
    FILE_MB,
    Start,
    execute,
    python_arguments,
)
from grpo_practice.tools.python.interpreter import Interpreter, find
from grpo_practice.tools.python.probe import tried

OLDEST = (0, 7)
"""The first version that can limit what is written to memory."""
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/nix/store", "/etc/ld.so.cache")
_NOBODY = "65534"
_UIDS = itertools.cycle(range(64_000, 65_000))
"""Who runs code when we are root. Another one each time: the limit of processes is per user."""
ABOUT = "no network; files can be written in /tmp and are gone after the call"


async def open_bwrap(python: str | None, folder: Path, memory_mb: int) -> Backend:
    """The backend, tried.

    Args:
        python: The interpreter; None is the one that runs this program.
        folder: What its path is relative to.
        memory_mb: Most memory of one process.

    Raises:
        ConfigError: It does not work here.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise refused("bwrap", "there is no program bwrap", "install the package bubblewrap")
    version = await _version(bwrap)
    interpreter = await find("bwrap", python, folder)
    sandbox = Sandbox(bwrap, interpreter, version, root=os.geteuid() == 0)

    async def run(code: str, limit_s: float) -> str:
        return await execute(sandbox.start(), code, limit_s=limit_s, memory_mb=memory_mb)

    ran, able = await tried("bwrap", run, closed=True)
    name = ".".join(map(str, version))
    return Backend(run, f"bwrap {name}, python {ran}", f"{able}; {ABOUT}")


async def _version(bwrap: str) -> tuple[int, ...]:
    process = await asyncio.create_subprocess_exec(bwrap, "--version", stdout=PIPE, stderr=STDOUT)
    said = (await process.communicate())[0].decode(errors="replace").strip()
    found = re.search(r"(\d+)\.(\d+)\.(\d+)", said)
    version = tuple(int(n) for n in found.groups()) if found else ()
    if version < OLDEST:
        raise refused("bwrap", f"its version is {said!r}", "install 0.7 or newer")
    return version


@dataclass(frozen=True, slots=True)
class Sandbox:
    """How bwrap is called.

    Args:
        bwrap: The program.
        python: The interpreter. Its folders and the system's are all that is seen of the disk.
        version: Of bwrap.
        root: True when we are root. The kernel limits no processes of root, nor of who is root
            outside a user namespace: there is none then, and the code runs as somebody else.
    """

    bwrap: str
    python: Interpreter
    version: tuple[int, ...]
    root: bool

    def start(self) -> Start:
        """One execution."""
        return Start(self.command(), {"uid": next(_UIDS)} if self.root else {}, {})

    def command(self) -> list[str]:
        """The command line. What can be written to is memory, and limited."""
        size = str(FILE_MB * 2**20)
        return [
            self.bwrap,
            *self._apart(),
            *("--new-session", "--die-with-parent", "--clearenv"),
            *_environment(),
            *("--perms", "0755", "--dir", "/etc"),
            *(arg for path in _SYSTEM for arg in ("--ro-bind-try", path, path)),
            *self._interpreter(),
            *("--proc", "/proc", "--dev", "/dev"),
            *("--perms", "1777", "--size", size, "--tmpfs", "/dev/shm"),
            *("--remount-ro", "/dev"),
            *("--perms", "1777", "--size", size, "--tmpfs", "/tmp"),
            *("--remount-ro", "/", "--chdir", "/tmp"),
            *("--", self.python.path, *python_arguments()),
        ]

    def _apart(self) -> Sequence[str]:
        if self.root:
            return (
                *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
                *("--unshare-cgroup-try", "--cap-drop", "ALL"),
                *("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"),
            )
        nested = ("--disable-userns",) if self.version >= (0, 8) else ()
        return ("--unshare-all", "--unshare-user", *nested, "--uid", _NOBODY, "--gid", _NOBODY)

    def _interpreter(self) -> Iterator[str]:
        """Its folders where they are outside, and what is above them open to all."""
        made = {Path("/"), *map(Path, _SYSTEM)}
        for source, place in self.python.mounts(_SYSTEM):
            for parent in reversed(place.parents):
                if parent not in made:
                    made.add(parent)
                    yield from ("--perms", "0755", "--dir", str(parent))
            yield from ("--ro-bind", str(source), str(place))


def _environment() -> Iterator[str]:
    for name, value in (ENVIRONMENT | {"HOME": "/tmp"}).items():
        yield from ("--setenv", name, value)
