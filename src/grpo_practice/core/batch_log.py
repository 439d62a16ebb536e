"""Record of the calls that an endpoint answers in batches."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from grpo_practice.core.calls import Address
from grpo_practice.core.text import to_the_minute

CallKey = tuple[Address, bytes, int]
"""Address, request hash and `nth` of a call: its key in the ledger."""


def custom_id(call: CallKey) -> str:
    """Return the name of a call's request in a batch.

    The branch is left out, because a restarted run reuses the replies of its earlier branch.
    """
    a, request_hash, nth = call
    return f"{a.step}_{a.slot}_{a.attempt}_{a.stage}_{request_hash.hex()}_{nth}"


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as the database records it."""

    id: int
    url: str
    """Base URL of the endpoint, without a login."""
    calls: Collection[CallKey]
    created_at: str
    file_id: str | None = None
    """Endpoint's name of the uploaded requests; None if it is not known to have them."""
    remote_id: str | None = None
    """Endpoint's name of the batch; None if it is not known to have created it."""
    status: str | None = None
    """Final status; None if it is not known to have ended."""

    @property
    def sent(self) -> str:
        """Time of the record, for a person."""
        return f"{to_the_minute(self.created_at)} UTC"


class BatchLog(Protocol):
    """Record of the batches of a run; each change is on disk when the method returns."""

    def unread(self) -> Sequence[StoredBatch]:
        """Return the batches with calls that the ledger does not contain, oldest first.

        `calls` contains only these calls.
        """
        ...

    async def flushed(self) -> None:
        """Wait until all replies received so far are on disk, and their callers go on."""
        ...

    def begin(self, model: str, url: str, calls: Collection[CallKey]) -> StoredBatch:
        """Record a batch before anything of it is sent; its calls have one stage."""
        ...

    def update(
        self,
        batch_id: int,
        *,
        file_id: str | None = None,
        remote_id: str | None = None,
        status: str | None = None,
    ) -> None:
        """Record the endpoint's names of a batch, or its final status."""
        ...
