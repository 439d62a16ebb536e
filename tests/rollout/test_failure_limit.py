"""A run whose rollouts keep failing stops, and says what it was most of the time."""

import pytest

from grpo_practice.core.errors import GrpoPracticeError, RunFailedError
from grpo_practice.core.types import Rollout, Sample, Trajectory
from grpo_practice.rollout.failure_limit import FailureLimit


async def drain(error: GrpoPracticeError) -> None:
    pass


async def test_errors_that_differ_in_the_question_alone_are_counted_together() -> None:
    watch = FailureLimit("r", 4, 0.5, drain)
    told = ["no answer to {!r}", "KeyError: {!r} (try 3)", "KeyError: {!r} (try 4)"]
    with pytest.raises(RunFailedError) as caught:
        for i, text in enumerate(told):
            question = f"What's {'I' * (i + 1)} plus one?"
            played = Trajectory("error", reason="agent", error=f"f.py: {text.format(question)}")
            await watch.record(Rollout(0, i, Sample(question, "1"), played))
    said = """allows; 2 of them: agent: f.py: KeyError: "What's II plus one?" (try 3)"""
    assert str(caught.value).endswith(said)


async def test_what_fails_while_a_run_comes_to_its_end_is_counted() -> None:
    bad = Rollout(0, 0, Sample("1+1?", "2"), Trajectory("error", reason="verify", error="no"))

    async def three_more(error: GrpoPracticeError) -> None:
        for _ in range(3 if "1 of the 4" in str(error) else 0):
            with pytest.raises(RunFailedError):
                await watch.record(bad)

    watch = FailureLimit("r", 4, 0.2, three_more)
    with pytest.raises(RunFailedError, match=r"4 of the 4 rollouts of r failed.* 4 of them: "):
        await watch.record(bad)
