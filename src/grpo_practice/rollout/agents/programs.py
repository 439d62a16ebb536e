"""A user's function or command as a `Program`."""

import asyncio
import inspect
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from grpo_practice.core import user_code
from grpo_practice.core.errors import AgentError, ConfigError
from grpo_practice.core.processes import CannotStartError, Pool, WorkerDiedError
from grpo_practice.core.text import LOOPBACK
from grpo_practice.rollout.agents import being_cancelled, worker
from grpo_practice.rollout.agents.program_context import (
    PASSED,
    ProgramContext,
    agent_error,
    answer_text,
    ended,
    raised,
)
from grpo_practice.rollout.agents.worker import FunctionSource

LOADING_S = 5 * user_code.LOAD_S
"""Maximum seconds for a worker to load the file while many other workers load it too."""
ENDING_S = 0.2
"""Seconds that a thread has to end by itself after its rollout."""


class FunctionProgram:
    """A `Program` that calls `function(question, system, context)`.

    When the rollout ends, an async function, which runs on the event loop, is cancelled. Any other
    function runs in its own thread, which cannot be stopped: the thread is abandoned, and `notice`
    reports this once.
    """

    def __init__(
        self, name: str, function: Callable[..., Any], notice: Callable[[str], None]
    ) -> None:
        self._name, self._function, self._notice = name, function, notice
        self._async = user_code.is_async(function)
        self._noticed = False

    async def __call__(self, question: str, system: str, context: ProgramContext) -> str:
        """Return the function's answer."""
        given = (question, system, context)
        try:
            result = self._function(*given) if self._async else await self._in_thread(given)
            if inspect.isawaitable(result):
                result = await result
        except asyncio.CancelledError:
            if being_cancelled():
                raise
            raise AgentError(f"{self._name} raised CancelledError") from None
        except KeyboardInterrupt:
            raise
        except BaseException as e:
            raise raised(self._name, e) from e
        return answer_text(result, f"{self._name} returned")

    async def _in_thread(self, given: tuple[Any, ...]) -> Any:
        done = user_code.start_thread(partial(self._function, *given))
        try:
            # Unlike `await done`, this leaves the thread's future pending when cancelled.
            await asyncio.wait((done,))
        except asyncio.CancelledError:
            try:
                # A thread that is just finishing needs no notice.
                await asyncio.wait((done,), timeout=ENDING_S)
            finally:
                if not done.done() and not self._noticed:
                    self._noticed = True
                    self._notice(
                        f"{self._name} was still running when its rollout ended; a thread cannot be"
                        " stopped, so it continues (an async function would be cancelled)"
                    )
            raise
        result, error = done.result()
        if error is not None:
            raise error
        return result


class WorkerProgram:
    """A `Program` that calls a function in one of several worker processes.

    If the rollout ends first, the process is killed together with every process it started. The
    function has the same environment variables as a command.
    """

    def __init__(self, source: FunctionSource, workers: int) -> None:
        self._source, self._workers = source, workers
        kept = {key: value for key, value in os.environ.items() if key in PASSED}
        self._pool = Pool(
            worker.start,
            source,
            workers=workers,
            timeout_s=None,  # the rollout's own clock cancels it
            preload=[worker.__name__],
            # A proxy set in the environment must not receive requests to our own address.
            environment=kept | {"NO_PROXY": LOOPBACK, "no_proxy": LOOPBACK},
        )

    async def start(self) -> None:
        """Start the workers; raise ConfigError if a worker cannot load the function."""
        hint = "agent.workers: 0 calls it in this process"
        try:
            async with asyncio.timeout(LOADING_S):
                # As many as there are workers, so that all load the function simultaneously.
                loads = [self._pool.run(worker.load) for _ in range(self._workers)]
                found = await asyncio.gather(*loads)
        except CannotStartError as e:
            found, hint = [str(e)], e.hint or hint
        except WorkerDiedError as e:
            found = [f"the process {ended(e.code)}"]
        except TimeoutError:
            found = [f"it did not finish loading within {LOADING_S:g} s"]
        # '' sorts before every reason, so the greatest entry is a reason if there is one.
        if why := max(found):
            name = self._source.name
            raise ConfigError(
                f"agent.function {name}: a worker process cannot load it: {why}", hint=hint
            )

    async def close(self) -> None:
        """End all workers and the processes they started."""
        await self._pool.close()

    async def __call__(self, question: str, system: str, context: ProgramContext) -> str:
        """Return the function's answer."""
        name = self._source.name
        try:
            answered, text, logged = await self._pool.run(
                worker.play_in_worker, question, system, context
            )
        except WorkerDiedError as e:
            killed = " (it may have run out of memory)" if e.code == -9 else ""
            raise agent_error(f"the process of {name} {ended(e.code)}{killed}") from e
        except CannotStartError as e:
            raise agent_error(f"no new process of {name} can be started: {e}") from e
        if not answered:
            raise AgentError(text)
        context.logged.extend(logged)
        return text
