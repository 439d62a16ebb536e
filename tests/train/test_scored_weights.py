"""Scores of weights on the way of a training: of the weights that they are shown beside."""

from pathlib import Path

import pytest

from grpo_practice.reports.training import scored_steps
from grpo_practice.store import Store
from tests.train.fake_trainer import FakeTrainer, KilledError, TrainProject


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainProject:
    return TrainProject(tmp_path / "p", monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize(
    "step", [3, *(pytest.param(step, marks=pytest.mark.long) for step in (1, 5))]
)
@pytest.mark.parametrize("saved", [False, True])
def test_a_kill_between_a_step_and_its_score_loses_neither_weights_nor_score(
    project: TrainProject,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    step: int,
    saved: bool,
) -> None:
    sets = ("practice.select_dataset=s.jsonl", "train.eval_every=2")
    unbroken = TrainProject(tmp_path / "unbroken", monkeypatch)
    expected = unbroken.train(None, *sets)
    killer = FakeTrainer(kill_unscored=step) if saved else FakeTrainer(kill_unsaved=step)
    with pytest.raises(KilledError):
        project.train(killer, *sets)
    report = project.train(None, *sets)
    assert report.selection == expected.selection
    assert list(report.selection) == [1, 3, 5]
    assert report.checkpoints[-1].sha256 == expected.checkpoints[-1].sha256
    assert project.line() == unbroken.line()


@pytest.mark.long
def test_weights_have_no_score_of_those_that_a_restart_has_left(project: TrainProject) -> None:
    select = "practice.select_dataset=s.jsonl"
    first = project.train(None, select, "train.eval_every=2")
    again = project.train(None, select, "train.beta=0.1", "train.save_every=1", restart_step=2)
    assert list(first.selection) == [1, 3, 5]
    fake = FakeTrainer(change=lambda step, answers: answers[::-1])
    project.train(fake, select, "train.beta=0.2", "train.save_every=1", restart_step=2)
    with Store(project.db) as store:
        found = scored_steps(store, "toy/train")
    assert list(again.selection) == [1, 3, 5]  # the fake's weights do not depend on beta
    assert found == {1: first.selection[1]}
