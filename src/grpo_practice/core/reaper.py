"""A process that ends the programs and removes the folders of a run whose process was killed.

`kill -9` leaves no time for clean-up, and the system does not notify child processes. However, the
system then closes the pipe to the reaper, which reads the end of the file and ends the remaining
programs.
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
"""Seconds that a command gets to end by itself."""
_LOOK_S = 0.1


class Reaper:
    """Process groups and folders that are cleaned up however this process ends."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, what: int | Path) -> None:
        """Register a process group or a folder for clean-up; the folder need not exist yet."""
        if self._process is None:
            # In its own session, so that a Ctrl-C does not end it. With the standard library only,
            # so that it starts in 15 ms.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__],
                stdin=subprocess.PIPE,
                bufsize=0,
                env={},
                start_new_session=True,
            )
            assert self._process.stdin is not None
            os.set_blocking(self._process.stdin.fileno(), False)  # no rollout may wait for it
        self._tell("+", what)

    def discard(self, what: int | Path) -> None:
        """Forget a folder, or a process group that has ended: its number may be reused."""
        if self._process is not None:  # None if it could not be started
            self._tell("-", what)

    def close(self) -> None:
        """End the reaper process; every registered group must have ended."""
        if self._process is not None:
            assert self._process.stdin is not None
            with suppress(OSError):
                self._process.stdin.close()
            self._process.wait()
            self._process = None

    def _tell(self, sign: str, what: int | Path) -> None:
        assert self._process is not None, "add() starts it"
        assert self._process.stdin is not None
        with suppress(OSError):  # if the reaper was killed, the rollouts continue without it
            named = what if isinstance(what, int) else str(what)
            self._process.stdin.write(f"{sign}{json.dumps(named)}\n".encode())


def end_together() -> None:
    """End all child processes with this process, however it ends, even in C code or by kill -9.

    A separate process outside the group waits until this process has ended, then kills the group.
    """
    with suppress(PermissionError):  # a session leader already leads a group
        os.setpgid(0, 0)
    subprocess.Popen(
        [sys.executable, "-I", "-S", __file__, str(os.getpid())],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={},
        start_new_session=True,
    ).returncode = 0  # nobody waits for this process, and Popen must not warn about it


def _watch(process: int) -> None:
    """Wait until the parent process has ended, then kill its group."""
    # Poll instead of reading a pipe: children forked by the process would hold the pipe open.
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
    # The loop ends when the pipe is closed, by close() or because the other process has ended.
    for line in sys.stdin.buffer:
        (left.add if line.startswith(b"+") else left.discard)(json.loads(line[1:]))
    _end({group for group in left if isinstance(group, int)})
    for folder in left:
        if isinstance(folder, str):
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    _main()
