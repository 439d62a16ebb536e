"""A database that is looked at stays what it is, and stands still for one page."""

from pathlib import Path

import pytest

from grpo_practice.core.errors import ConfigError, StoreError
from grpo_practice.store import Store
from grpo_practice.store.queries import runs
from tests.run.project import finished


def test_an_empty_file_has_no_runs(tmp_path: Path) -> None:
    path = tmp_path / "empty.db"
    path.touch()
    with pytest.raises(StoreError, match="is empty: it contains no runs"):
        Store(path, "look")
    assert path.read_bytes() == b""


async def test_what_is_read_is_of_one_moment(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p")
    with Store(project.db, "look") as looked:
        assert looked.read(runs.get, "toy").status == "done"
        with Store(project.db) as store:
            store.delete_runs(["toy"])
        assert looked.read(runs.get, "toy").status == "done"
    with (
        Store(project.db, "look") as looked,
        pytest.raises(ConfigError, match="there is no run 'toy'"),
    ):
        looked.read(runs.get, "toy")


async def test_nothing_is_written_and_nothing_left(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p")
    before, names = project.db.read_bytes(), sorted(project.folder.iterdir())
    with Store(project.db, "look") as looked:
        assert not looked.is_worked_on("toy")
        with pytest.raises(StoreError, match="is read-only"):
            looked.delete_runs(["toy"])
    assert project.db.read_bytes() == before
    assert sorted(project.folder.iterdir()) == names
