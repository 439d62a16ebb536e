"""Streams that ended before the model was done."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from grpo_practice.calls import Reply
from grpo_practice.llm.http_response import Response, is_stream
from grpo_practice.llm.retry_policy import Retry, decide_cut


class CutStreams:
    """Tells streams that were cut from those of an endpoint that never sends a finish reason.

    Some servers cut a reply when another request arrives. If a reply with content and without a
    finish reason came while no other request was sent, none of ours cut it: the endpoint sends no
    reasons, until it does. To learn that, requests are sent one at a time if they have to be.
    """

    def __init__(self) -> None:
        self._sent = 0
        self._finishes: bool | None = None
        """Whether the endpoint sends finish reasons; None while it is unknown."""
        self._alone: asyncio.Lock | None = None
        """Lock for one request at a time; None unless a stream may have been cut."""

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until a request may be sent, and keep others waiting if it has to be alone."""
        if self._alone is not None:
            async with self._alone:
                if self._alone is not None:  # again: the one before may have shown it
                    yield
                    return
        yield

    def sent(self) -> int:
        """Count a request; return how many were sent until now."""
        self._sent += 1
        return self._sent

    def decide(self, reply: Reply, answer: Response, sent: int) -> Retry | None:
        """Decide what a reply leads to, given `sent` of its request; None if it is whole."""
        cut = reply.is_cut
        if is_stream(answer.headers):
            if reply.finish is not None:
                self._finishes, self._alone = True, None
            elif self._finishes is None and not cut:
                if sent == self._sent:
                    self._finishes, self._alone = False, None
                elif self._alone is None:
                    self._alone = asyncio.Lock()
            cut |= reply.finish is None and self._finishes is not False
        return decide_cut(answer) if cut else None
