"""Trained weights leave as a folder: the ones that were saved, and the agent that has them."""

import json
from pathlib import Path

import pytest

from grpo_practice.api.workspace import Workspace as Core
from grpo_practice.config import load_eval
from grpo_practice.core.errors import ConfigError
from grpo_practice.run.weights import weights_sha
from tests.contract.command import typed
from tests.train.fake_trainer import FakeTrainer, TrainProject


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainProject:
    made = TrainProject(tmp_path / "p", monkeypatch)
    made.train()
    return made


def test_the_folder_has_the_saved_weights_and_nothing_of_training(
    project: TrainProject, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    done = project.workspace.export_trained("toy/train", output=target)
    assert weights_sha(done.weights).hex() == done.sha256
    assert sorted(path.name for path in done.weights.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    about = json.loads((target / "training.json").read_text())
    assert (about["run"], about["step"], about["base"]["model"]) == ("toy/train", 5, "base")
    assert about["settings"]["train.group_size"] == 4
    sets = ["data.dataset=x", "verify=math"]
    agent = load_eval(None, sets, {"UTU_LLM_BASE_URL": "http://127.0.0.1:1"}, agent=done.agent)
    assert agent.config.student.model_provider.model == "toy-trained"
    assert agent.config.agent.agent.instructions == "Count."


def test_a_step_is_named_by_its_number_or_by_the_selection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = TrainProject(tmp_path / "p", monkeypatch)
    report = project.train(None, "practice.select_dataset=s.jsonl", "train.eval_every=2")
    best = max(report.selection, key=lambda step: (report.selection[step], -step))
    export = project.workspace.export_trained
    assert export("toy/train", "best", output=tmp_path / "best").step == best
    assert export("toy/train", 3, output=tmp_path / "3").step == 3
    with pytest.raises(ConfigError, match="no checkpoint of step 2") as caught:
        export("toy/train", 2, output=tmp_path / "2")
    assert caught.value.hint == "--step 1 or 3 or 5"


def test_without_an_evaluation_no_step_is_the_best(project: TrainProject, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the best step of toy/train is unknown"):
        project.workspace.export_trained("toy/train", "best", output=tmp_path / "out")


def test_changed_or_missing_weights_are_not_shipped(project: TrainProject, tmp_path: Path) -> None:
    (saved,) = project.folder.glob("t.db.train/*/*/step-000005/*.safetensors")
    saved.write_text("others")
    with pytest.raises(ConfigError, match="does not contain the weights"):
        project.workspace.export_trained("toy/train", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_not_ours_stays(project: TrainProject, tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "mine.txt").write_text("precious")
    with pytest.raises(ConfigError, match="was not written by this command"):
        project.workspace.export_trained("toy/train", output=target, force=True)
    assert (target / "mine.txt").read_text() == "precious"
    other = tmp_path / "other"
    project.workspace.export_trained("toy/train", output=other)
    with pytest.raises(ConfigError, match="already exists") as caught:
        project.workspace.export_trained("toy/train", output=other)
    assert caught.value.hint == "--force replaces it"
    project.workspace.export_trained("toy/train", 3, output=other, force=True)
    assert json.loads((other / "training.json").read_text())["step"] == 3


def test_another_base_is_not_merged(
    project: TrainProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_practice.train.export.check_installed", lambda: None)
    (project.base / "model.safetensors").write_bytes(b"another")
    with pytest.raises(
        ConfigError, match="does not contain the weights that toy/train was trained"
    ):
        project.workspace.export_trained("toy/train", output=tmp_path / "out", whole=True)
    assert list(tmp_path.glob("out*")) == []


def test_a_run_of_another_kind_has_no_weights(project: TrainProject, tmp_path: Path) -> None:
    project.train(
        FakeTrainer(), "practice.select_dataset=s.jsonl", "train.eval_every=2", "train.steps=8"
    )
    (name,) = project.query("SELECT run_id FROM runs WHERE kind = 'eval' LIMIT 1")[0]
    with pytest.raises(ConfigError, match="is a run of kind eval, which trains no weights"):
        project.workspace.export_trained(name, output=tmp_path / "out")


def test_the_command_shows_the_weights_and_the_next_command(
    project: TrainProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.folder)
    words = ("export-agent", "--run", "toy/train", "--db", str(project.db))
    ran = typed(*words)
    assert (ran.code, ran.err) == (0, "")
    title, weights, *_, last = ran.out.splitlines()
    assert (title, weights.split()[0]) == ("toy/train after step 5", "weights")
    assert last.startswith("next: grpo-practice eval --db ")
    assert last.endswith(" --agent toy-trained/agent.yaml")
    refused = typed(*words, "--format", "json")
    assert (refused.code, "toy/train is exported as a folder" in refused.err) == (2, True)
    document = typed(*words, "--force", "--json").document
    assert document["schema"] == "grpo-practice.trained-export/1"


def test_a_program_without_this_slice_says_so(project: TrainProject) -> None:
    with pytest.raises(ConfigError, match="trained weights need `train`"):
        Core(project.db).export_trained("toy/train")
