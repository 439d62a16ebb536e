"""Verify workers are started by a server that keeps the environment it was itself started in."""

from collections.abc import Iterator
from contextlib import suppress

import pytest

from grpo_practice.core import processes


def stop_server() -> None:
    """End the process, so that the next worker is copied from a new one."""
    with suppress(FileNotFoundError):  # it removes its socket itself
        processes._server._stop()  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _fresh_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The verify workers of a test see the keys of its own place, whatever ran before."""
    # They start anew for each test: to import what other tests need would take most of the time.
    monkeypatch.setattr("tests.conftest.WORKERS", ())
    stop_server()
    yield
    stop_server()
