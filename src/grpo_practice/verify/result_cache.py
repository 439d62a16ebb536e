"""Cache of the workers' findings, so that a repeated answer is compared only once.

The attempts at a question often end in the same answer, and at about the same time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from grpo_practice.verify.math import Comparison

KEPT = 1_024
"""Maximum number of findings kept; the oldest is dropped first."""

_Key = tuple[tuple[str, ...], str, tuple[str, ...]]
_Finding = bool | str


class _Turn:
    """Lock for callers with the same question: one caller compares, the others wait."""

    def __init__(self) -> None:
        self.lock, self.tried = asyncio.Lock(), False


class ResultCache:
    """The findings of recent comparisons, and the comparisons in progress."""

    def __init__(self) -> None:
        self._findings: dict[_Key, _Finding] = {}
        # Weak references: a turn is dropped with the last caller that waits for it.
        self._turns: WeakValueDictionary[_Key, _Turn] = WeakValueDictionary()

    async def get(
        self, question: Comparison, compare: Callable[[], Awaitable[_Finding]]
    ) -> _Finding:
        """Return the finding of `compare` for this question, new or cached.

        Only one caller at a time compares a question. A reason why the answer is wrong applies to
        every equal answer; an exception from `compare` applies only to this caller.
        """
        key = (tuple(question.golds), question.said, tuple(question.boxes))
        turn = self._turns.setdefault(key, _Turn())
        async with turn.lock:
            if key in self._findings:
                return self._findings[key]
            if not turn.tried:
                turn.tried = True
                try:
                    finding = await compare()
                except asyncio.CancelledError:
                    # This caller was cancelled without a finding: the next
                    # caller becomes the first.
                    turn.tried = False
                    raise
                # Keep reasons as well: otherwise an answer near the time limit could be wrong once
                # and right the next time.
                if len(self._findings) >= KEPT:
                    del self._findings[next(iter(self._findings))]
                self._findings[key] = finding
                return finding
        # Outside the lock: after a first failure, the others compare concurrently.
        return await compare()
