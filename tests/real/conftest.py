"""The real model is served for `make real-test` only: the tests take most of half an hour."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.real import servers
from tests.real.folder import Folder
from tests.real.servers import Server


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave these tests out of every other run."""
    wanted = "REAL_MODEL" in os.environ or not collection_path.name.startswith("test_")
    return None if wanted else True


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=0, help="seed of practice and its evaluation")


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--seed"))


@pytest.fixture(scope="session")
def llama() -> Iterator[Server]:
    with servers.llama(Path(sys.executable)) as server:
        yield server


@pytest.fixture(scope="session")
def transformers() -> Iterator[Server]:
    with servers.transformers(Path(sys.executable)) as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)
