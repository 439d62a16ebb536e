"""Which requests may still be sent: all of them, until the command is to stop."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Admission:
    """The one door that every try of every request of a command goes through.

    After `stop`, no further one is sent: whoever asks waits until it is cancelled, while those
    under way may end.
    """

    def __init__(self) -> None:
        self._inside = 0
        self._stopped = False
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def enter(self) -> AsyncIterator[None]:
        """Be on record as under way for the block."""
        if self._stopped:
            await asyncio.Event().wait()
        self._inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    def stop(self) -> None:
        """No further request is sent."""
        self._stopped = True

    async def drained(self) -> None:
        """No request is under way."""
        await self._empty.wait()
