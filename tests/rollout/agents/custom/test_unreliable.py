"""Programs as a cluster may play them: lost, repeated, and in any order."""

import asyncio
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pytest

from grpo_practice.core.errors import AgentError
from grpo_practice.rollout.agents.program_context import ProgramContext
from grpo_practice.rollout.agents.programs import FunctionProgram
from tests.contract.own import THREADS, asking

_play = FunctionProgram.__call__
LOST = (3, 7)
"""Rollouts, in the order they begin, that are lost: before they ask, and with their answer."""


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each rollout was played."""
    found = Counter[str]()

    async def unreliable(
        self: FunctionProgram, question: str, system: str, context: ProgramContext
    ) -> str:
        first = question not in found
        found[question] += 1
        n = len(found)
        await asyncio.sleep(sha256(question.encode()).digest()[0] / 5_000)  # in any order
        if first and n == LOST[0]:
            raise AgentError("the node is gone")
        answer = await _play(self, question, system, context)
        if first and n == LOST[1]:
            raise AgentError("the node is gone, and the answer with it")
        if n % 2:
            await _play(self, question, system, context)  # told twice, one after the other
        return answer

    monkeypatch.setattr(FunctionProgram, "__call__", unreliable)
    return found


@pytest.mark.long
async def test_the_results_are_those_of_programs_that_play_once(
    tmp_path: Path, played: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [f"agent.{key}" for key in THREADS]
    far, here = asking(tmp_path / "far"), asking(tmp_path / "here")
    first = await far.evaluate(*words)
    assert first.outcomes == {"error.agent": 2, "ok": 10}
    assert first.score.scored == 10  # what was lost is no wrong answer
    second = await far.evaluate(*words)
    assert second.outcomes == {"ok": 12}
    assert sorted(played.values()) == [1] * 10 + [2] * 2
    assert second.requests.new == 3  # of the one that never asked; the other one's are stored
    monkeypatch.undo()
    await here.evaluate(*words)
    assert far.results("toy/eval") == here.results("toy/eval")
