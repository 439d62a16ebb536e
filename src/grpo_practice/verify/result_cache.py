"""Findings of workers, so that an answer given again is not compared again.

The attempts at one question often end in the same answer, and at about the same time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from grpo_practice.verify.math import Question

KEPT = 1_024
"""The most findings that are kept; the oldest goes first."""

_Key = tuple[tuple[str, ...], str, tuple[str, ...]]
_Finding = bool | str


class _Turn:
    """Lock of those that ask the same thing: one compares it first."""

    def __init__(self) -> None:
        self.lock, self.tried = asyncio.Lock(), False


class ResultCache:
    """The findings of the last comparisons, and which are being made."""

    def __init__(self) -> None:
        self._findings: dict[_Key, _Finding] = {}
        # Weak: a turn is gone with the last caller that waits for it.
        self._turns: WeakValueDictionary[_Key, _Turn] = WeakValueDictionary()

    async def get(self, question: Question, compare: Callable[[], Awaitable[_Finding]]) -> _Finding:
        """Return what `compare` finds, or found before, for that question.

        One question is compared once at a time. A reason why the answer is wrong holds for every
        equal answer; if `compare` fails, that is this caller's alone.
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
                    # This caller gave up and nothing was found out: the next
                    # one is the first again.
                    turn.tried = False
                    raise
                # A reason is kept as well: an answer near the limit of time would be wrong once
                # and right the next time.
                if len(self._findings) >= KEPT:
                    del self._findings[next(iter(self._findings))]
                self._findings[key] = finding
                return finding
        # Outside the lock: after a first failure, all others at once and not one after another.
        return await compare()
