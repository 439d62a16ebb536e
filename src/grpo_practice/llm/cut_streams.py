"""Detects streams that ended before the model was done."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from grpo_practice.core.calls import Reply
from grpo_practice.llm.http_response import Response, is_stream
from grpo_practice.llm.retry_policy import Retry, decide_cut


class CutStreams:
    """Distinguishes streams that were cut off from an endpoint that never sends a finish reason.

    Some servers cut off a reply when another request arrives. If a reply has content but no finish
    reason, and no other request was sent in the meantime, none of our requests cut it off: this
    endpoint does not send reasons, unless a later reply has one. To find out, requests are sent one
    at a time if necessary.
    """

    def __init__(self) -> None:
        self._sent = 0
        self._finishes: bool | None = None
        """Whether the endpoint sends finish reasons; None while unknown."""
        self._alone: asyncio.Lock | None = None
        """Lock for one request at a time; None unless a stream may have been cut off."""

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Wait until a request may be sent, and make others wait if it must be the only one."""
        if self._alone is not None:
            async with self._alone:
                # The previous request may have settled it.
                if self._alone is not None:
                    yield
                    return
        yield

    def sent(self) -> int:
        """Count a request; return the number sent so far."""
        self._sent += 1
        return self._sent

    def decide(self, reply: Reply, answer: Response, sent: int) -> Retry | None:
        """Decide whether to retry after a reply; None if the reply is complete.

        `sent` is the return value of the method `sent` for its request.
        """
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
