"""Room for the user's programs: how many are there at once, and how many of these compute."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from time import monotonic

STUCK_S = 60.0
"""Seconds in which no program leaves its room to one that waits, from which a person is told."""


class Room:
    """Room for programs: how many may be there, and how many of these may compute.

    A program computes unless it waits for its model. More of them than there are cores would only
    make each other late.
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
        """Wait for a place, in which a program may compute, for the block."""
        async with self._places or nullcontext():
            place = Place(self)
            try:
                await place.take()
                yield place
            finally:
                place.end()

    async def take(self, *, again: bool) -> None:
        """Wait for leave to compute.

        A person is told, once, where for long no program leaves its room to one that would go on.
        They may hold what the others wait for, a place in a queue or a lock: then all stand still.
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
        """Give that leave to another program."""
        self._left_at = monotonic()
        if self._computing is not None:
            self._computing.release()

    async def _watch(self) -> None:
        began = monotonic()
        # No event: what is waited for is that nothing happens.
        while (stuck_s := monotonic() - max(began, self._left_at)) < STUCK_S:  # noqa: ASYNC110
            await asyncio.sleep(STUCK_S - stuck_s)
        if not self._told:
            self._told = True
            self._notice(
                "programs of the agent have their model's reply and wait for their turn to compute;"
                f" for {STUCK_S:g} s none whose turn it is has asked or ended. If these wait for"
                " the others (a queue as of srun, a lock), play no more at once than can run there:"
                " --concurrency, practice.rollout_concurrency"
            )


class Place:
    """Place of one program, which gives its leave to compute to others while it waits."""

    def __init__(self, room: Room) -> None:
        self._room, self._computes, self._ended = room, False, False
        self._taking = asyncio.Lock()

    async def take(self, *, again: bool = False) -> None:
        """Wait until the program may compute, or may do so again."""
        async with self._taking:  # of several replies at once, the first one waits
            if self._computes or self._ended:
                return
            await self._room.take(again=again)
            self._computes = True
            if self._ended:  # meanwhile: a request of a program that is gone was still on its way
                self.leave()

    def leave(self) -> None:
        """Let another program compute."""
        if self._computes:
            self._computes = False
            self._room.leave()

    def end(self) -> None:
        """Let another program compute: this one has ended."""
        self._ended = True
        self.leave()

    @asynccontextmanager
    async def asking(self) -> AsyncIterator[None]:
        """Let others compute during the block, a request; wait until this one may again."""
        self.leave()
        try:
            yield
        finally:
            await self.take(again=True)
