import asyncio
from pathlib import Path
from unittest.mock import patch

import pytest

from grpo_practice.core.processes import Pool, TimedOutError
from grpo_practice.core.types import Sample
from grpo_practice.verify import verifier
from grpo_practice.verify.math import Comparison
from grpo_practice.verify.resolve import resolve
from grpo_practice.verify.verifier import ResultCache, Verifier


class Comparer:
    """Says what it is told to, and counts."""

    def __init__(self, *findings: bool | str | Exception) -> None:
        self.findings = list(findings)
        self.asked = 0

    async def __call__(self) -> bool | str:
        self.asked += 1
        await asyncio.sleep(0)
        finding = self.findings.pop(0)
        if isinstance(finding, Exception):
            raise finding
        return finding


def question(said: str) -> Comparison:
    return Comparison(["x"], said, [said])


async def test_equal_answers_at_the_same_time_are_compared_once() -> None:
    found, compare = ResultCache(), Comparer(True)
    said = await asyncio.gather(*(found.get(question("y"), compare) for _ in range(8)))
    assert (said, compare.asked) == ([True] * 8, 1)


async def test_other_answers_and_other_golds_are_compared() -> None:
    found, compare = ResultCache(), Comparer(True, False, "no mathematics")
    assert await found.get(question("y"), compare) is True
    assert await found.get(Comparison(["z"], "y", ["y"]), compare) is False
    assert await found.get(Comparison(["x"], "y", ["1", "y"]), compare) == "no mathematics"


async def test_a_comparison_that_failed_is_made_again() -> None:
    found, compare = ResultCache(), Comparer(TimedOutError(), False)
    with pytest.raises(TimedOutError):
        await found.get(question("y"), compare)
    assert await found.get(question("y"), compare) is False


async def test_a_reason_holds_for_every_equal_answer() -> None:
    found, compare = ResultCache(), Comparer("the answer takes too much memory to compare", True)
    assert await found.get(question("y"), compare) == "the answer takes too much memory to compare"
    assert await found.get(question("y"), compare) == "the answer takes too much memory to compare"


async def test_those_who_waited_for_a_comparison_that_failed_compare_at_once() -> None:
    found, under_way, most = ResultCache(), 0, 0

    async def compare() -> bool:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        for _ in range(10):
            await asyncio.sleep(0)
        under_way -= 1
        raise TimedOutError

    asked = (found.get(question("y"), compare) for _ in range(8))
    said = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(one) for one in said] == [TimedOutError] * 8
    assert most == 7


async def test_a_caller_that_is_cancelled_leaves_the_others_their_comparison() -> None:
    found, compare = ResultCache(), Comparer(True)
    first = asyncio.create_task(found.get(question("y"), compare))
    second = asyncio.create_task(found.get(question("y"), compare))
    await asyncio.sleep(0)
    first.cancel()
    assert await second is True
    assert compare.asked == 2


async def test_the_oldest_finding_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verifier, "CACHED", 2)
    found, compare = ResultCache(), Comparer(True, True, True, False)
    for said in ("a", "b", "c"):
        await found.get(question(said), compare)
    assert await found.get(question("b"), compare) is True
    assert await found.get(question("a"), compare) is False


async def test_a_group_that_gives_one_answer_asks_a_worker_once() -> None:
    asked: list[Comparison] = []
    run = Pool.run

    async def counted(self: Pool, work: object, *args: Comparison) -> object:
        asked.extend(args)
        return await run(self, work, *args)  # type: ignore[arg-type]

    sample, answer = Sample("q", "(x+1)^2"), r"\boxed{x^2+2x+1}"
    with patch.object(Pool, "run", counted):
        async with Verifier(resolve("math", {}, 60.0, Path())) as verify:
            verdicts = await asyncio.gather(*(verify(sample, answer, None) for _ in range(4)))
    assert [v.reward for v in verdicts] == [1.0] * 4
    assert len(asked) == 1
