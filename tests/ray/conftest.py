"""Ray runs in the namespaces of `python -m tests.ray` only."""

import os
from pathlib import Path

import pytest

SPACE = os.environ.get("RAY_SPACE")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave these tests out anywhere else: Ray listens on all addresses of a machine."""
    return True if SPACE is None and collection_path.name.startswith("test_") else None


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UTU_LLM_API_KEY", "sk-canary-4711-abcdef")
