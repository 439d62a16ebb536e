"""The real command, which kills itself when it comes to a place for the n-th time.

python -m tests.endurance.victim PLACE N KEY WORDS…

KEY is the secret of the fences of a run that begins, in hex; `-` has one made.
"""

import asyncio
import os
import signal
import sqlite3
import sys
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from random import Random
from threading import Timer
from typing import Any, get_args

from grpo_practice.core.calls import Reply, Request, Send
from grpo_practice.core.processes import Pool
from grpo_practice.core.stages import Stage
from grpo_practice.llm.ledgered import LedgeredChat
from grpo_practice.main import main
from grpo_practice.store import branches, close_step, writer
from grpo_practice.store.db import transaction
from grpo_practice.store.store import Store

Hit = Callable[[], None]
SOON_S = 0.08
"""The longest from a visit to the kill: two replies of the endpoint."""


def die() -> None:
    """End this process, as nothing can prevent."""
    os.kill(os.getpid(), signal.SIGKILL)


def countdown(n: int, then: Hit = die) -> Hit:
    """Return a function that kills this process when it is called for the n-th time."""
    left = [n]

    def hit() -> None:
        left[0] -= 1
        if not left[0]:
            then()

    return hit


def soon(n: int) -> Hit:
    """Return a function that kills this process at its n-th call, or at an instant soon after.

    The instant follows from `n`; for half of all numbers it is the call itself.
    """
    delay_s = Random(n).uniform(-SOON_S, SOON_S)
    return countdown(n) if delay_s < 0 else countdown(n, Timer(delay_s, die).start)


def at_requests(hit: Hit, stages: Container[str]) -> None:
    """Before a request is sent; with its reply at hand; and once that is committed."""
    send, call = LedgeredChat._send, LedgeredChat.__call__

    async def sent(self: LedgeredChat, by: Send, request: Request, *how: Any) -> Reply:
        ours = self.scope.address.stage in stages
        if ours:
            hit()
        reply = await send(self, by, request, *how)
        if ours:
            hit()
        return reply

    async def called(self: LedgeredChat, *args: Any, **kwargs: Any) -> Reply:
        reply = await call(self, *args, **kwargs)
        if self.scope.address.stage in stages and not reply.replayed:
            hit()
        return reply

    LedgeredChat._send = sent  # type: ignore[assignment,method-assign]
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


def at_commits(hit: Hit) -> None:
    """Before, within and after each transaction."""

    @contextmanager
    def hit_around(db: sqlite3.Connection) -> Iterator[None]:
        hit()
        with transaction(db):
            yield
            hit()
        hit()

    writer.transaction = hit_around  # type: ignore[attr-defined]


def anywhere(hit: Hit) -> None:
    """At all that a command waits for."""
    at_requests(hit, get_args(Stage))
    at_verification(hit)
    at_commits(hit)


PLACES: dict[str, Callable[[Hit], None]] = {
    "rollouts": lambda hit: at_requests(hit, {"play"}),
    "verification": at_verification,
    "distillation": lambda hit: at_requests(hit, {"summarise", "compare", "propose"}),
    "merge": lambda hit: at_requests(hit, {"merge"}),
    "closing": at_closing,
    "anywhere": anywhere,
    "nowhere": lambda hit: None,
}

if __name__ == "__main__":
    place, n, key, *words = sys.argv[1:]
    if key != "-":
        branches.new_key = lambda: bytes.fromhex(key)  # type: ignore[attr-defined]
    PLACES[place]((soon if place == "anywhere" else countdown)(int(n)))
    main(words)
