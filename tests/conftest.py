"""Settings every test shares."""

import pytest

from grpo_practice.redact import Redactor, redactor


@pytest.fixture(autouse=True)
def nothing_is_secret_yet() -> None:
    """What one test made known is no secret of the next."""
    vars(redactor).update(vars(Redactor()))


@pytest.fixture(autouse=True)
def no_width_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as they are where nothing says otherwise; parallel workers say 80."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
