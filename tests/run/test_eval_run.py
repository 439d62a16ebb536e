"""An evaluation that is cancelled."""

import asyncio
from pathlib import Path

import pytest

from grpo_practice.core.events import RolloutFinished
from grpo_practice.store import Store
from tests.fakes import cancelling
from tests.run.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def test_what_is_stored_is_told_though_everything_is_cancelled_then(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "save_rollout", cancelling(Store.save_rollout))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(project.evaluate())
    told = [(e.step, e.slot, e.attempt) for e in project.events if isinstance(e, RolloutFinished)]
    assert sorted(told) == project.query(
        "SELECT step, slot, attempt FROM rollouts ORDER BY 1, 2, 3"
    )
    assert told
