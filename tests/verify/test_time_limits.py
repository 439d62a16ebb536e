"""Processor time decides, and not the clock: a verdict is the same on a machine that is busy."""

import asyncio
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from grpo_practice.core.errors import VerifyError
from grpo_practice.core.processes import Pool, TimedOutError, WorkerDiedError
from grpo_practice.core.types import Sample
from grpo_practice.verify import math, worker
from grpo_practice.verify.resolve import resolve
from grpo_practice.verify.verifier import Verifier

SLOW = r"\boxed{\sum_{i=1}^{10^{9}} i^{i}}"
WAITS = """
import time

def waits(sample):
    time.sleep(0.8)
    return {"reward": 1.0}

def spins(sample):
    while True:
        pass
"""


def wait_for_it(verify: Verifier) -> None:
    """Let processor time alone decide: a busy machine may take minutes to give it."""
    verify._pool._timeout_s = 600.0


async def test_a_function_that_waits_for_longer_than_its_processor_time_has_its_say(
    tmp_path: Path,
) -> None:
    (tmp_path / "mine.py").write_text(WAITS)
    async with Verifier(resolve("mine.py:waits", {}, 0.4, tmp_path)) as verify:
        wait_for_it(verify)
        assert (await verify(Sample("q", "1"), "1", None)).reward == 1
    async with Verifier(resolve("mine.py:spins", {}, 0.4, tmp_path)) as verify:
        wait_for_it(verify)
        with pytest.raises(VerifyError, match=r"took longer than 0\.4 s$"):
            await verify(Sample("q", "1"), "1", None)


class Starved(Pool):
    """Workers that have no processor: they are stopped as soon as they take a call."""

    @override
    async def run(self, work: Callable[..., Any], *args: Any) -> Any:
        return await super().run(signal.raise_signal, signal.SIGSTOP)


async def test_an_answer_that_a_busy_machine_leaves_no_time_is_a_failure_and_not_wrong() -> None:
    async with Verifier(resolve("math", {}, 0.1, Path())) as verify:
        verify._pool.__class__ = Starved
        with pytest.raises(VerifyError, match=r"did not get 0\.1 s of processor time within 1 s"):
            await verify(Sample("q", "x+y"), r"\boxed{y+x}", None)
        verify._pool.__class__ = Pool
        wait_for_it(verify)
        verify._pool._cpu_s = 600.0
        assert (await verify(Sample("q", "x+y"), r"\boxed{y+x}", None)).reward == 1


@pytest.mark.long
async def test_equal_answers_get_equal_verdicts_when_the_first_took_too_long() -> None:
    sample = Sample("q", "1")
    async with Verifier(resolve("math", {}, 0.5, Path())) as verify:
        wait_for_it(verify)
        verdicts = [await verify(sample, SLOW, None)]
        verify._pool._cpu_s = 600.0  # what a luckier moment would allow
        verdicts += await asyncio.gather(*(verify(sample, SLOW, None) for _ in range(3)))
    assert verdicts == [verdicts[0]] * 4
    assert (verdicts[0].reward, verdicts[0].critique) == (
        0.0,
        "expected 1; comparing it took longer than 0.5 s",
    )


@pytest.mark.parametrize(("by", "crashed"), [(signal.SIGKILL, False), (signal.SIGSEGV, True)])
async def test_a_worker_that_somebody_kills_is_no_fault_of_the_answer(
    by: signal.Signals, crashed: bool
) -> None:
    async with Verifier(resolve("math", {}, None, Path())) as verify:
        with pytest.raises(WorkerDiedError) as died:
            await verify._pool.run(signal.raise_signal, by)
        assert died.value.crashed is crashed
        question = math.Comparison(["x"], "y", ["y"])
        assert await verify._pool.run(worker.ask_math, question) is False


async def test_the_next_call_of_a_worker_begins_with_all_of_its_time() -> None:
    numbers = range(3_000_000)
    began = time.process_time()
    sum(numbers)
    limit = 4 * (time.process_time() - began)
    pool = Pool(worker.start, None, workers=1, timeout_s=600.0, cpu_s=limit, preload=[])
    try:
        for _ in range(8):
            assert await pool.run(sum, numbers) == 4_499_998_500_000
        with pytest.raises(TimedOutError) as out:
            await pool.run(sum, range(10**15))
        assert not out.value.by_clock
    finally:
        await pool.close()
