"""A process that ends the programs of a run whose own process was killed, and removes its folders.

`kill -9` leaves no time to end anything, and the system tells a child nothing. The pipe that is
closed then does: whoever reads it knows, and ends what is left.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

ENDING_S = 1.0
"""Seconds for a command to end by itself."""
_LOOK_S = 0.1


class Reaper:
    """Process groups and folders that end with this process, in whatever way it ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, what: int | Path) -> None:
        """Let a process group end with this process, or a folder that may not be there yet."""
        if self._process is None:
            # Of its own session: a Ctrl-C is not for it. Of the standard library alone: 15 ms.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__],
                stdin=subprocess.PIPE,
                bufsize=0,
                env={},
                start_new_session=True,
            )
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)  # no rollout waits for it
        self._tell("+", what)

    def discard(self, what: int | Path) -> None:
        """Forget a group that has ended, since its number may become another's, or a folder."""
        if self._process is not None:  # not if it could not be started
            self._tell("-", what)

    def close(self) -> None:
        """End the process; every group has to have ended."""
        if self._process is not None:
            assert self._process.stdin is not None
            with suppress(OSError):
                self._process.stdin.close()
            self._process.wait()
            self._process = None

    def _tell(self, sign: str, what: int | Path) -> None:
        assert self._process is not None, "add() starts it"
        assert self._process.stdin is not None
        with suppress(OSError):  # somebody has ended it; the rollouts go on
            named = what if isinstance(what, int) else str(what)
            self._process.stdin.write(f"{sign}{json.dumps(named)}\n".encode())


def end_together() -> None:
    """Let all that this process starts end with it, however it ends: also by C code, or kill -9.

    Another process ends its group, since none of its own would see to it.
    """
    with suppress(PermissionError):  # it leads a session, and so a group
        os.setpgid(0, 0)
    subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        start_new_session=True,
    ).returncode = 0  # nobody waits for it


def _watch(process: int) -> None:
    """Wait until the process, our parent, has ended; end its group."""
    # A pipe would not do: what the process forks holds its end, too.
    while os.getppid() == process:
        time.sleep(_LOOK_S)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)


def _end(groups: set[int]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        for group in groups:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(group, number)
        if number == signal.SIGTERM and groups:
            time.sleep(ENDING_S)


def _main() -> None:
    if len(sys.argv) > 1:
        _watch(int(sys.argv[1]))
        return
    left = set[int | str]()
    for line in sys.stdin.buffer:
        (left.add if line.startswith(b"+") else left.discard)(json.loads(line[1:]))
    _end({group for group in left if isinstance(group, int)})
    for folder in left:
        if isinstance(folder, str):
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _main()
