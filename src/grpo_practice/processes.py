"""Worker processes that can be killed one by one: the killed one is replaced, the rest goes on."""

import asyncio
import atexit
import fcntl
import multiprocessing
import os
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

from grpo_practice.redact import hide_output, redactor
from grpo_practice.safe_path import safe_environment, safe_path

if TYPE_CHECKING:
    from pebble import ProcessPool

T = TypeVar("T")

_TASKS = 500
"""After so many tasks a worker is replaced, so that what it leaks does not count as an answer's."""
_START_S = 60.0
_LOOK_S = 0.05
"""Seconds between two looks at whether a worker has reported why it does not start."""
_HINT = "what the processes wrote before they ended is on stderr"
MEMORY = 1 << 30
"""Bytes a worker may take beyond what it needs to start."""


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def isolate(secrets: frozenset[str]) -> None:
    """Detach a fresh worker from the command: its signals, its output, its end.

    `secrets` are not printed, and not told in results.
    """
    os.setpgid(0, 0)  # a signal for all of the command is for its first process to act on
    _end_with_parent()
    # The loop's handler runs between two bytecodes only; the default one ends C code at once.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(2, 1)  # what a function prints must not mix with the data on stdout
    redactor.know(secrets)
    hide_output()
    sys.stdout = sys.stderr


def _end_with_parent() -> None:
    """Let the system end this process when the command's has ended, in whatever way.

    The end of that closes a pipe, and SIGIO then ends this process also amid a C function.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    pipe = parent.sentinel
    signal.signal(signal.SIGIO, signal.SIG_DFL)
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)
    if not parent.is_alive():  # its end before F_SETFL sent no signal
        os._exit(1)


def limit_memory() -> None:
    """Let allocations beyond `MEMORY` fail, where the system supports it (Linux)."""
    if sys.platform != "linux":
        return
    import resource

    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard != resource.RLIM_INFINITY:
        # Beyond the hard limit setrlimit() fails, and no worker would start.
        limit = min(limit, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def _preparation(name: str) -> dict[str, Any]:
    """Return what a new process is told: not the program that started this one, and a safe path.

    multiprocessing would run that program again, for the sake of what was pickled from there. A
    worker needs nothing of it, and a script without `if __name__ == "__main__"` would start itself
    in each worker.
    """
    told = spawn.get_preparation_data(name)
    kept = {key: value for key, value in told.items() if not key.startswith("init_main")}
    return kept | {"sys_path": safe_path()}


def _flags() -> list[str]:
    """Return the interpreter's flags: as multiprocessing has them, and a safe path.

    By `python -c` alone the current folder is first in `sys.path`, and its `struct.py` is run.
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
    process.returncode = 0  # multiprocessing waits for its end, and Popen must not
    return process.pid


# The library's own functions get these among their globals. A patch of its modules would also hit
# processes that the user's program starts meanwhile.
_spawn = SimpleNamespace(**vars(spawn) | {"get_preparation_data": _preparation})


def _util(starts: Callable[..., int]) -> SimpleNamespace:
    return SimpleNamespace(
        **vars(util) | {"_args_from_interpreter_flags": _flags, "spawnv_passfds": starts}
    )


def _with_globals(function: Any, **changed: Any) -> FunctionType:
    return FunctionType(function.__code__, function.__globals__ | changed)


_SERVES = "try: {code}\nfinally: import shutil; shutil.rmtree({folder!r}, ignore_errors=True)"
"""Program of the process that workers are copied from."""


class _ForkServer(forkserver.ForkServer):
    """Process that workers are copied from: not the one of the user's program, if that has one."""

    def __init__(self) -> None:
        super().__init__()
        self.environment: Mapping[str, str] | None = None
        """Environment of it and of its workers; None: ours."""
        self._folder = ""
        """Folder of its socket. Not an abstract one: any user could have code run there."""

    @override
    def ensure_running(self) -> None:
        """Start the process, unless it runs."""
        start = forkserver.ForkServer.ensure_running
        named = SimpleNamespace(arbitrary_address=self._address)
        _with_globals(start, spawn=_spawn, connection=named, util=_util(self._start))(self)

    def _address(self, family: str) -> str:
        """Return the path of a socket in a new private folder."""
        # The path of a socket has 104 bytes or a few more: a long TMPDIR leaves it no room.
        short = len(os.fsencode(tempfile.gettempdir())) < 70
        self._folder = tempfile.mkdtemp(prefix="grpo-practice-", dir=None if short else "/tmp")
        atexit.register(shutil.rmtree, self._folder, ignore_errors=True)
        return str(Path(self._folder, "socket"))

    def _start(self, path: bytes, args: Sequence[str], fds: Sequence[int]) -> int:
        """Start the process so that it removes the folder: a killed command cannot."""
        serves = _SERVES.format(code=args[-1], folder=self._folder)
        return _start_python(self.environment, path, [*args[:-1], serves], fds)


_server, _user_server = _ForkServer(), _ForkServer()
"""Processes that our workers are copied from, and those of the user's programs."""


def _launch_by(server: _ForkServer) -> Any:
    known = vars(forkserver) | {"connect_to_new_process": server.connect_to_new_process}
    launch = popen_forkserver.Popen._launch  # type: ignore[attr-defined]
    return _with_globals(launch, spawn=_spawn, forkserver=SimpleNamespace(**known))


# Classes of the module, since a process is told of its own by name.
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

    `by_clock`: at that of the clock, which a busy machine may be to blame for; else it had used up
    its processor time.
    """

    def __init__(self, *, by_clock: bool = True) -> None:
        super().__init__("by the clock" if by_clock else "of processor time")
        self.by_clock = by_clock


class WorkerDiedError(Exception):
    """The worker ended by itself; twice, where the call is made again.

    `crashed`: by a fault of the program, such as too deep a recursion; else somebody ended it.
    `code`: exit code, negative for a signal.
    """

    def __init__(self, message: str, *, crashed: bool = False, code: int = 0) -> None:
        super().__init__(message)
        self.crashed, self.code = crashed, code


class CannotStartError(Exception):
    """The workers cannot start; `hint` says what to change, where that is known."""

    def __init__(self, message: str, hint: str | None) -> None:
        super().__init__(message)
        self.hint = hint


class Pool:
    """Runs module-level functions in processes, which start when the first one is needed.

    Args:
        start: Called first in each worker, with the secrets of this process and `given`.
        given: Arguments of `start`, which can be pickled.
        workers: How many run at once.
        timeout_s: Seconds of one call by the clock, from when a worker takes it; None: no limit.
        cpu_s: Seconds of processor time of one call; None does not limit it.
        preload: Modules that workers have from the process they are copied from. The first pool
            of a program decides for all: there is one such process.
        environment: All that the workers of a program of the user's have of an environment. They
            are told no secrets, and a call is not made again where its worker ended by itself.
            None: ours.
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
        self._preload, self._of_user = ["pebble", *preload], environment is not None
        self._server = _server
        if environment is not None:
            self._server, _user_server.environment = _user_server, environment
        self._pool: ProcessPool | None = None
        self._starting = asyncio.Lock()

    async def close(self) -> None:
        """End all workers at once; a later `run` starts new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(_end, pool)

    async def start(self) -> "ProcessPool":
        """Start the workers, unless they run; raise CannotStartError if none starts."""
        # The others wait for the pool that the first one starts.
        async with self._starting:
            if self._pool is None:
                self._pool = await asyncio.to_thread(self._start)
            return self._pool

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """Return what `work(*args)` returns in a worker; cancelling kills that worker.

        Raises:
            TimedOutError: It took longer than a limit.
            WorkerDiedError: Its process ended, and so did a second one.
            CannotStartError: No worker starts.
        """
        # A worker may be killed from outside, where memory is short: once is no fault of the call.
        for _ in range(2):
            pool = await self.start()
            from pebble import ProcessExpired  # not sooner: `_start` imports it, off the loop

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
                # Only the pool that broke: another caller may have started a new one meanwhile.
                if not pool.active and self._pool is pool:
                    self._pool = None
                if isinstance(e, ProcessExpired) and self._of_user:
                    break
        crashed = ended_by in _CRASHES
        raise WorkerDiedError(str(died), crashed=crashed, code=-ended_by) from died

    def _start(self) -> "ProcessPool":
        from pebble import ProcessExpired, ProcessPool  # few commands come to need a worker

        context = _UserContext() if self._of_user else _Context()
        failures, report = context.Pipe(duplex=False)
        os.set_blocking(report.fileno(), False)  # nobody reads it once the pool has started
        # The one patch of a module: this process of the library's imports nothing of a user's, so
        # that a program which comes to need it as well finds it started as it should be.
        resource_tracker.util = _util(partial(_start_python, None))  # type: ignore[attr-defined]
        # Unless something is named, the process that workers are copied from preloads `__main__`.
        self._server.set_forkserver_preload(self._preload)
        secrets = frozenset[str]() if self._of_user else redactor.known
        given = (report, self._initializer, secrets, *self._given)
        pool = ProcessPool(self._workers, _TASKS, _initialize, given, context)
        try:
            self._server.ensure_running()  # the pool would not say why it cannot
            started = pool.schedule(os.getpid)  # anything shows that a worker starts
            ends = monotonic() + _START_S
            # One that ends before it takes the task is replaced, again and again.
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
    """Return what the call returns; the system ends this process once it has used up its time."""
    global _cpu_s
    _cpu_s = cpu_s
    renew_cpu_limit()
    try:
        return work(*args)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def renew_cpu_limit() -> None:
    """Let the processor time of the call in this worker begin anew."""
    if _cpu_s is not None:
        # Its signal ends the process also amid C code, since nobody handles it.
        signal.setitimer(signal.ITIMER_PROF, _cpu_s)


def _initialize(report: Connection, start: Callable[..., None], *given: Any) -> None:
    """Make a worker ready, or end it and report why to the pool."""
    try:
        start(*given)
    except BaseException as e:  # noqa: BLE001 - the pool would log a traceback for each worker
        with suppress(OSError):
            report.send_bytes(redactor.text(f"{type(e).__name__}: {e}").encode())
        os._exit(1)


def _end(pool: "ProcessPool") -> None:
    pool.stop()  # type: ignore[no-untyped-call]
    pool.join()
