"""What workers have found out, so that an answer given again is not compared again.

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


class Known:
    """The findings of the last comparisons, and which are being made."""

    def __init__(self) -> None:
        self._found: dict[_Key, _Finding] = {}
        self._asked: WeakValueDictionary[_Key, asyncio.Lock] = WeakValueDictionary()

    async def get(self, question: Question, compare: Callable[[], Awaitable[_Finding]]) -> _Finding:
        """What `compare` finds, or found, for that question.

        One question is compared once at a time. Where `compare` fails nothing is kept: a time
        limit may have struck because the machine was slow.
        """
        key = (tuple(question.golds), question.said, tuple(question.boxes))
        async with self._asked.setdefault(key, asyncio.Lock()):
            if key not in self._found:
                finding = await compare()
                if len(self._found) >= KEPT:
                    del self._found[next(iter(self._found))]
                self._found[key] = finding
            return self._found[key]
