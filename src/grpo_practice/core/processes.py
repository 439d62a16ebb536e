"""Worker processes that can be killed one by one: each is replaced, and the others continue."""

import asyncio
import atexit
import fcntl
import multiprocessing
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from contextlib import suppress
from functools import partial
from multiprocessing import forkserver, popen_forkserver, resource_tracker, spawn, util
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from time import monotonic
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from grpo_practice.core.redact import hide_output, redactor
from grpo_practice.core.safe_path import safe_environment, safe_path

if TYPE_CHECKING:
    from pebble import ProcessPool

T = TypeVar("T")

_TASKS = 500
"""Tasks after which a worker is replaced, so that leaked memory counts against no answer."""
_START_S = 60.0
_LOOK_S = 0.05
"""Seconds between checks of whether a worker has reported why it cannot start."""
_HINT = "stderr shows the output of the processes"
MEMORY = 1 << 30
"""Bytes that a worker may allocate beyond the memory that it uses at the start."""
STATM = Path("/proc/self/statm")  # memory that this process uses; only Linux tells it


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def isolate(secrets: frozenset[str]) -> None:
    """Detach a new worker from the command's signals and output, but end it with the command.

    `secrets` are redacted in output and in results.
    """
    os.setpgid(0, 0)  # a signal to the command's group must reach only its first process
    _end_with_parent()
    # A Python handler only runs between two bytecodes; the default one also interrupts C code.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(2, 1)  # output of a function must not mix with the data on stdout
    redactor.know(secrets)
    hide_output()
    sys.stdout = sys.stderr


def _end_with_parent() -> None:
    """Let the kernel end this process when the command's process has ended for any reason.

    The end of the command closes a pipe; SIGIO then ends this process even inside a C function.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    import ctypes

    libc = ctypes.CDLL(None)  # by default, the signal ends a process on Linux but not on macOS
    libc.signal(signal.SIGIO, ctypes.cast(libc._exit, ctypes.c_void_p))
    pipe = parent.sentinel
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if not parent.is_alive():  # a parent that ended before F_SETFL has sent no signal
        os._exit(1)


def limit_memory() -> None:
    """Make allocations beyond `MEMORY` fail, if the system tells how much is in use (Linux)."""
    if not STATM.exists():
        return
    pages = int(STATM.read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        # setrlimit() fails above the hard limit, and no worker would start.
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _preparation(name: str) -> dict[str, Any]:
    """Return the preparation data of a new process, without the main program and with a safe path.

    multiprocessing would run the main program again, to unpickle objects defined in it. A worker
    needs no such object, and a script without `if __name__ == "__main__"` would start itself in
    each worker.
    """
    told = spawn.get_preparation_data(name)
    kept = {key: value for key, value in told.items() if not key.startswith("init_main")}
    return kept | {"sys_path": safe_path()}


def _flags() -> list[str]:
    """Return the interpreter's flags as multiprocessing sets them, and the flag for a safe path.

    With `python -c` alone, a `struct.py` in the current folder would run.
    """
    return ["-P", *util._args_from_interpreter_flags()]  # type: ignore[attr-defined]


def _start_python(
    environment: Mapping[str, str] | None,
    path: bytes,
    args: Sequence[bytes | str],
    fds: Sequence[int],
) -> int:
    environment = safe_environment() if environment is None else environment
    process = subprocess.Popen(args, executable=path, pass_fds=fds, env=environment)
    process.returncode = 0  # multiprocessing reaps the process, so Popen must not
    return process.pid


# Replacement globals for copies of the library's functions. Patching its modules would also affect
# processes that the user's program starts at the same time.
_spawn = SimpleNamespace(**vars(spawn) | {"get_preparation_data": _preparation})


def _util(starts: Callable[..., int]) -> SimpleNamespace:
    return SimpleNamespace(
        **vars(util) | {"_args_from_interpreter_flags": _flags, "spawnv_passfds": starts}
    )


def _with_globals(function: Any, **changed: Any) -> FunctionType:
    return FunctionType(function.__code__, function.__globals__ | changed)


_SERVES = "try: {code}\nfinally: import shutil; shutil.rmtree({folder!r}, ignore_errors=True)"
"""Program of the fork server, the process that workers are forked from."""


class _ForkServer(forkserver.ForkServer):
    """The fork server of our workers, separate from any that the user's program has."""

    def __init__(self) -> None:
        super().__init__()
        self.environment: Mapping[str, str] | None = None
        """Environment of this process and its workers; None means our own environment."""
        self._folder = ""
        """Folder of the socket; an abstract socket would let any user run code."""

    @override
    def ensure_running(self) -> None:
        """Start the process, unless it is running."""
        start = forkserver.ForkServer.ensure_running
        named = SimpleNamespace(arbitrary_address=self._address)
        _with_globals(start, spawn=_spawn, connection=named, util=_util(self._start))(self)

    def _address(self, family: str) -> str:
        """Return the path of a socket in a new private folder."""
        # The path of a socket may have about 104 bytes, which a long TMPDIR would exceed.
        short = len(os.fsencode(tempfile.gettempdir())) < 70
        self._folder = tempfile.mkdtemp(prefix="grpo-practice-", dir=None if short else "/tmp")
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        return str(Path(self._folder, "socket"))

    def _start(self, path: bytes, args: Sequence[str], fds: Sequence[int]) -> int:
        """Start the process so that it removes the folder, since a killed command cannot."""
        serves = _SERVES.format(code=args[-1], folder=self._folder)
        return _start_python(self.environment, path, [*args[:-1], serves], fds)


_server, _user_server = _ForkServer(), _ForkServer()
"""Fork servers of our own workers, and of workers that run the user's programs."""


def _launch_by(server: _ForkServer) -> Any:
    known = vars(forkserver) | {"connect_to_new_process": server.connect_to_new_process}
    launch = popen_forkserver.Popen._launch  # type: ignore[attr-defined]
    return _with_globals(launch, spawn=_spawn, forkserver=SimpleNamespace(**known))


# Module-level classes, because pickle sends a class to a process by name.
class _Popen(popen_forkserver.Popen):
    _launch = _launch_by(_server)


class _UserPopen(popen_forkserver.Popen):
    _launch = _launch_by(_user_server)


class _Process(ForkServerProcess):
    @staticmethod
    @override
    def _Popen(process_obj: Any) -> popen_forkserver.Popen:
        return _Popen(process_obj)


class _UserProcess(ForkServerProcess):
    @staticmethod
    @override
    def _Popen(process_obj: Any) -> popen_forkserver.Popen:
        return _UserPopen(process_obj)


class _Context(ForkServerContext):
    Process = _Process


class _UserContext(ForkServerContext):
    Process = _UserProcess


class TimedOutError(Exception):
    """The worker was killed at a time limit.

    `by_clock`: at the limit of wall time, which a busy machine can cause; otherwise the worker had
    used up its processor time.
    """

    def __init__(self, *, by_clock: bool = True) -> None:
        super().__init__("by the clock" if by_clock else "of processor time")
        self.by_clock = by_clock


class WorkerDiedError(Exception):
    """The worker ended by itself; if the call was retried, its second worker also did.

    `crashed`: because of a fault such as too deep a recursion; otherwise it was ended from outside.
    `code`: exit code, negative for a signal.
    """

    def __init__(self, message: str, *, crashed: bool = False, code: int = 0) -> None:
        super().__init__(message)
        self.crashed, self.code = crashed, code


class CannotStartError(Exception):
    """The workers cannot start; `hint` is the way to fix it, if that is known."""

    def __init__(self, message: str, hint: str | None) -> None:
        super().__init__(message)
        self.hint = hint


class Pool:
    """Runs module-level functions in worker processes, which start on first use.

    Args:
        start: Called first in each worker, with the secrets of this process and `given`.
        given: Arguments of `start`, which must be picklable.
        workers: Maximum number of concurrent workers.
        timeout_s: Wall time limit of one call in seconds, after a worker takes it; None: no limit.
        cpu_s: Processor time limit of one call in seconds; None: no limit.
        preload: Modules that the fork server imports for all workers. The first pool of a program
            decides for all pools, because they share one fork server.
        environment: Complete environment of workers that run a user's program; None: ours.
            Such workers get no secrets, and a call is not retried if its worker ended by itself.
    """

    def __init__(
        self,
        start: Callable[..., None],
        *given: Any,
        workers: int,
        timeout_s: float | None,
        cpu_s: float | None = None,
        preload: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._initializer, self._given = start, given
        self._workers, self._timeout_s, self._cpu_s = workers, timeout_s, cpu_s
        self._preload, self._of_user = ["ctypes", "pebble", *preload], environment is not None
        self._server = _server
        if environment is not None:
            self._server, _user_server.environment = _user_server, environment
        self._pool: ProcessPool | None = None
        self._starting = asyncio.Lock()

    async def close(self) -> None:
        """End all workers immediately; a later `run` starts new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(_end, pool)

    async def start(self) -> "ProcessPool":
        """Start the workers unless they run already; raise CannotStartError if no worker starts."""
        # Concurrent callers wait for the pool that the first one starts.
        async with self._starting:
            if self._pool is None:
                self._pool = await asyncio.to_thread(self._start)
            return self._pool

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Return the result of `work(*args)` in a worker; cancelling kills that worker.

        Raises:
            TimedOutError: The call exceeded a limit.
            WorkerDiedError: The worker ended, and so did the worker of the retry.
            CannotStartError: No worker starts.
        """
        # The system may kill a worker when memory is short, so one death is not the call's fault.
        for _ in range(2):
            pool = await self.start()
            from pebble import ProcessExpired  # late: `_start` imports it outside the event loop

            try:
                timed = (self._cpu_s, work, *args)
                future = pool.schedule(_limited, args=timed, timeout=self._timeout_s)
                # Passes a cancellation on to pebble, which kills the worker.
                return await asyncio.wrap_future(future)
            except TimeoutError as e:
                raise TimedOutError from e
            except (ProcessExpired, RuntimeError) as e:
                died, ended_by = e, -getattr(e, "exitcode", 0)
                if ended_by == signal.SIGPROF:
                    raise TimedOutError(by_clock=False) from e
                # Drop only the broken pool: another caller may have started a new one by now.
                if not pool.active and self._pool is pool:
                    self._pool = None
                if isinstance(e, ProcessExpired) and self._of_user:
                    break
        crashed = ended_by in _CRASHES
        raise WorkerDiedError(str(died), crashed=crashed, code=-ended_by) from died

    def _start(self) -> "ProcessPool":
        from pebble import ProcessExpired, ProcessPool  # imported late: few commands need a worker

        context = _UserContext() if self._of_user else _Context()
        failures, report = context.Pipe(duplex=False)
        os.set_blocking(report.fileno(), False)  # nobody reads the pipe after the pool has started
        # The only patched module: the resource tracker never imports a user's files, so a program
        # that also needs it can share the process that we start safely.
        resource_tracker.util = _util(partial(_start_python, None))  # type: ignore[attr-defined]
        # Without a list, the fork server would preload `__main__`, the user's program.
        self._server.set_forkserver_preload(self._preload)
        secrets = frozenset[str]() if self._of_user else redactor.known
        given = (report, self._initializer, secrets, *self._given)
        pool = ProcessPool(self._workers, _TASKS, _initialize, given, context)
        try:
            self._server.ensure_running()  # the pool itself would hide the reason for a failure
            started = pool.schedule(os.getpid)  # any task shows that a worker starts
            ends = monotonic() + _START_S
            # The pool replaces a worker that ends before it takes the task, again and again.
            while not (wait([started], _LOOK_S).done or failures.poll() or monotonic() > ends):
                pass
            started.result(0)
        except (TimeoutError, ProcessExpired, RuntimeError, OSError) as e:
            _end(pool)
            if failures.poll():
                reason, hint = failures.recv_bytes().decode(), None
            else:
                reason, hint = f"{type(e).__name__}: {e}".removesuffix(": "), _HINT
            raise CannotStartError(reason, hint) from e
        return pool


_CRASHES = {signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
_cpu_s: float | None = None


def _limited(cpu_s: float | None, work: Callable[..., T], *args: Any) -> T:
    """Return the call's result; the kernel ends this process once its processor time is used up."""
    global _cpu_s
    _cpu_s = cpu_s
    renew_cpu_limit()
    try:
        return work(*args)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def renew_cpu_limit() -> None:
    """Restart the processor time limit of the current call in this worker."""
    if _cpu_s is not None:
        # Without a handler, the timer's signal ends the process even inside C code.
        signal.setitimer(signal.ITIMER_PROF, _cpu_s)


def _initialize(report: Connection, start: Callable[..., None], *given: Any) -> None:
    """Prepare a worker, or end it and report the reason to the pool."""
    try:
        start(*given)
    except BaseException as e:  # noqa: BLE001 - the pool would log a traceback for each worker
        with suppress(OSError):
            report.send_bytes(redactor.text(f"{type(e).__name__}: {e}").encode())
        os._exit(1)


def _end(pool: "ProcessPool") -> None:
    pool.stop()  # type: ignore[no-untyped-call]
    pool.join()
