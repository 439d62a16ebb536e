"""A config that nobody names: that of the current folder, where no run is there to go on with."""

import json
from pathlib import Path

import pytest

from tests.contract.command import Gp
from tests.contract.project import CONFIG, questions

SMALL = CONFIG.replace("epochs: 2, batch_size: 6", "epochs: 1, batch_size: 4")


@pytest.fixture
def folder(gp: Gp) -> Gp:
    """A folder with two datasets and no config."""
    samples = questions(8)
    for name, part in (("train", samples[:4]), ("test", samples[4:])):
        Path(f"{name}.jsonl").write_text("\n".join(map(json.dumps, part)))
        assert gp("data", "upload", f"{name}.jsonl", "--name", name).code == 0
    return gp


@pytest.mark.parametrize("name", ["practice.yaml", "grpo-practice.yaml"])
def test_practice_takes_the_config_of_the_folder_and_says_so(folder: Gp, name: str) -> None:
    Path(name).write_text(SMALL)
    left = folder("practice", "--dry-run", "--json")
    assert (left.code, left.document["run"]) == (0, "toy")
    ran = folder("practice")
    assert ran.code == 0, ran.err
    assert (
        f"using {name} in this folder, since there is no --config and no run to resume" in ran.err
    )
    Path(name).write_text("exp_id: other\n")  # from now on there is a run
    again = folder("practice")
    assert again.code == 0, again.err
    assert "is used" not in again.err


def test_eval_prefers_the_config_that_is_for_it(folder: Gp) -> None:
    Path("practice.yaml").write_text(SMALL)
    assert folder("eval", "--dry-run", "--json").document["run"] == "toy/eval"
    agent = "agent: {model: {model_provider: {model: sim}}, agent: {instructions: Solve it.}}"
    Path("eval.yaml").write_text(f"exp_id: mine\nverify: math\ndata: {{dataset: test}}\n{agent}\n")
    ran = folder("eval")
    assert ran.code == 0, ran.err
    assert "using eval.yaml in this folder" in ran.err
    assert folder("practice", "--dry-run", "--json").document["run"] == "toy"


def test_a_named_dataset_is_an_evaluation_of_its_own(folder: Gp) -> None:
    Path("practice.yaml").write_text(SMALL)
    ran = folder("eval", "--model", "sim", "--dataset", "test", "--verify", "math", "--dry-run")
    assert ran.code == 0, ran.err
    assert "is used" not in ran.err


def test_two_configs_of_the_folder_are_a_question(folder: Gp) -> None:
    for name in ("practice.yaml", "grpo-practice.yaml"):
        Path(name).write_text(SMALL)
    ran = folder("practice")
    assert ran.code == 2
    assert "this folder has more than one config: practice.yaml and grpo-practice.yaml" in ran.err
    hint = ran.err.splitlines()[-1].removeprefix("hint: ")
    assert folder("practice", *hint.split(), "--dry-run").code == 0


def test_config_and_doctor_look_at_it_and_warn_of_nothing(folder: Gp) -> None:
    Path("practice.yaml").write_text(SMALL)
    assert "exp_id: toy" in folder("config", "show").out
    assert folder("config", "validate").code == 0
    document = folder("doctor", "--json").document
    about = [(f["severity"], f["sentence"]) for f in document["findings"] if f["about"] == "config"]
    assert about == [("ok", "practice.yaml can be used")]
    Path("grpo-practice.db").unlink()
    assert "practice.yaml can be used" in folder("doctor").out
