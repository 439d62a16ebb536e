"""Deadlines of streamed requests, which may wait in the line of a server that works."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from grpo_practice.llm.rate_limit import now

_EVENT = re.compile(rb"(?:\A|[\r\n])data:")
_BEGUN = 2
"""Number of events that show that a server works on a request."""
_NOTED_S = 0.1
"""Least number of seconds between two extensions, so that many small chunks cost nothing."""


class Line:
    """The streamed requests to one URL that the server has not begun to answer.

    A small server answers one or a few requests at a time. As long as parts of any answer arrive,
    it works, and the others wait for their turn.
    """

    def __init__(self) -> None:
        self._waiting = dict[asyncio.Timeout, float]()
        """Deadline → its seconds."""
        self._noted = float("-inf")

    @asynccontextmanager
    async def deadline(self, seconds: float) -> AsyncIterator["Turn"]:
        """Limit the block's time; the block reports to the turn whenever a part of its body came.

        The time begins anew once the server works on the request, and until then with each part of
        other answers.

        Raises:
            TimeoutError: So many seconds have passed.
        """
        async with asyncio.timeout(seconds) as limit:
            self._waiting[limit] = seconds
            try:
                yield Turn(self, limit)
            finally:
                self._waiting.pop(limit, None)

    def begins(self, limit: asyncio.Timeout) -> None:
        """Let the time of an answer begin."""
        _extend(limit, self._waiting.pop(limit))

    def works(self) -> None:
        """Extend the deadlines of the requests that wait."""
        if now() - self._noted < _NOTED_S:
            return
        self._noted = now()
        for limit, seconds in self._waiting.items():
            _extend(limit, seconds)


class Turn:
    """One request in a line."""

    def __init__(self, line: Line, limit: asyncio.Timeout) -> None:
        self._line, self._limit, self._since = line, limit, now()
        self.waited_s = 0.0
        """Seconds before its answer began; 0 if it has not begun."""
        self._begun = False

    def arrived(self, body: bytearray) -> None:
        """Record that a part of the body came; `body` is all of it so far."""
        if not self._begun:
            # A server may send comments, and an event with the role, to requests in its line.
            if len(_EVENT.findall(body)) < _BEGUN:
                return
            self._begun, self.waited_s = True, now() - self._since
            self._line.begins(self._limit)
        self._line.works()


def _extend(limit: asyncio.Timeout, seconds: float) -> None:
    if not limit.expired():  # its task may not have run since
        limit.reschedule(now() + seconds)
