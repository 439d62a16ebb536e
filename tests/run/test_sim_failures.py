"""Rollouts that a simulated world lets fail are missing, and are no zeros."""

from functools import partial
from pathlib import Path

import pytest

from grpo_practice.llm import retry_wait, sim
from grpo_practice.sim import World
from grpo_practice.sim.world import Failing
from tests.run.project import Project

K = "evaluation.pass_k=8"


def rewards(project: Project) -> dict[tuple[int, int, int], float | None]:
    """The reward of each rollout by its place; None where it failed."""
    rows = project.query("SELECT step, slot, attempt, reward, outcome FROM v_rollouts")
    assert all((reward is None) == (outcome == "error") for *_, reward, outcome in rows)
    return {(step, slot, attempt): reward for step, slot, attempt, reward, _ in rows}


async def test_an_evaluation_counts_what_failed_and_gives_it_no_reward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Project(tmp_path / "whole")
    before = await whole.evaluate(K)

    world = World(fail=Failing(wrong=0.3))
    monkeypatch.setattr(sim, "SimTransport", partial(sim.SimTransport, world))
    monkeypatch.setattr(retry_wait, "_backoff", lambda state: 0.0)
    project = Project(tmp_path / "failing")
    report = await project.evaluate(K)

    usual, found = rewards(whole), rewards(project)
    failed = {place for place, reward in found.items() if reward is None}
    assert {usual[place] for place in failed} == {0.0}
    assert {place: reward for place, reward in usual.items() if place not in failed} == {
        place: reward for place, reward in found.items() if place not in failed
    }
    assert report.score.planned == before.score.planned == 96
    assert report.score.scored == 96 - len(failed)
    assert report.score.correct == before.score.correct
    assert sum(report.failures.values()) == len(failed)
    assert all("HTTP 500" in error for error in report.failures)
    assert report.score.mean is not None
    assert before.score.mean is not None
    assert report.score.mean > before.score.mean, "only wrong answers are missing"
