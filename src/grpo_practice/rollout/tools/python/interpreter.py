"""The interpreter that a backend starts, and the folders that it needs."""

import asyncio
import json
import os
import re
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_practice.rollout.tools.python.backend import refused

_ASK = "import json, sys; print(json.dumps([sys.executable, sys.prefix, sys.base_prefix]))"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python interpreter on this machine."""

    path: str
    prefixes: tuple[Path, ...]
    """Folders of the interpreter and of its packages."""

    def mounts(
        self, system: Sequence[str], private: Sequence[Path] = ()
    ) -> Iterator[tuple[Path, Path]]:
        """Yield source and destination of folders and links to mount in addition to `system`.

        Folders inside a `private` folder are included, because private folders are hidden.
        """
        seen = [Path(path) for path in system]
        link = Path(self.path)
        for place in (*self.prefixes, *(p.resolve() for p in self.prefixes), *_links(link)):
            over = [folder for folder in (*seen, *private) if place.is_relative_to(folder)]
            if not over or max(over, key=lambda folder: len(folder.parts)) in private:
                seen.append(place)
                yield place.resolve(), place


def _links(path: Path) -> Iterator[Path]:
    """Yield the path and, if it is a symbolic link, every link on the way to the real file."""
    # Linux also follows at most 40 links; a circle of links would never end.
    for _ in range(40):
        yield path
        if not path.is_symlink():
            return
        path = Path(os.path.normpath(path.parent / path.readlink()))


def installed(python: str | None, folder: Path) -> Interpreter:
    """Return the configured interpreter for a sandbox; None for the one that runs this program.

    The interpreter's folders are derived from nearby files without running anything: a config may
    name any program, and only the sandbox may run it.

    Raises:
        ConfigError: There is no such interpreter, or its folders contain the user's home.
    """
    path = _located("bwrap", python, folder)
    own = (Path(sys.prefix), Path(sys.base_prefix))
    prefixes = tuple(dict.fromkeys(own if python is None else _prefixes(Path(path))))
    if not any(map(_holds_library, prefixes)):
        raise refused(
            "bwrap",
            f"{python or path} is not a Python interpreter: no standard library is next to it",
            "set config.python to `bin/python` of an installation or of a virtual environment",
        )
    _refuse_home("bwrap", path, prefixes)
    return Interpreter(path, prefixes)


def _prefixes(program: Path) -> Iterator[Path]:
    """Yield the folder of a virtual environment, and the folders of its standard library."""
    programs = [*_links(program), program.resolve()]
    config = program.parent.parent / "pyvenv.cfg"
    if config.is_file():
        yield config.parent
        settings = config.read_text("utf-8", "replace")
        if home := re.search(r"^home *= *(/.*?) *$", settings, re.MULTILINE):
            base = Path(home[1]) / "python3"
            programs += [*_links(base), base.resolve()]
    yield from filter(_holds_library, (program.parent.parent for program in programs))


def _holds_library(prefix: Path) -> bool:
    return any(prefix.glob("lib*/py*3*/os.py"))


async def find(python: str | None, folder: Path) -> Interpreter:
    """Return the configured interpreter for `subprocess`; None for the one that runs this program.

    The interpreter is run to find its folders; this backend has no sandbox anyway.

    Raises:
        ConfigError: There is no such interpreter, or its folders contain the user's home.
    """
    path = _located("subprocess", python, folder)
    try:
        process = await asyncio.create_subprocess_exec(path, "-I", "-c", _ASK, stdout=PIPE)
        path, *prefixes = json.loads((await process.communicate())[0])
    except (OSError, ValueError) as e:
        raise refused(
            "subprocess",
            f"{python or path} is not a Python interpreter: {e}",
            "correct config.python",
        ) from e
    found = tuple(dict.fromkeys(Path(p) for p in prefixes))
    _refuse_home("subprocess", path, found)
    return Interpreter(path, found)


def _located(backend: str, python: str | None, folder: Path) -> str:
    """Return the absolute path of the program; raise ConfigError if there is no such file."""
    name = python or sys.executable
    found = folder / name if os.sep in name else shutil.which(name)
    if found is None or not Path(found).is_file():
        raise refused(backend, f"cannot find the program {name}", "correct config.python")
    # A path without a folder would be looked up in PATH when it is run.
    return str(Path(found).absolute())


def _refuse_home(backend: str, path: str, prefixes: Sequence[Path]) -> None:
    for prefix in prefixes:
        if Path.home().is_relative_to(prefix):
            raise refused(backend, f"the folder of {path}, {prefix}, contains your home folder")
