"""The two origins, served while this process tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.hostile.place import Place
from tests.contract.hostile.recorder import Recorder, recording

Origins = tuple[Recorder, Recorder]


@pytest.fixture(scope="session")
def origins() -> Iterator[Origins]:
    """The user's own origin, and a stranger's."""
    good, evil = Recorder(), Recorder()
    with recording(good, evil):
        yield good, evil


@pytest.fixture
def place(origins: Origins, tmp_path: Path) -> Place:
    """A home with secrets, and a stranger's folder in it."""
    return Place(tmp_path / "p", *origins)
