"""Settings every test shares."""

import pytest

from grpo_practice.redact import Redactor, redactor


@pytest.fixture(autouse=True)
def nothing_is_secret_yet() -> None:
    """What one test made known is no secret of the next."""
    vars(redactor).update(vars(Redactor()))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
