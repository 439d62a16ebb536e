"""A folder with a project, and an environment that names no collector."""

from pathlib import Path

import pytest

from grpo_practice.tracing.collector import VARIABLES
from tests.cli.conftest import gp as gp
from tests.run.project import Project

OTHERS = (
    "PHOENIX_API_KEY",
    "PHOENIX_CLIENT_HEADERS",
    "PHOENIX_PROJECT_NAME",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
)


@pytest.fixture(autouse=True)
def nothing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*VARIABLES, *OTHERS):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "p")
