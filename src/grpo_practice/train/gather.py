"""Processes of one run, started by `torchrun`; the first process scores, stores and reports."""

import os
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

from grpo_practice.core.errors import ConfigError

T = TypeVar("T")
# torch's own limits, 10 minutes for NCCL and 30 for gloo, would end a run with a slow judge.
PATIENCE = timedelta(hours=2)
"""Maximum time that a rank waits for another, for example while a slow judge scores."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Rank of this process, and the run's number of ranks."""

    rank: int = 0
    count: int = 1

    @property
    def first(self) -> bool:
        """Whether this is the process that writes; the others only compute."""
        return self.rank == 0

    @classmethod
    def of_environment(cls) -> "Ranks":
        """Return the rank that `torchrun` assigned to this process; rank 0 of 1 without `torchrun`.

        Raises:
            ConfigError: The environment variables are not valid numbers.
        """
        rank, count = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
        if not (rank.isdecimal() and count.isdecimal() and int(rank) < int(count)):
            raise ConfigError(
                f"RANK {rank!r} is not valid for WORLD_SIZE {count!r}",
                hint="start several processes with torchrun: torchrun --nproc-per-node 2 -m"
                " grpo_practice train --config FILE",
            )
        return cls(int(rank), int(count))

    def join(self) -> None:
        """Initialise the process group if there are several ranks; wait until all have joined."""
        if self.count == 1:
            return
        from torch import cuda
        from torch.distributed import init_process_group, is_initialized

        if not is_initialized():
            # Python objects are sent over gloo even if tensors are sent over NCCL.
            backend = "cpu:gloo,cuda:nccl" if cuda.is_available() else "gloo"
            init_process_group(backend, timeout=PATIENCE)

    def gather(self, value: T) -> list[T] | None:
        """Return all ranks' values, in rank order, on the first rank, and None on the others."""
        if self.count == 1:
            return [value]
        from torch.distributed import gather_object

        values: list[T | None] = [None] * self.count
        gather_object(value, values if self.first else None)
        return [v for v in values if v is not None] if self.first else None

    def broadcast(self, value: T | None) -> T:
        """Return the first rank's value on every rank."""
        box: list[T | None] = [value]
        if self.count > 1:
            from torch.distributed import broadcast_object_list

            broadcast_object_list(box)
        (given,) = box
        assert given is not None, "the first rank sends a value"
        return given
