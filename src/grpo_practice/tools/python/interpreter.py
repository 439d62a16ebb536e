"""The interpreter that a backend starts, and the folders that it needs."""

import asyncio
import json
import os
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_practice.tools.python.backend import refused

_ASK = "import json, sys; print(json.dumps([sys.executable, sys.prefix, sys.base_prefix]))"


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python on this machine."""

    path: str
    prefixes: tuple[Path, ...]
    """The folders that it and its packages are in."""

    def mounts(
        self, system: Sequence[str], private: Sequence[Path] = ()
    ) -> Iterator[tuple[Path, Path]]:
        """Return what must be seen of the disk beside `system`, and where: folders and links.

        Also where it lies in one of the folders `private`, which are not seen.
        """
        seen = [Path(path) for path in system]
        link = Path(self.path)
        for place in (*self.prefixes, *(p.resolve() for p in self.prefixes), *_links(link)):
            over = [folder for folder in (*seen, *private) if place.is_relative_to(folder)]
            if not over or max(over, key=lambda folder: len(folder.parts)) in private:
                seen.append(place)
                yield place.resolve(), place


def _links(path: Path) -> Iterator[Path]:
    """Yield the file, and every file it is a link to, on the way to the one that is none."""
    for _ in range(40):
        yield path
        if not path.is_symlink():
            return
        path = Path(os.path.normpath(path.parent / path.readlink()))


async def find(backend: str, python: str | None, folder: Path) -> Interpreter:
    """Return the interpreter of a config; None is the one that runs this program.

    Raises:
        ConfigError: There is none, or its folders hold the user's home.
    """
    name = python or sys.executable
    path = str(folder / name) if os.sep in name else shutil.which(name)
    if path is None:
        raise refused(backend, f"there is no program {name}", "correct config.python")
    try:
        process = await asyncio.create_subprocess_exec(path, "-I", "-c", _ASK, stdout=PIPE)
        path, *prefixes = json.loads((await process.communicate())[0])
    except (OSError, ValueError) as e:
        raise refused(backend, f"{name} is no Python: {e}", "correct config.python") from e
    for prefix in prefixes:
        if Path.home().is_relative_to(prefix):
            raise refused(backend, f"the folder of {name}, {prefix}, holds your home")
    return Interpreter(path, tuple(dict.fromkeys(Path(p) for p in prefixes)))
