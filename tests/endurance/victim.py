"""The real command, which kills itself when it comes to a place for the n-th time.

python -m tests.endurance.victim PLACE N KEY WORDS…

KEY is the secret of the fences of a run that begins, in hex; `-` has one made.
"""

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

from grpo_practice.calls import Reply, Request
from grpo_practice.cli.main import main
from grpo_practice.llm.ledgered import LedgeredChat
from grpo_practice.processes import Pool
from grpo_practice.store import branches, close_step
from grpo_practice.store.store import Store

Hit = Callable[[], None]


def countdown(n: int) -> Hit:
    """Kills this process, as nothing can prevent, when it is called for the n-th time."""
    left = [n]

    def hit() -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    return hit


def at_requests(hit: Hit, stages: set[str]) -> None:
    """Before a request is sent; with its reply at hand; and once that is committed."""
    send, call = LedgeredChat._send, LedgeredChat.__call__

    async def sent(self: LedgeredChat, request: Request, r: int, limit_s: float | None) -> Reply:
        ours = self.scope.address.stage in stages
        if ours:
            hit()
        reply = await send(self, request, r, limit_s)
        if ours:
            hit()
        return reply

    async def called(self: LedgeredChat, *args: Any, **kwargs: Any) -> Reply:
        reply = await call(self, *args, **kwargs)
        if self.scope.address.stage in stages and not reply.replayed:
            hit()
        return reply

    LedgeredChat._send = sent  # type: ignore[method-assign]
    LedgeredChat.__call__ = called  # type: ignore[method-assign]


def at_verification(hit: Hit) -> None:
    """While a worker has an answer, and with the verdict at hand."""
    run = Pool.run

    async def ran(self: Pool, *args: Any) -> Any:
        work = asyncio.ensure_future(run(self, *args))
        await asyncio.sleep(0.001)
        hit()
        result = await work
        hit()
        return result

    Pool.run = ran  # type: ignore[assignment,method-assign]


def at_closing(hit: Hit) -> None:
    """Before, within, and after the transaction that closes a step."""
    close, closed = close_step.close, Store.close_practice

    def within(db: sqlite3.Connection, *args: Any) -> int:
        hit()
        library_id = close(db, *args)
        hit()
        return library_id

    async def after(self: Store, *args: Any) -> int:
        library_id = await closed(self, *args)
        hit()
        return library_id

    close_step.close = within  # type: ignore[assignment]
    Store.close_practice = after  # type: ignore[assignment,method-assign]


PLACES: dict[str, Callable[[Hit], None]] = {
    "rollouts": lambda hit: at_requests(hit, {"play"}),
    "verification": at_verification,
    "distillation": lambda hit: at_requests(hit, {"summarise", "compare", "propose"}),
    "merge": lambda hit: at_requests(hit, {"merge"}),
    "closing": at_closing,
    "nowhere": lambda hit: None,
}

if __name__ == "__main__":
    place, n, key, *words = sys.argv[1:]
    if key != "-":
        branches.new_key = lambda: bytes.fromhex(key)  # type: ignore[attr-defined]
    PLACES[place](countdown(int(n)))
    main(words)
