"""A run whose rollouts keep failing stops, and says what it was most of the time."""

import pytest

from grpo_practice.errors import GrpoPracticeError, RunFailedError
from grpo_practice.failure_limit import FailureLimit
from grpo_practice.types import Rollout, Sample, Trajectory


async def land(error: GrpoPracticeError) -> None:
    pass


async def test_errors_that_differ_in_the_question_alone_are_counted_together() -> None:
    watch = FailureLimit("r", 4, 0.5, land)
    told = ["no answer to {!r}", "KeyError: {!r} (try 3)", "KeyError: {!r} (try 4)"]
    with pytest.raises(RunFailedError) as caught:
        for i, text in enumerate(told):
            question = f"What's {'I' * (i + 1)} plus one?"
            played = Trajectory("error", reason="agent", error=f"f.py: {text.format(question)}")
            await watch.see(Rollout(0, i, Sample(question, "1"), played))
    said = """allows; 2 of them: agent: f.py: KeyError: "What's II plus one?" (try 3)"""
    assert str(caught.value).endswith(said)
