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

from grpo_practice.config.reading.env import project
from grpo_practice.tools.python import seccomp
from grpo_practice.tools.python.backend import Backend, refused
from grpo_practice.tools.python.cpython import (
    ENVIRONMENT,
    FILE_MB,
    Start,
    execute,
    python_arguments,
)
from grpo_practice.tools.python.interpreter import Interpreter, installed
from grpo_practice.tools.python.probe import try_backend

OLDEST = (0, 7)
"""The first version that can limit what is written to memory."""
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/nix/store", "/etc/ld.so.cache")
_NOBODY = "65534"
_UIDS = itertools.cycle(range(64_000, 65_000))
"""Users that code runs as when we are root; a new one each time: processes are limited per user."""
ABOUT = "no network; files can be written in /tmp and are gone after the call"


async def open_bwrap(python: str | None, folder: Path, memory_mb: int) -> Backend:
    """Return the backend, tried.

    Args:
        python: The interpreter; None is the one that runs this program.
        folder: What its path is relative to. That folder is not seen, nor is where we are, nor the
            projects that these are in.
        memory_mb: Most memory of one process.

    Raises:
        ConfigError: It does not work here, or the project is where the interpreter is.
    """
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        raise refused("bwrap", "there is no program bwrap", "install the package bubblewrap")
    version = await _version(bwrap)
    interpreter = installed(python, folder)
    here = {place.resolve() for place in (folder, Path.cwd())}
    private = tuple(sorted(here | {project(place) for place in here}))
    sandbox = Sandbox(bwrap, interpreter, version, root=os.geteuid() == 0, private=private)
    for place in sandbox.shown():
        raise refused(
            "bwrap",
            f"{place} is both the folder of your project and one that code must read",
            "have the virtual environment, or the project, in a folder of its own",
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
    """How bwrap is called.

    Args:
        bwrap: The program.
        python: The interpreter. Only its folders and the system's are seen of the disk.
        version: Version of bwrap.
        root: True when we are root. The kernel limits no processes of root, nor of who is root
            outside a user namespace: there is none then, and the code runs as somebody else.
        private: Folders, resolved, that are shown empty where they lie in one that is seen.
    """

    bwrap: str
    python: Interpreter
    version: tuple[int, ...]
    root: bool
    private: tuple[Path, ...] = ()

    def start(self) -> Start:
        """Describe one execution."""
        job = {"uid": next(_UIDS)} if self.root else {}
        return Start(self.command(), job, {}, seccomp=seccomp.machine_filter())

    def shown(self) -> list[Path]:
        """Return the private folders that cannot be hidden: all of each is needed."""
        return [source for source, _ in self._seen() if source in self.private]

    def command(self) -> list[str]:
        """Return the command line. Writable places are memory, and limited."""
        size, variables = str(FILE_MB * 2**20), (ENVIRONMENT | {"HOME": "/tmp"}).items()
        return [
            self.bwrap,
            *self._apart(),
            # Without a new session code could type into the user's terminal (TIOCSTI).
            *("--new-session", "--die-with-parent", "--clearenv"),
            *(arg for variable in variables for arg in ("--setenv", *variable)),
            *("--perms", "0755", "--dir", "/etc"),
            *(arg for path in _SYSTEM for arg in ("--ro-bind-try", path, path)),
            *("--proc", "/proc", "--dev", "/dev"),
            *("--perms", "1777", "--size", size, "--tmpfs", "/dev/shm"),
            *("--remount-ro", "/dev"),
            *("--perms", "1777", "--size", size, "--tmpfs", "/tmp"),
            *self._interpreter(),  # last: it may lie in /tmp
            *("--remount-ro", "/", "--chdir", "/tmp"),
            *("--", self.python.path, *python_arguments()),
        ]

    def _apart(self) -> Sequence[str]:
        if self.root:
            return (
                *("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"),
                *("--unshare-cgroup-try", "--cap-drop", "ALL"),
                # The two by which the program inside becomes another user.
                *("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"),
            )
        nested = ("--disable-userns",) if self.version >= (0, 8) else ()
        return ("--unshare-all", "--unshare-user", *nested, "--uid", _NOBODY, "--gid", _NOBODY)

    def _seen(self) -> list[tuple[Path, Path]]:
        """Return all that is seen of the disk, and where."""
        system = [(Path(path).resolve(), Path(path)) for path in _SYSTEM]
        return [*system, *self.python.mounts(_SYSTEM, self.private)]

    def _hidden(self) -> Iterator[Path]:
        for source, place in self._seen():
            for folder in self.private:
                if folder.is_relative_to(source):
                    yield place / folder.relative_to(source)

    def _interpreter(self) -> Iterator[str]:
        """Yield what shows its folders where they are outside, and what is above them.

        Private folders are covered wherever they are; the outer folder comes before the inner one.
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
