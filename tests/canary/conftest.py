"""Verify workers are started by a server that keeps the environment it was itself started in."""

from collections.abc import Callable, Iterator

import pytest

from grpo_practice import processes


@pytest.fixture(autouse=True)
def _fresh_workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The verify workers of a test see the keys of its own place, whatever ran before."""
    # They start anew for each test: to import what other tests need would take most of the time.
    monkeypatch.setattr("tests.conftest.WORKERS", ())
    stop: Callable[[], None] = processes._server._stop  # type: ignore[attr-defined]
    stop()
    yield
    stop()
