"""A config and a database that know training alone: other commands say what they can."""

from pathlib import Path

import pytest

from grpo_practice.core.errors import ConfigError
from tests.train.fake_trainer import TrainProject

SEARCH = (
    "practice.select_dataset=s.jsonl",
    "train.eval_every=2",
    "train.steps=2",
    "train.tune.space={beta: [0.0, 0.1]}",
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainProject:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UTU_LLM_MODEL", raising=False)
    return TrainProject(tmp_path / "p", monkeypatch)


def test_a_config_that_only_trains_can_be_used(project: TrainProject) -> None:
    report = project.workspace.configuration(project.config)
    assert report.command == "train"
    assert report.used["training"] == "base on q.jsonl, 6 steps of 4 questions, 4 rollouts each"
    assert "practice" not in report.used
    with pytest.raises(ConfigError, match="no model is named"):
        project.workspace.practise(project.config)


def test_the_config_of_the_latest_run_is_that_of_a_training(project: TrainProject) -> None:
    project.train(None, "train.steps=2")
    report = project.workspace.configuration()
    assert (report.command, report.config.exp_id) == ("train", "toy")


def test_doctor_looks_for_the_extra_and_the_base_model(
    project: TrainProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    def checks() -> dict[str, str]:
        return {c.about: c.sentence for c in project.workspace.doctor(project.config).findings}

    monkeypatch.setattr("grpo_practice.train.checks.check_installed", lambda: None)
    assert f"{project.base} can be trained" in checks()["train"]
    (project.base / "model.safetensors").unlink()
    assert "has no weights" in checks()["train"]
    (project.base / "config.json").unlink()
    assert "has no config.json" in checks()["train"]


def test_an_evaluation_of_weights_is_not_gone_on_with_at_an_endpoint(
    project: TrainProject,
) -> None:
    project.train(None, *SEARCH[:3])
    with pytest.raises(ConfigError, match=r"data\.dataset: is missing"):
        project.workspace.evaluate()


def test_a_trial_is_not_gone_on_with_as_a_training(project: TrainProject) -> None:
    project.populate(2, None, *SEARCH)
    with pytest.raises(ConfigError, match=r"toy/tune/\d, is a trial of a search"):
        project.workspace.train()


def test_a_copy_of_the_database_says_what_it_leaves(project: TrainProject) -> None:
    project.train(None, "train.steps=2")
    made = project.workspace.backup(project.folder / "copy.db")
    assert made.left == project.folder / "t.db.train"
    assert made.document()["left"] == str(made.left)
