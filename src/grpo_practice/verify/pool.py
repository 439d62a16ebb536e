"""Worker processes that can be killed one by one: the killed one is replaced, the rest goes on."""

import asyncio
from collections.abc import Callable
from multiprocessing import forkserver, popen_forkserver, spawn
from multiprocessing.context import ForkServerContext, ForkServerProcess
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Any, TypeVar

from typing_extensions import override

from grpo_practice.errors import VerifyError
from grpo_practice.redact import redactor
from grpo_practice.user_code import UserFunction
from grpo_practice.verify import worker

if TYPE_CHECKING:
    from pebble import ProcessPool

T = TypeVar("T")

_TASKS = 500
"""After so many tasks a worker is replaced, so that what it leaks does not count as an answer's."""
_START_S = 60.0
_PRELOADED = [
    "grpo_practice.verify.warmup",
    "grpo_practice.verify.worker",
    "pebble",
]
"""What all workers have from the process they are copied from: one starts in 10 ms, not 300."""


def _preparation_without_main(name: str) -> dict[str, Any]:
    """Return what a new process is told, less the program that started this one."""
    told = spawn.get_preparation_data(name)
    return {key: value for key, value in told.items() if not key.startswith("init_main")}


class _Popen(popen_forkserver.Popen):
    """Start of a process that does not run the program's main module again.

    multiprocessing runs it, for the sake of what was pickled from there. A worker needs nothing of
    that, and a script without `if __name__ == "__main__"` would start itself in each worker.
    """

    # This is the library's own function with another `spawn` among its globals: a patch of the
    # module would also hit processes that the user's program starts meanwhile.
    _launch = FunctionType(
        popen_forkserver.Popen._launch.__code__,  # type: ignore[attr-defined]
        vars(popen_forkserver)
        | {"spawn": SimpleNamespace(get_preparation_data=_preparation_without_main)},
    )


class _Process(ForkServerProcess):
    @staticmethod
    @override
    def _Popen(process_obj: Any) -> popen_forkserver.Popen:
        return _Popen(process_obj)


class _Context(ForkServerContext):
    Process = _Process


class TimedOutError(Exception):
    """The worker was killed at its time limit."""


class WorkerDiedError(Exception):
    """The worker ended by itself, twice."""


class Pool:
    """Runs functions of `worker` in processes, which start when the first one is needed.

    Args:
        source: The user's function the workers load; None for the built-ins.
        workers: How many run at once.
        timeout_s: Seconds of one call, from when a worker takes it.
    """

    def __init__(self, source: UserFunction | None, *, workers: int, timeout_s: float) -> None:
        self._source = source
        self._workers = workers
        self._timeout_s = timeout_s
        self._pool: ProcessPool | None = None
        self._starting = asyncio.Lock()

    async def close(self) -> None:
        """End all workers at once; a later `run` starts new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await asyncio.to_thread(_end, pool)

    async def run(self, work: Callable[..., T], *args: Any) -> T:
        """What `work(*args)` returns in a worker. Cancelling kills the worker that runs it.

        Raises:
            TimedOutError: It took longer than the limit.
            WorkerDiedError: Its process ended, and so did a second one.
            VerifyError: The workers cannot start.
        """
        for _ in range(2):
            pool = await self._ready()
            from pebble import ProcessExpired  # not sooner: `_start` imports it, off the loop

            try:
                future = pool.schedule(work, args=args, timeout=self._timeout_s)
                return await asyncio.wrap_future(future)
            except TimeoutError as e:
                raise TimedOutError from e
            except (ProcessExpired, RuntimeError) as e:
                died = e
                if not pool.active and self._pool is pool:
                    self._pool = None
        raise WorkerDiedError(str(died)) from died

    async def _ready(self) -> "ProcessPool":
        async with self._starting:
            if self._pool is None:
                self._pool = await asyncio.to_thread(self._start)
            return self._pool

    def _start(self) -> "ProcessPool":
        from pebble import ProcessExpired, ProcessPool  # few commands come to need a worker

        context = _Context()
        # Unless something is named, the server that workers are copied from preloads `__main__`.
        context.set_forkserver_preload(_PRELOADED if self._source is None else _PRELOADED[1:])
        given = (self._source, redactor.known)
        pool = ProcessPool(self._workers, _TASKS, worker.start, given, context)
        try:
            forkserver.ensure_running()  # the pool would not say why it cannot
            pool.schedule(worker.ping).result(_START_S)
        except (TimeoutError, ProcessExpired, RuntimeError, OSError) as e:
            _end(pool)
            hint = "set TMPDIR to a folder with a short name" if "path too long" in str(e) else None
            said = f"the verify workers cannot start: {type(e).__name__}: {e}"
            raise VerifyError(said, hint=hint) from e
        return pool


def _end(pool: "ProcessPool") -> None:
    pool.stop()  # type: ignore[no-untyped-call]
    pool.join()
