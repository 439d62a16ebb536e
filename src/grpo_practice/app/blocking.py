"""Runs a coroutine to its end wherever it is called, also inside a running event loop."""

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from typing import Any, TypeVar

T = TypeVar("T")

_LOOK_S = 0.5
"""Longest time until a signal is acted on."""


def run_blocking(work: Coroutine[Any, Any, T]) -> T:
    """Return the work's result; inside a running loop it gets a thread with a loop of its own.

    An interrupt cancels the work and waits for its end.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    begun = Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]]()

    async def main() -> T:
        task = asyncio.current_task()
        assert task is not None
        begun.set_result((asyncio.get_running_loop(), task))
        return await work

    with ThreadPoolExecutor(1) as thread:
        # With the caller's context variables: a thread begins without any.
        result = thread.submit(copy_context().run, asyncio.run, main())
        try:
            # Not without a limit: a signal that comes just before the wait begins does not end it.
            while not wait([result], _LOOK_S).done:
                pass
            return result.result()
        except KeyboardInterrupt:
            # Ctrl-C reaches the main thread only; leaving the block waits for the other one.
            loop, task = begun.result()
            with suppress(RuntimeError):  # it has just ended
                loop.call_soon_threadsafe(task.cancel)
            raise
