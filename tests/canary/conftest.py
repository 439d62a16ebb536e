"""Verify workers are started by a server that keeps the environment it was itself started in."""

from collections.abc import Callable, Iterator
from multiprocessing import forkserver

import pytest


@pytest.fixture(autouse=True)
def _fresh_workers() -> Iterator[None]:
    """The verify workers of a test see the keys of its own place, whatever ran before."""
    stop: Callable[[], None] = getattr(forkserver, "_forkserver")._stop  # noqa: B009
    stop()
    yield
    stop()
