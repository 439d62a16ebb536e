"""The backend `bwrap`: CPython in separate namespaces, without a network or the user's files."""

import asyncio
import itertools
import os
import re
import shutil
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_practice.config.reading.env import project
from grpo_practice.rollout.tools.python import seccomp
from grpo_practice.rollout.tools.python.backend import Backend, refused
from grpo_practice.rollout.tools.python.cpython import (
    ENVIRONMENT,
    FILE_MB,
    Launch,
    execute,
    python_arguments,
)
from grpo_practice.rollout.tools.python.interpreter import Interpreter, installed
from grpo_practice.rollout.tools.python.probe import try_backend

OLDEST = (0, 7)
"""Oldest version that can limit the size of a tmpfs."""
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/nix/store", "/etc/ld.so.cache")
_NOBODY = "65534"
_UIDS = itertools.cycle(range(64_000, 65_000))
"""User ids for code started by root, a new one per execution: the kernel limits processes per
user.
"""
ABOUT = "no network; files can be written in /tmp and are gone after the call"


async def open_bwrap(python: str | None, folder: Path, memory_mb: int) -> Backend:
    """Return the backend after a trial run.

    Args:
        python: The interpreter; None for the one that runs this program.
        folder: Folder that the interpreter's path is relative to. This folder, the current one, and
            the projects that contain them are hidden from the code.
        memory_mb: Maximum memory of one process.

    Raises:
        ConfigError: The backend does not work here, or project and interpreter share a folder.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise refused("bwrap", "cannot find the program bwrap", "install the package bubblewrap")
    version = await _version(bwrap)
    interpreter = installed(python, folder)
    here = {place.resolve() for place in (folder, Path.cwd())}
    private = tuple(sorted(here | {project(place) for place in here}))
    sandbox = Sandbox(bwrap, interpreter, version, root=os.geteuid() == 0, private=private)
    for place in sandbox.shown():
        raise refused(
            "bwrap",
            f"{place} is both the folder of your project and one that code must read",
            "move the virtual environment or the project to a folder of its own",
        )

    async def run(code: str, limit_s: float) -> str:
        return await execute(sandbox.start(), code, limit_s=limit_s, memory_mb=memory_mb)

    ran, able = await try_backend("bwrap", run, closed=True)
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
    """The command line of bwrap for one configuration.

    Args:
        bwrap: The program.
        python: The interpreter. Only its folders and the system's are visible on the disk.
        version: Version of bwrap.
        root: True when this process runs as root. The kernel limits the processes neither of root
            nor of a user who is root outside the user namespace: so no user namespace is created,
            and the code runs as another user.
        private: Resolved folders that appear empty if they lie inside a visible folder.
    """

    bwrap: str
    python: Interpreter
    version: tuple[int, ...]
    root: bool
    private: tuple[Path, ...] = ()

    def start(self) -> Launch:
        """Return the description of one execution."""
        job = {"uid": next(_UIDS)} if self.root else {}
        return Launch(self.command(), job, {}, seccomp=seccomp.machine_filter())

    def shown(self) -> list[Path]:
        """Return the private folders that cannot be hidden, because the code needs all of them."""
        return [source for source, _ in self._seen() if source in self.private]

    def command(self) -> list[str]:
        """Return the command line. Writable folders are kept in memory and have a size limit."""
        size, variables = str(FILE_MB * 2**20), (ENVIRONMENT | {"HOME": "/tmp"}).items()
        return [
            self.bwrap,
            *self._apart(),
            # Without a new session, code could type into the user's terminal (TIOCSTI).
            *("--new-session", "--die-with-parent", "--clearenv"),
            *(arg for variable in variables for arg in ("--setenv", *variable)),
            *("--perms", "0755", "--dir", "/etc"),
            *(arg for path in _SYSTEM for arg in ("--ro-bind-try", path, path)),
            *("--proc", "/proc", "--dev", "/dev"),
            *("--perms", "1777", "--size", size, "--tmpfs", "/dev/shm"),
            *("--remount-ro", "/dev"),
            *("--perms", "1777", "--size", size, "--tmpfs", "/tmp"),
            *self._interpreter(),  # last, because the interpreter may lie in /tmp
            *("--remount-ro", "/", "--chdir", "/tmp"),
            *("--", self.python.path, *python_arguments()),
        ]

    def _apart(self) -> Sequence[str]:
        if self.root:
            return (
                *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
                *("--unshare-cgroup-try", "--cap-drop", "ALL"),
                # Needed by the program inside to switch to another user.
                *("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"),
            )
        nested = ("--disable-userns",) if self.version >= (0, 8) else ()
        return ("--unshare-all", "--unshare-user", *nested, "--uid", _NOBODY, "--gid", _NOBODY)

    def _seen(self) -> list[tuple[Path, Path]]:
        """Return all visible folders of the disk, each with its path inside the sandbox."""
        system = [(Path(path).resolve(), Path(path)) for path in _SYSTEM]
        return [*system, *self.python.mounts(_SYSTEM, self.private)]

    def _hidden(self) -> Iterator[Path]:
        for source, place in self._seen():
            for folder in self.private:
                if folder.is_relative_to(source):
                    yield place / folder.relative_to(source)

    def _interpreter(self) -> Iterator[str]:
        """Yield the arguments that mount the interpreter's folders and create their parents.

        Private folders are covered wherever they appear; outer folders come before inner ones.
        """
        made = {Path("/"), Path("/tmp"), *map(Path, _SYSTEM)}
        sources = {place: source for source, place in self._seen()[len(_SYSTEM) :]}
        hidden = set(self._hidden())
        for place in sorted({*sources, *hidden}, key=lambda place: len(place.parts)):
            if place in hidden:
                yield from ("--perms", "0755", "--tmpfs", str(place))
                continue
            for parent in reversed(place.parents):
                if parent not in made:
                    made.add(parent)
                    yield from ("--perms", "0755", "--dir", str(parent))
            yield from ("--ro-bind", str(sources[place]), str(place))
        for place in sorted(hidden):
            yield from ("--remount-ro", str(place))
