"""The program as a person runs it, here too, and a database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_practice.store import Store
from grpo_practice.store.check import check
from tests.cli.conftest import demo, finished_demo, gp

__all__ = ["demo", "finished_demo", "gp"]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "db") as opened:
        yield opened
    assert not [wrong for finding in check(tmp_path / "db") for wrong in finding.wrong]
