"""An event loop in which no time is waited for: it jumps to the next thing that is due."""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

from typing_extensions import override

T = TypeVar("T")


class _Selector(selectors.SelectSelector):
    """Lets the time pass that the loop wants to wait."""

    passed = 0.0

    @override
    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        self.passed += max(timeout, 0)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.clock = _Selector()
        super().__init__(self.clock)

    @override
    def time(self) -> float:
        return self.clock.passed


def virtual(story: Coroutine[Any, Any, T]) -> T:
    """What the coroutine returns, run on that loop."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(story)
