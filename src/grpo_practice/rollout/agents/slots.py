"""Limits the user's programs: how many run simultaneously, and how many of them compute."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from time import monotonic

STUCK_S = 60.0
"""Seconds after which a notice is shown if no program yields its turn to a waiting program."""


class Room:
    """Limits how many programs may run, and how many of them may compute.

    A program computes unless it is waiting for its model. If more programs than cores computed,
    they would only delay each other.
    """

    def __init__(
        self,
        places: int | None = None,
        computing: int | None = None,
        notice: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.places = places
        self._places = asyncio.Semaphore(places) if places else None
        self._computing = asyncio.Semaphore(computing) if computing else None
        self._notice, self._told, self._left_at = notice, False, monotonic()

    @asynccontextmanager
    async def place(self) -> AsyncIterator["Place"]:
        """Wait for a place, in which a program may compute, and hold it while the block runs."""
        async with self._places or nullcontext():
            place = Place(self)
            try:
                await place.take()
                yield place
            finally:
                place.end()

    async def take(self, *, again: bool) -> None:
        """Wait for a turn to compute.

        A notice is shown once if for a long time no program yields its turn to a program that wants
        to continue. The running programs may then be waiting for something that the waiting
        programs hold, such as a place in a queue or a lock, so that none of them can proceed.
        """
        if self._computing is None:
            return
        watch = asyncio.create_task(self._watch()) if again and self._computing.locked() else None
        try:
            await self._computing.acquire()
        finally:
            if watch is not None:
                watch.cancel()

    def leave(self) -> None:
        """Yield the turn to another program."""
        self._left_at = monotonic()
        if self._computing is not None:
            self._computing.release()

    async def _watch(self) -> None:
        began = monotonic()
        # Not an event: this waits for the absence of one.
        while (stuck_s := monotonic() - max(began, self._left_at)) < STUCK_S:  # noqa: ASYNC110
            await asyncio.sleep(STUCK_S - stuck_s)
        if not self._told:
            self._told = True
            self._notice(
                "agent programs have their model's reply and are waiting for a turn to compute;"
                f" no running program has sent a request or finished for {STUCK_S:g} s. If the"
                " running programs wait for the others (in a queue such as srun's, or for a"
                " lock), play fewer at once: --concurrency, practice.rollout_concurrency"
            )


class Place:
    """The place of one program, which lets other programs compute while it waits."""

    def __init__(self, room: Room) -> None:
        self._room, self._computes, self._ended = room, False, False
        self._taking = asyncio.Lock()

    async def take(self, *, again: bool = False) -> None:
        """Wait until the program may compute, for the first time or after a wait."""
        async with self._taking:  # only the first of several simultaneous replies waits
            if self._computes or self._ended:
                return
            await self._room.take(again=again)
            self._computes = True
            # A late request from a program that has ended may arrive here.
            if self._ended:
                self.leave()

    def leave(self) -> None:
        """Let another program compute."""
        if self._computes:
            self._computes = False
            self._room.leave()

    def end(self) -> None:
        """Let another program compute, because this one has ended."""
        self._ended = True
        self.leave()

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """Let other programs compute during a request; then wait for this program's turn."""
        self.leave()
        try:
            yield
        finally:
            await self.take(again=True)
