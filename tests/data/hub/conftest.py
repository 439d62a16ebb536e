"""A hub for a test, and the real client library in this process turned to it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.hub.server import Hub, hub


@pytest.fixture
def server() -> Iterator[Hub]:
    with hub() as running:
        yield running


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def client(server: Hub, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The library reads its variables when it is imported, which another test may have done."""
    from huggingface_hub import constants

    template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "ENDPOINT", server.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_URL_HOSTS", frozenset({"127.0.0.1"}))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(cache / "token"))
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda s: None)
    for name, value in server.env(cache).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    return server
