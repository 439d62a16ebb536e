"""Training data: what is in memory at a time."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.export.test_training_data import place, rows
from tests.contract.project import Project, finished


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    return await finished(tmp_path / "p")


async def test_one_group_is_in_memory_at_a_time(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpo_practice.store import rollouts

    read, asked = rollouts.stored, list[int | None]()

    def counted(*args: Any, **more: Any) -> Any:
        asked.append(more["slot"])
        return read(*args, **more)

    monkeypatch.setattr(rollouts, "stored", counted)
    made = iter(Workspace(project.db).training_rows("toy", "sft", min_reward=0.0))
    taken = [next(made) for _ in range(4)]
    assert [place(row) for row in taken] == [(0, 0, 0), (0, 0, 1), (0, 0, 2), (0, 1, 0)]
    assert asked == [0, 1]
    assert all(a < b for a, b in pairwise(place(row) for row in taken))


async def test_only_groups_that_teach_are_read_for_pairs(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    from grpo_practice.store import rollouts

    read, places = rollouts.turns_of, set[tuple[int, int]]()

    def counted(db: Any, at: Any, lenders: Any) -> Any:
        places.add(at[1:3])
        return read(db, at, lenders)

    monkeypatch.setattr(rollouts, "turns_of", counted)
    rows(project, "dpo")
    assert sorted(places) == project.query("SELECT step, slot FROM groups WHERE informative")
