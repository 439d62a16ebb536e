"""The program inside a sandbox: it runs the code in a child and ends when its caller ends.

The text of this file is passed to `python -c`, so it imports only the standard library and must
run on Python 3.9. Stdin delivers the job as one line of JSON and stays open: when it closes, the
caller is gone or has seen enough, and everything is killed.
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
"""First byte written; all output after it is the code's."""
_LIBRARY = re.compile(r'File "[^"]*/(?:(?:site|dist)-packages|lib/python3\.\d+)/')
_SPARE = 64 * 2**20
"""Bytes beyond the memory limit, reserved for reporting a MemoryError."""


def main() -> None:
    """Run the job; return only in the child, after the code has run."""
    job = _job()
    if job.get("adopt"):  # become the parent of all orphaned descendants, if possible
        with contextlib.suppress(ImportError, OSError, AttributeError):
            import ctypes

            ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    # Before the fork: once the child runs, its output might come first.
    os.write(1, STARTED)
    child = os.fork()
    if child == 0:
        os.setpgid(0, 0)
        # The code must not read the pipe that tells this program that its caller is gone.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        _confine(job)
        run_cell(job["code"])
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
        # Whole seconds only. The soft limit sends SIGXCPU, which code may catch, the hard SIGKILL.
        (resource.RLIMIT_CPU, int(job["limit_s"]) + 1, int(job["limit_s"]) + 2),
        (resource.RLIMIT_AS, memory, memory + _SPARE),
    ]
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:  # noqa: PTH123
        file.write("1000")  # some memory is not limited: kill this process first
    uid = job.get("uid")
    if uid is not None:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
    # After setuid: the kernel counts the processes of that user, not those of root.
    running = _tasks(os.getuid())
    if running:  # without `/proc` they cannot be counted, and any limit might allow none
        processes = job["processes"] + running
        limits.append((resource.RLIMIT_NPROC, processes, processes))
    for which, soft, hard in limits:
        most = resource.getrlimit(which)[1]
        if most != resource.RLIM_INFINITY:
            # Only root may exceed the hard limit; for others setrlimit() would fail.
            soft, hard = min(soft, most), min(hard, most)
        try:
            resource.setrlimit(which, (soft, hard))
        except (ValueError, OSError):
            if running:  # systems without `/proc` cannot limit memory
                raise


def _tasks(uid: int) -> int:
    """Count the user's existing processes and threads, which RLIMIT_NPROC includes."""
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


def run_cell(code: str) -> None:
    """Run the code like a notebook cell and print its output, last value or error."""
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
    except Exception as e:  # noqa: BLE001 - a compiler may raise anything
        sys.stdout.write("".join(traceback.format_exception_only(type(e), e)))
        return
    try:
        exec(first, module.__dict__)
        value = None if last is None else eval(last, module.__dict__)
        if value is not None:
            sys.stdout.write(repr(value) + "\n")
    except SystemExit:
        raise
    except BaseException as e:  # noqa: BLE001 - the model reads every error
        _tell(e)


def _tell(error: BaseException) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    with contextlib.suppress(ValueError, OSError):
        # Raise it to the hard limit: formatting a MemoryError needs memory, too.
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
    """Keep only the frames in the code itself and the innermost frame of each stack."""
    frames = [f for f in told.stack[:-1] if f.filename == NAME] + told.stack[-1:]
    if len(frames) > 20:
        frames = frames[:4] + frames[-12:]
    told.stack[:] = [f for f in frames if f.filename != "<string>"]
    for other in (told.__cause__, told.__context__):
        if other is not None and deep:
            _shorten(other, deep - 1)


# The parent


def _wait(child: int, job: dict[str, Any]) -> NoReturn:
    """Exit when the child has ended, the caller is gone, or the time limit is long exceeded."""
    threading.Thread(target=_watch, args=(child, job), daemon=True).start()
    status = _reaped(child)
    _end(child, job)
    if os.WIFSIGNALED(status):
        os.write(1, f"\n[{_why(os.WTERMSIG(status))}]".encode())
    os._exit(0)


def _reaped(child: int) -> int:
    while True:
        try:
            # For any child: with `adopt`, orphans of the code end here as well and must be reaped.
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:  # the other thread was faster and ends the process
            time.sleep(60)
        else:
            if pid == child:
                return status


def _why(number: int) -> str:
    if number == signal.SIGXCPU:
        return "stopped: it used more processor time than it may"
    return "the interpreter was killed by " + signal.Signals(number).name


def _watch(child: int, job: dict[str, Any]) -> None:
    # Normally the caller ends it earlier; this limit is for a caller that hangs.
    select.select([0], [], [], job["limit_s"] + 5)
    _end(child, job)
    os._exit(0)


def _end(child: int, job: dict[str, Any]) -> None:
    """Kill the child and, with `adopt`, all its descendants; remove its folder."""
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
            # From the last parenthesis: the program's name before it may contain parentheses.
            found.append((pid, int(file.read().rpartition(b")")[2].split()[1])))
    return found


if __name__ == "__main__":
    main()
