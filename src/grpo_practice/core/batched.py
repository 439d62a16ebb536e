"""Calls that an endpoint answers in batches, and the record that a run keeps of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from grpo_practice.core.calls import Address
from grpo_practice.core.stages import STAGES, Stage

CallKey = tuple[Address, bytes, int]
"""Address, request hash and `nth` of a call: its key in the ledger."""
DAY_S = 86_400.0
"""Seconds within which an endpoint answers a batch."""
CUSTOM_ID = r"^\d+_\d+_-?\d+_-?\d+_[a-z]+_[0-9a-f]{32}_\d+$"
"""Pattern of `custom_id`."""


def has_company(stage: Stage) -> bool:
    """Return True if many calls of a stage are made together; a call alone is not worth a day."""
    return stage != "tool" and STAGES[stage].per not in ("step", "comparison")


def custom_id(call: CallKey) -> str:
    """Return the name of a call's request in a batch."""
    a, request_hash, nth = call
    place = f"{a.branch_id}_{a.step}_{a.slot}_{a.attempt}_{a.stage}"
    return f"{place}_{request_hash.hex()}_{nth}"


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch as the database records it."""

    id: int
    stage: Stage
    model: str
    url: str
    """Base URL of the endpoint, without a login."""
    keys: Sequence[str]
    """`custom_id` of each request."""
    created_at: str
    file_id: str | None = None
    """Endpoint's name of the uploaded requests; None if it is not known to have them."""
    remote_id: str | None = None
    """Endpoint's name of the batch; None if it is not known to have created it."""


class BatchLog(Protocol):
    """Record of the batches of a run; each change is on disk when the method returns."""

    def unread(self) -> Sequence[StoredBatch]:
        """Return the batches with requests that the ledger has no answer to, oldest first.

        `keys` contains only these requests.
        """
        ...

    def begin(self, stage: Stage, model: str, url: str, keys: Sequence[str]) -> StoredBatch:
        """Record a batch before anything of it is sent."""
        ...

    def uploaded(self, batch_id: int, file_id: str) -> None:
        """Record the file of a batch; only then may the batch be created."""
        ...

    def created(self, batch_id: int, remote_id: str) -> None:
        """Record the endpoint's name of a batch."""
        ...

    def ended(self, batch_id: int, status: str) -> None:
        """Record that a batch changes no more."""
        ...
