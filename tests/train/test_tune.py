"""A search for better settings: what a trial may take, and how a search goes on and ends."""

from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import ConfigError, FingerprintError
from grpo_practice.train.space import Choice, SearchRange, space_of
from tests.train.fake_trainer import FakeTrainer, KilledError, TrainProject

SEARCH = (
    "practice.select_dataset=s.jsonl",
    "evaluation.data.dataset=test.jsonl",
    "train.eval_every=2",
    "train.tune.space={learning_rate: {low: 1.0e-6, high: 1.0e-4, log: true}, beta: [0.0, 0.1]}",
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainProject:
    pytest.importorskip("optuna")
    made = TrainProject(tmp_path / "p", monkeypatch)
    (made.folder / "test.jsonl").write_text('{"question": "t?", "answer": "1"}\n')
    return made


def test_a_space_is_lists_and_ranges() -> None:
    found = space_of(
        {"loss": ["grpo", "dapo"], "lora.r": {"low": 4, "high": 8}, "clip": [[0.1, 0.2]]}
    )
    assert found == {
        "loss": Choice(["grpo", "dapo"]),
        "lora.r": SearchRange(4, 8),
        "clip": Choice([[0.1, 0.2]]),
    }


@pytest.mark.parametrize(
    "part",
    [
        [],
        3,
        {"low": 1},
        {"low": 2, "high": 1},
        {"low": 0, "high": 1, "log": True},
        {"low": 1, "high": 2, "step": 1},
        {"low": 1, "high": float("inf")},
        {"low": 1, "high": 2, "log": "yes"},
    ],
)
def test_what_is_neither_is_refused(part: Any) -> None:
    with pytest.raises(ConfigError, match=r"train\.tune\.space\.beta is neither"):
        space_of({"beta": part})


def test_an_empty_space_has_nothing_to_search() -> None:
    with pytest.raises(ConfigError, match="nothing to search"):
        space_of({})


def test_the_best_is_chosen_by_the_selection_and_tested_once(project: TrainProject) -> None:
    fake = FakeTrainer()
    report = project.tune(6, fake, *SEARCH)
    assert [trial.number for trial in report.trials] == list(range(6))
    assert {plan.arguments["beta"] for plan in fake.plans} <= {0.0, 0.1}
    assert len({plan.arguments["learning_rate"] for plan in fake.plans}) == 6
    best = report.best
    assert best is not None
    complete = [t.score for t in report.trials if t.state == "complete"]
    assert best.score == max(score for score in complete if score is not None)
    assert report.test is not None
    assert report.test.questions == 1
    tested = "SELECT run_id, parent_run_id FROM runs WHERE run_id LIKE '%test=%'"
    assert project.query(tested) == [(report.tested, best.run)]
    again = FakeTrainer()
    assert project.tune(6, again, *SEARCH).document() == report.document()
    assert again.plans == []


def test_a_search_that_was_killed_comes_out_as_one_that_was_not(
    project: TrainProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbroken = TrainProject(tmp_path / "unbroken", monkeypatch)
    (unbroken.folder / "test.jsonl").write_text('{"question": "t?", "answer": "1"}\n')
    expected = unbroken.tune(4, None, *SEARCH)
    killer = FakeTrainer()
    for step in (1, 4):  # in the first trial, and in one of those that follow
        killer.kill = step
        with pytest.raises(KilledError):
            project.tune(4, killer, *SEARCH)
    report = project.tune(4, FakeTrainer(), *SEARCH)
    assert report.document() == expected.document()
    trials = project.query("SELECT count(*) FROM runs WHERE kind = 'train'")
    assert trials == [(4,)]


def test_more_trials_are_added_to_those_there_are(project: TrainProject) -> None:
    first = project.tune(2, None, *SEARCH)
    fake = FakeTrainer()
    more = project.tune(3, fake, *SEARCH)
    assert [t.values for t in more.trials[:2]] == [t.values for t in first.trials]
    assert len(fake.plans) == 1


def test_a_trial_that_cannot_work_is_a_result(project: TrainProject) -> None:
    fake = FakeTrainer(loss=lambda step: float("nan"))
    report = project.tune(1, fake, *SEARCH)
    assert ([t.state for t in report.trials], report.best, report.test) == (["failed"], None, None)
    assert project.query("SELECT status FROM runs WHERE kind = 'train'") == [("failed",)]


def test_what_no_trial_could_have_is_refused_before_anything_is_trained(
    project: TrainProject,
) -> None:
    fake = FakeTrainer()
    bad = (*SEARCH[:3], "train.tune.space={beta: [0.0, -1.0]}")
    with pytest.raises(ConfigError, match=r"train\.beta"):
        project.tune(2, fake, *bad)
    with pytest.raises(ConfigError, match="not a key of `train:` that a trial may change"):
        project.tune(2, fake, *SEARCH[:3], "train.tune.space={stepz: [1]}")
    with pytest.raises(ConfigError, match="no questions to select a trial with"):
        project.tune(2, fake, SEARCH[3])
    assert fake.plans == []


def test_another_space_is_another_search(project: TrainProject) -> None:
    project.tune(1, None, *SEARCH)
    with pytest.raises(FingerprintError, match="began with other settings") as caught:
        project.tune(2, None, *SEARCH[:3], "train.tune.space={beta: [0.0, 0.2]}")
    assert [change.key for change in caught.value.diff] == [
        "train.learning_rate",
        "train.tune.space.beta",
        "train.tune.space.learning_rate",
    ]


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ("train.group_size=2", "train.group_size"),
        ("train.tune.seed=1", "train.tune.seed"),
        ("train.steps=4", "train.steps"),
        ("train.eval_every=1", "train.eval_every"),
    ],
)
def test_trials_under_other_settings_are_not_compared(
    project: TrainProject, more: str, key: str
) -> None:
    project.tune(1, None, *SEARCH)
    with pytest.raises(FingerprintError, match="began with other settings") as caught:
        project.tune(2, None, *SEARCH, more)
    assert [change.key for change in caught.value.diff] == [key]
