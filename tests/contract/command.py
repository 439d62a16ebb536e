"""The installed command, typed in this process or in one of its own."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from tests.processes import program

PROGRAM = "grpo-practice"
BOUND = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"] if os.geteuid() == 0 else []
"""Start of a command by somebody whom permissions bind, as they do not bind root."""


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        found: dict[str, Any] = json.loads(self.out)
        return found


Gp = Callable[..., Ran]


def run(*words: str) -> int:
    """Run `grpo-practice WORDS…` in this process, as the installed script does; return its code."""
    with _argv(words):
        try:
            _main()()
        except SystemExit as e:
            return e.code if isinstance(e.code, int) else 0
    return 0


def typed(*words: str) -> Ran:
    """Run `grpo-practice WORDS…` as `run` does; return what it printed, too."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(err):
        code = run(*words)
    return Ran(code, *(stream.buffer.getvalue().decode("utf-8") for stream in (out, err)))


def process(*words: str, first: str = "", **options: Any) -> "subprocess.Popen[str]":
    """Start `grpo-practice WORDS…` in a process of its own; `first` is Python that runs before."""
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options}
    return subprocess.Popen(program(*words, first=first), **given)


_COMMANDS = """
import contextlib, io, json, sys
from importlib.metadata import entry_points
(script,) = entry_points(group="console_scripts", name="grpo-practice")
main, said = script.load(), []
for command in json.load(sys.stdin):
    sys.argv = ["grpo-practice", *command.split()]
    out, err, code = io.StringIO(), io.StringIO(), 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as e:
            code = e.code if isinstance(e.code, int) else 0
    said.append([code, out.getvalue(), err.getvalue()])
json.dump(said, sys.stdout)
"""

Said = list[list[Any]]
"""What each command said: exit code, stdout, stderr."""


def commands(words: list[str], folder: Path, *start: str) -> Said:
    """Run commands in this folder, one after the other in one process that `start` starts."""
    done = subprocess.run(
        [*start, sys.executable, "-c", _COMMANDS],
        cwd=folder,
        input=json.dumps(words),
        capture_output=True,
        text=True,
        check=True,
    )
    said: Said = json.loads(done.stdout)
    return said


@cache
def _main() -> Callable[[], None]:
    """Return the function behind the installed script."""
    (script,) = entry_points(group="console_scripts", name=PROGRAM)
    path = list(sys.path)
    main: Callable[[], None] = script.load()
    sys.path[:] = path  # the program's own has no current folder, where the tests are
    return main


@contextmanager
def _argv(words: tuple[str, ...]) -> Iterator[None]:
    before = sys.argv
    sys.argv = [PROGRAM, *words]
    try:
        yield
    finally:
        sys.argv = before
