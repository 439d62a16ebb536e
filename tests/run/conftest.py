"""Whole runs."""

import pytest


@pytest.fixture(autouse=True)
def _patient(patient: None) -> None:
    """Give verify functions as much time as a busy machine takes."""
