"""Settings every test shares.

How hard the properties are tried: `HYPOTHESIS_PROFILE=thorough` tries a hundred times harder.
Quick, each run tries the same examples, so what fails has changed; thorough, ever new ones.
"""

import gc
import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from grpo_practice.redact import Redactor, redactor

settings.register_profile(
    "quick",
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", settings.get_profile("quick"), max_examples=6_000, derandomize=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))


def pytest_collection_finish() -> None:
    """Leave what is imported and collected out of every later collection of garbage: it stays."""
    gc.freeze()


@pytest.fixture(autouse=True)
def nothing_is_secret_yet() -> None:
    """What one test made known is no secret of the next."""
    vars(redactor).update(vars(Redactor()))


@pytest.fixture(autouse=True)
def no_width_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as they are where nothing says otherwise; parallel workers say 80."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session", autouse=True)
def no_power_fails() -> Iterator[None]:
    """Commits of this process do not wait for the disk, which is a quarter of the tests' time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("grpo_practice.store.db.SYNCHRONOUS", "OFF")
        yield


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
