"""Whole runs rest on no clock: a verify function has as much time as a busy machine takes."""

import pytest


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give verify functions a minute for an answer; a test of the limit sets its own."""
    monkeypatch.setattr("grpo_practice.verify.resolve.TIMEOUT_S", 60.0)
