"""A training run in the commands that look at runs; nothing of it needs torch."""

from pathlib import Path

import pytest

from grpo_practice.workspace import Workspace
from tests.train.stored import RUN, training_database


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(training_database(tmp_path))


def test_the_stored_run_has_two_branches_and_each_step_once(workspace: Workspace) -> None:
    report = workspace.run(RUN)
    assert [branch.cause for branch in report.branches] == ["start", "restart"]
    assert [row.branch_id for row in report.steps] == [1, 1, 2]
    assert report.outcomes == {"ok": 46, "truncated": 1, "error.verify": 1}
