"""Imports of what takes a second and few tests use: each process collects all tests."""

from importlib import import_module
from typing import Any


class Late:
    """A module that is imported when one of its names is first used."""

    def __init__(self, name: str) -> None:
        self._module = name

    def __getattr__(self, name: str) -> Any:
        # pytest asks whatever stands in a module whether it is a test or a fixture.
        if name.startswith(("_", "pytest")):
            raise AttributeError(name)
        return getattr(import_module(self._module), name)
