"""Signals, and outputs that cannot be written: a command ends in order, and keeps what is paid."""

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_run_commands import Shell, shell
from tests.contract.endpoint.actions import Action, Wire, always, simulated
from tests.contract.endpoint.server import FaultServer, serving
from tests.processes import HANG_S, alive, program, until

__all__ = ["shell"]

pytestmark = pytest.mark.slow

PATIENT = "d.GRACE_S = d.LEAVE_S = 1000"
"""A command that would wait longer than any test."""
IMPATIENT = "d.GRACE_S, d.LEAVE_S = 0.2, 1000"
"""A command that soon cancels what is under way, and waits until that has ended."""
BRIEF = "d.GRACE_S, d.LEAVE_S = 0.2, 0.5"
"""A command that soon leaves what does not let itself be cancelled."""
PIPE_SIZE: int | None = getattr(fcntl, "F_SETPIPE_SZ", None)


class Slow:
    """The simulated endpoint, which holds its replies back until it is released."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._released = asyncio.Event()
        self.server = FaultServer(always(Action("held", self._hold)))

    async def _hold(self, wire: Wire) -> bool:
        self._loop = asyncio.get_running_loop()
        await self._released.wait()
        return await simulated().play(wire)

    def asked(self) -> int:
        return len(self.server.asked)

    def release(self) -> None:
        if self._loop is None:
            self._released.set()
        else:
            self._loop.call_soon_threadsafe(self._released.set)

    def words(self, *more: str) -> list[str]:
        key = "evaluation.agent.model.model_provider.base_url"
        return ["practice", "--config", "math.yaml", "--set", f"{key}={self.server.url}", *more]


@pytest.fixture
def slow() -> Iterator[Slow]:
    held = Slow()
    with serving(held.server.script) as held.server:
        yield held


def start(shell: Shell, words: list[str], settings: str = "", **how: Any) -> subprocess.Popen[str]:
    """The command in a process of its own, with the waits of its end as `settings` says."""
    command = program(*words, first=f"import grpo_practice.run.waiting as d\n{settings}")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **how}
    return subprocess.Popen(command, cwd=shell.folder, env=shell.env, text=True, **pipes)


def read_to(process: subprocess.Popen[str], word: str) -> str:
    """What it says on stderr up to the first line with this word."""
    assert process.stderr is not None
    lines = [process.stderr.readline()]
    while word not in lines[-1]:
        assert lines[-1], lines
        lines.append(process.stderr.readline())
    return "".join(lines)


def ended(shell: Shell) -> list[tuple[Any, ...]]:
    return shell.query(
        "SELECT exit_code, reason, r.status FROM invocations JOIN runs r USING (run_id)"
    )


def kept(shell: Shell) -> tuple[int, int]:
    """Replies, and scored rollouts."""
    sql = "SELECT (SELECT count(*) FROM calls), (SELECT count(reward) FROM verdicts)"
    replies, scored = shell.query(sql)[0]
    return replies, scored


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        *(pytest.param(n, marks=pytest.mark.long) for n in (signal.SIGHUP, signal.SIGTERM)),
    ],
)
def test_1_62_after_one_signal_what_is_in_flight_is_kept(
    shell: Shell, slow: Slow, number: signal.Signals
) -> None:
    with start(shell, slow.words(), PATIENT) as process:
        until(lambda: slow.asked() >= 8, process)
        process.send_signal(number)
        stopping = read_to(process, "stopping")
        slow.release()
        told = stopping + process.communicate(timeout=HANG_S)[1]
    code = 128 + number
    assert process.returncode == code, told
    again = "Ctrl-C again" if number == signal.SIGINT else "a second signal"
    assert f"stopping: waiting up to 1000 s for 8 requests; {again} to leave now" in told
    assert "stopped; all answers so far are stored" in told
    assert "to continue: grpo-practice practice --config math.yaml" in told
    assert ended(shell) == [(code, f"stopped by {number.name}", "stopped")]
    assert slow.asked() == 8
    assert kept(shell) == (8, 8)
    assert shell.type("db", "check")[0].endswith("it is intact\n")


@pytest.mark.long
def test_1_62_what_takes_too_long_is_cancelled(shell: Shell, slow: Slow) -> None:
    with start(shell, slow.words(), IMPATIENT) as process:
        until(lambda: slow.asked() >= 8, process)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=HANG_S)
    assert process.returncode == 143, told
    assert ended(shell) == [(143, "stopped by SIGTERM", "stopped")]


@pytest.mark.long
def test_1_62_a_second_signal_leaves_at_once(shell: Shell, slow: Slow) -> None:
    with start(shell, slow.words(), PATIENT) as process:
        until(lambda: slow.asked() >= 8, process)
        process.send_signal(signal.SIGINT)
        read_to(process, "stopping")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=HANG_S)
    assert process.returncode == 130, told
    assert ended(shell) == [(130, "stopped by SIGINT", "stopped")]


@pytest.mark.long
def test_1_62_a_verify_function_that_blocks_everything_does_not_keep_the_command(
    shell: Shell, slow: Slow
) -> None:
    (shell.folder / "v.py").write_text(
        "import pathlib, time\n"
        "async def check(sample, **kwargs):\n"
        "    pathlib.Path('started').touch()\n"
        "    time.sleep(1000)\n"
    )
    slow.release()
    words = slow.words("--set", "evaluation.verify=v.py:check")
    with start(shell, words, BRIEF) as process:
        until((shell.folder / "started").exists, process)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=HANG_S)
    assert process.returncode == 143
    assert "stopped without waiting for tasks that hang" in told
    assert kept(shell)[0] >= 1
    _, told = shell.type(*slow.words("--set", "evaluation.verify=exact"))
    assert "did not end cleanly" in told
    sql = "SELECT exit_code, reason FROM invocations ORDER BY invocation_id"
    assert shell.query(sql) == [(None, "died"), (0, None)]


@pytest.mark.long
@pytest.mark.skipif(PIPE_SIZE is None, reason="nobody can make a pipe small")
def test_1_62_a_signal_during_the_final_report(shell: Shell) -> None:
    reading, writing = os.pipe()
    assert PIPE_SIZE is not None
    size = fcntl.fcntl(writing, PIPE_SIZE, 4096)
    os.write(writing, b"x" * (size - ROOM))
    with start(
        shell, ["eval", "--config", "math.yaml", "--verify", "exact"], stdout=writing
    ) as process:
        os.close(writing)
        # Not once the run is done: until the report begins a signal comes too late to matter.
        until(lambda: waiting_bytes(reading) > size - ROOM, process)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=HANG_S)
    os.close(reading)
    assert process.returncode == 130, told
    assert "Traceback" not in told
    assert ended(shell) == [(0, None, "done")]


ROOM = 200
"""Bytes of the report that the pipe takes before it is full."""


def waiting_bytes(pipe: int) -> int:
    """How many bytes can be read."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.long
@pytest.mark.parametrize(
    ("redirected", "code", "said"),
    [
        ("> /dev/full", 1, "error: cannot write the output: No space left on device"),
        ("| true", 141, ""),
        ("<&- >&- 2>&-", 0, ""),
        ("2> /dev/full", 0, ""),
        ("--json > /dev/full", 1, "error: cannot write the output: No space left on device"),
    ],
)
def test_1_62_an_output_that_cannot_be_written_harms_no_run(
    shell: Shell, redirected: str, code: int, said: str
) -> None:
    if "/dev/full" in redirected and not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")
    gp = f"{sys.executable} -m grpo_practice"
    command = f"{gp} eval --config math.yaml --verify exact {redirected}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=shell.folder, env=shell.env, capture_output=True, text=True
    )
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "internal error" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert ended(shell) == [(0, None, "done")]
    assert shell.query("SELECT count(reward) FROM verdicts") == [(12,)]
    assert shell.query("PRAGMA integrity_check") == [("ok",)]


OWNER = """
import asyncio, sys
from pathlib import Path
from grpo_practice.core.types import Sample
from grpo_practice.verify.resolve import resolve
from grpo_practice.verify.verifier import Verifier

async def main():
    async with Verifier(resolve(sys.argv[1], {}, 1000.0, Path("."))) as verify:
        await verify(Sample("q", "1"), "1", None)

if __name__ == "__main__":
    asyncio.run(main())
"""
BUSY = """
import os, pathlib
def check(sample, **kwargs):
    pathlib.Path("worker").write_text(str(os.getpid()))
    return 10 ** (10 ** 9)  # one instruction, for minutes
"""


def test_1_62_no_worker_outlives_a_command_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "owner.py").write_text(OWNER)
    (tmp_path / "v.py").write_text(BUSY)
    worker = tmp_path / "worker"
    owner = subprocess.Popen(
        [sys.executable, "owner.py", "v.py:check"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path("src").resolve())},
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with owner:
        until(lambda: worker.exists() and worker.read_text() != "", owner)
        owner.kill()
    until(lambda: not alive(int(worker.read_text())))
