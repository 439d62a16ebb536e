"""The program in a sandbox: the code it reads is executed in a child, and all ends with its caller.

The text of this file is given to `python -c`, so it imports nothing but the standard library,
and is kept to what Python 3.9 knows. Standard input brings one line of JSON, the job, and stays
open: when it closes, whoever asked is gone or has had enough, and everything is killed.
"""

import ast
import contextlib
import json
import linecache
import os
import re
import resource
import select
import shutil
import signal
import sys
import threading
import time
import traceback
import types
from typing import Any, NoReturn

NAME = "<code>"
STARTED = b"\x06"
"""Written first: what follows is the code's."""
_LIBRARY = re.compile(r'File "[^"]*/(?:(?:site|dist)-packages|lib/python3\.\d+)/')
_SPARE = 64 * 2**20
"""Bytes of memory beyond the limit, to say that it was reached."""


def main() -> None:
    """Run the job; returns in the child that has run it."""
    job = _job()
    if job.get("adopt"):  # become the parent of every orphan below, where the system can do that
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    # Before the fork: once the child runs, anything may be written first.
    os.write(1, STARTED)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        # The code must not read the pipe by which this program learns that its caller is gone.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        _confine(job)
        play(job["code"])
        return
    _wait(child, job)


def _job() -> dict[str, Any]:
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 1 << 16)
        if not part:
            sys.exit("no job")
        line += part
    job: dict[str, Any] = json.loads(line)
    return job


# The child


def _confine(job: dict[str, Any]) -> None:
    memory = job["memory_mb"] * 2**20
    limits = [
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_NOFILE, 256, 256),
        (resource.RLIMIT_FSIZE, job["file_mb"] * 2**20, job["file_mb"] * 2**20),
        (resource.RLIMIT_CPU, int(job["limit_s"]) + 1, int(job["limit_s"]) + 2),
        (resource.RLIMIT_AS, memory, memory + _SPARE),
    ]
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write("1000")  # not all memory is limited: where there is none left, this goes first
    uid = job.get("uid")
    if uid is not None:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    # After setuid: the kernel counts the processes of that user, and not those of root.
    processes = job["processes"] + _tasks(os.getuid())
    limits.append((resource.RLIMIT_NPROC, processes, processes))
    for which, soft, hard in limits:
        most = resource.getrlimit(which)[1]
        if most != resource.RLIM_INFINITY:
            # Beyond the hard limit setrlimit() fails for all but root.
            soft, hard = min(soft, most), min(hard, most)
        try:
            resource.setrlimit(which, (soft, hard))
        except (ValueError, OSError):
            if sys.platform == "linux":  # others have no limit of memory
                raise


def _tasks(uid: int) -> int:
    """Count the processes and threads the user has already, which the limit counts, too."""
    count = 0
    for pid in _pids():
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == uid:  # noqa: PTH116
                count += len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208
    return count


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208
    except OSError:
        return []


def play(code: str) -> None:
    """Run the code as a notebook's cell: what it prints, its last value, or why it failed."""
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    sys.argv = [NAME]
    linecache.cache[NAME] = (len(code), None, (code + "\n").splitlines(True), NAME)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        tree = ast.parse(code, NAME)
        body, last = tree.body, None
        if body and isinstance(body[-1], ast.Expr):
            last = compile(ast.Expression(body.pop().value), NAME, "eval")  # type: ignore[attr-defined]
        first = compile(tree, NAME, "exec")
    except Exception as e:  # noqa: BLE001 - whatever a compiler says of it
        sys.stdout.write("".join(traceback.format_exception_only(type(e), e)))
        return
    try:
        exec(first, module.__dict__)
        value = None if last is None else eval(last, module.__dict__)
        if value is not None:
            sys.stdout.write(repr(value) + "\n")
    except SystemExit:
        raise
    except BaseException as e:  # noqa: BLE001 - all of it is for the reader
        _tell(e)


def _tell(error: BaseException) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with contextlib.suppress(ValueError, OSError):
        # To the hard limit: a traceback of a MemoryError takes memory itself.
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    try:
        told = traceback.TracebackException.from_exception(error)
        _shorten(told, 4)
        text = _LIBRARY.sub('File "', "".join(told.format()))
    except BaseException:  # noqa: BLE001 - no memory, or an error that cannot be shown
        text = type(error).__name__ + "\n"
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
    os.write(1, text.encode("utf-8", "backslashreplace"))


def _shorten(told: Any, deep: int) -> None:
    """Leave of each stack the frames in the code itself, and the innermost one."""
    frames = [f for f in told.stack[:-1] if f.filename == NAME] + told.stack[-1:]
    if len(frames) > 20:
        frames = frames[:4] + frames[-12:]
    told.stack[:] = [f for f in frames if f.filename != "<string>"]
    for other in (told.__cause__, told.__context__):
        if other is not None and deep:
            _shorten(other, deep - 1)


# The parent


def _wait(child: int, job: dict[str, Any]) -> NoReturn:
    """Leave when the child has ended, nobody listens any more, or its time is long over."""
    threading.Thread(target=_watch, args=(child, job), daemon=True).start()
    status = _reaped(child)
    _end(child, job)
    if os.WIFSIGNALED(status):
        os.write(1, f"\n[{_why(os.WTERMSIG(status))}]".encode())
    os._exit(0)


def _reaped(child: int) -> int:
    while True:
        try:
            # Of any child: with `adopt`, orphans of the code end here as well and must be reaped.
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:  # the other thread was faster, and ends all of this
            time.sleep(60)
        else:
            if pid == child:
                return status


def _why(number: int) -> str:
    if number == signal.SIGXCPU:
        return "stopped: it used more processor time than it has"
    return "the interpreter was killed by " + signal.Signals(number).name


def _watch(child: int, job: dict[str, Any]) -> None:
    # The caller ends it sooner; the time is for one that hangs with the pipe open.
    select.select([0], [], [], job["limit_s"] + 5)
    _end(child, job)
    os._exit(0)


def _end(child: int, job: dict[str, Any]) -> None:
    """Kill the child and, with `adopt`, all that descends from it; remove its folder."""
    for kill in (os.killpg, os.kill):
        with contextlib.suppress(OSError):
            kill(child, signal.SIGKILL)
    if job.get("adopt"):
        for _ in range(1000):
            below = [pid for pid, parent in _parents() if parent == os.getpid()]
            if not below:
                break
            for pid in below:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)
            with contextlib.suppress(OSError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
    if job.get("folder"):
        shutil.rmtree(job["folder"], ignore_errors=True)


def _parents() -> list[tuple[int, int]]:
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            # From the last parenthesis: the program's name stands before it, and may hold any.
            found.append((pid, int(file.read().rpartition(b")")[2].split()[1])))
    return found


if __name__ == "__main__":
    main()
