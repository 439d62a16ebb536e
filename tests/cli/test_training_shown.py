"""A training run in what commands print; nothing of it needs torch."""

from pathlib import Path

import pytest

from grpo_practice.workspace import Workspace
from tests.cli.conftest import Gp
from tests.train.stored import RUN, training_database


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gp: Gp) -> Path:
    path = training_database(tmp_path)
    monkeypatch.setenv("GRPO_PRACTICE_DB", str(path))
    return path


def test_runs_show_has_what_each_update_did(gp: Gp, database: Path) -> None:
    out = gp("runs", "show", RUN).out
    assert "an adapter of rank 16 by dapo" in out
    (row,) = [line.split() for line in out.splitlines() if line.startswith("1  ")][:1]
    cells = "1 0.467 2 50% 0.25 0.002 1.50 1.5 12.5% 1.0e-05 224 2.0 s"
    assert row == cells.split()
    sha = Workspace(database).run(RUN).document()["checkpoints"][0]["sha256"][:8]
    assert f"1           17 bytes  {sha}  t.db.train/toy.train/b1/step-000001" in out


REFUSED = [
    (f"runs compare {RUN} toy/eval", f"{RUN} trains weights", "--arms base,trained"),
    (f"experiences list --run {RUN}", "it makes no library", f"export-agent --run {RUN}"),
    (f"experiences approve H1 --run {RUN}", "it makes no library", f"export-agent --run {RUN}"),
    (f"experiences effect --run {RUN}", "it makes no library", f"export-agent --run {RUN}"),
    (f"experiences diff {RUN} {RUN}", "it makes no library", f"export-agent --run {RUN}"),
]


@pytest.mark.parametrize(("command", "error", "hint"), REFUSED)
def test_what_only_practice_has_is_refused(
    gp: Gp, database: Path, command: str, error: str, hint: str
) -> None:
    ran = gp(*command.split())
    assert (ran.code, ran.out) == (2, "")
    assert error in ran.err
    assert hint in ran.err.partition("hint: ")[2]
