"""What a new verdict may change of a stored one, and what is told of it."""

import asyncio
from pathlib import Path

import pytest

from grpo_practice.core.events import RolloutFinished
from grpo_practice.core.types import Verdict
from grpo_practice.store import Store
from grpo_practice.store.records import Unscored
from tests.fakes import cancelling
from tests.run.project import Project

AGAIN = {"config": None, "rejudge": True, "verify": "contains", "run": "toy/eval"}


def test_what_is_stored_is_told_though_everything_is_cancelled_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path)
    asyncio.run(project.evaluate())
    project.events.clear()
    before = project.count("verdicts")
    monkeypatch.setattr(Store, "save_verdict", cancelling(Store.save_verdict))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(project.evaluate(**AGAIN))
    told = [e for e in project.events if isinstance(e, RolloutFinished)]
    assert len(told) == project.count("verdicts") - before > 0


async def test_a_reward_is_never_replaced(tmp_path: Path) -> None:
    project = Project(tmp_path)
    await project.evaluate()
    report = await project.evaluate(**AGAIN)
    before = project.query("SELECT * FROM verdicts ORDER BY 1, 2")
    with Store(project.db) as store:
        for rollout_id in range(1, 13):
            await store.save_verdict(report.branch, rollout_id, Verdict(1.0, "better"))
            await store.save_verdict(report.branch, rollout_id, Unscored("verify", "worse"))
    assert project.query("SELECT * FROM verdicts ORDER BY 1, 2") == before
