"""Training with the libraries themselves: killed, on two ranks, with what goes wrong in it."""

import hashlib
import json
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.train.real import RealProject, end, wait_for

pytest.importorskip("trl")
pytestmark = [pytest.mark.slow]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> RealProject:
    project = RealProject(tmp_path_factory.mktemp("unbroken"))
    code, said = project.train()
    assert code == 0, said
    return project


def test_a_run_is_stored_with_what_each_update_did(unbroken: RealProject) -> None:
    rows = unbroken.rows()
    assert len(rows["rollouts"]) == 8 * 16
    assert [(step, inner) for step, inner, *_ in rows["updates"]] == [
        (step, inner) for step in range(8) for inner in (0, 1)
    ]
    assert sorted(unbroken.weights()) == [1, 3, 5, 7]
    # On the policy's own answers nothing is clipped, and the second update may clip.
    assert all(low == high == 0 for _, inner, _, _, low, high in rows["updates"] if inner == 0)
    base = {path.name for path in (unbroken.folder / "base").iterdir()}
    assert "model.safetensors" in base


@pytest.mark.parametrize("saved", [0, 1, 3], ids=lambda n: f"{n} checkpoints")
def test_a_killed_run_comes_to_the_same_weights(
    tmp_path: Path, unbroken: RealProject, saved: int
) -> None:
    project = RealProject(tmp_path / "p")
    process = project.begin()
    name = f"t.db.train/*/b*/step-{2 * saved - 1:06}" if saved else "t.db"
    wait_for(project.folder, name, process)
    end(process)
    code, said = project.train()
    assert code == 0, said
    assert project.weights()[7] == unbroken.weights()[7]
    assert project.rows() == unbroken.rows()


def test_a_kill_in_the_middle_of_a_save_leaves_no_half_of_one(
    tmp_path: Path, unbroken: RealProject
) -> None:
    project = RealProject(tmp_path / "p")
    process = project.begin()
    wait_for(project.folder, "t.db.train/*/b*/.making/checkpoint-*/*.safetensors", process)
    end(process)
    for folder in project.folder.glob("t.db.train/*/b*/step-*"):
        assert {"adapter_model.safetensors", "optimizer.pt", "trainer_state.json"} <= {
            path.name for path in folder.iterdir()
        }
    code, said = project.train()
    assert code == 0, said
    assert project.weights()[7] == unbroken.weights()[7]
    assert not list(project.folder.glob("t.db.train/*/b*/.making"))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_after_a_step_with_a_checkpoint(
    tmp_path: Path, unbroken: RealProject, number: signal.Signals
) -> None:
    project = RealProject(tmp_path / "p")
    process = project.begin("--steps", "40")
    wait_for(project.folder, "t.db.train/*/b*/step-000001", process)
    said = end(process, number)
    assert process.returncode == 128 + number, said
    assert "stopping after this step" in said
    with closing(sqlite3.connect(project.db)) as db:
        (status,) = db.execute("SELECT status FROM runs").fetchone()
        ((last,),) = db.execute("SELECT max(step) FROM steps WHERE status = 'closed'").fetchall()
        ((saved,),) = db.execute("SELECT max(step) FROM checkpoints").fetchall()
    assert (status, saved) == ("stopped", last)


def test_a_restart_trains_at_the_learning_rate_that_it_names(tmp_path: Path) -> None:
    project = RealProject(tmp_path / "p")
    code, said = project.train("--steps", "4")
    assert code == 0, said
    slow = ("--set", "train.learning_rate=1.0e-6", "--restart-step", "2")
    code, said = project.train("--steps", "4", *slow)
    assert code == 0, said
    with closing(sqlite3.connect(project.db)) as db:
        rates = db.execute("SELECT branch_id, step, min(learning_rate) FROM updates GROUP BY 1, 2")
        assert rates.fetchall() == [(1, n, 0.01) for n in range(4)] + [(2, 2, 1e-6), (2, 3, 1e-6)]
    from safetensors.numpy import load_file

    folder = project.folder / "t.db.train/toy.train"
    start, *ends = (
        load_file(folder / name / "adapter_model.safetensors")
        for name in ("b1/step-000001", "b1/step-000003", "b2/step-000003")
    )
    fast, slow_moved = (max(abs(end[k] - start[k]).max() for k in start) for end in ends)
    assert slow_moved < fast / 100


def test_what_a_model_says_of_sampling_counts_where_it_is_served_alone(tmp_path: Path) -> None:
    rows, whole = [], ("--steps", "2", "--set", "train.lora=null")
    for own in ({}, {"min_p": 0.9, "repetition_penalty": 1.9, "no_repeat_ngram_size": 1}):
        project = RealProject(tmp_path / f"p{len(own)}")
        file = project.folder / "base/generation_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **own}))
        more = ("--set", "train.eval_every=1", "--set", "practice.select_dataset=q.jsonl")
        code, said = project.train(*whole, *more)
        assert code == 0, said
        with closing(sqlite3.connect(project.db)) as db:
            answers = "SELECT response FROM v_rollouts JOIN rollout_bodies USING (rollout_id)"
            rows.append(sorted(text for (text,) in db.execute(answers)))
        (saved,) = project.folder.glob("t.db.train/*/b*/step-000001/generation_config.json")
        assert own.items() <= json.loads(saved.read_text()).items()
    assert rows[0] == rows[1]


POPULATION = (
    *("tune", "--population", "4", "--steps", "6", "--json"),
    *("--set", "train.eval_every=2"),
    *("--set", "practice.select_dataset=q.jsonl"),
    *("--set", "train.tune.space={learning_rate: {low: 1.0e-4, high: 0.1, log: true}}"),
)


def test_a_population_that_is_killed_comes_out_as_one_that_was_not(tmp_path: Path) -> None:
    unbroken, project = RealProject(tmp_path / "unbroken"), RealProject(tmp_path / "p")
    found = []
    for step in (1, 3):
        process = project.begin(*POPULATION)
        wait_for(project.folder, f"t.db.train/toy.tune.2/b*/step-{step:06}", process)
        end(process)
    for one in (unbroken, project):
        code, said = one.train(*POPULATION)
        assert code == 0, said
        found.append(json.loads(said[said.index("{") :]))
    assert found[0] == found[1]
    assert any(len(trial["phases"]) > 1 for trial in found[0]["trials"])
    weights = [sorted(map(_sha, one.folder.glob(SAVED))) for one in (unbroken, project)]
    assert set(weights[0]) == set(weights[1])


SAVED = "t.db.train/toy.tune.*/b*/step-000005/adapter_model.safetensors"


def _sha(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_two_ranks_train_and_one_of_them_stores(tmp_path: Path) -> None:
    project = RealProject(tmp_path / "p")
    code, said = project.train(ranks=2)
    assert code == 0, said
    rows = project.rows()
    assert len(rows["rollouts"]) == 8 * 16
    assert len({(step, slot, attempt) for step, slot, attempt, *_ in rows["rollouts"]}) == 8 * 16
    assert said.count("step 7 closed") == 1
    # Other seeds for other ranks: the same answers twice would be half the rollouts paid for.
    first = [text for step, slot, _, _, text, _ in rows["rollouts"] if (step, slot) == (0, 0)]
    third = [text for step, slot, _, _, text, _ in rows["rollouts"] if (step, slot) == (0, 2)]
    assert first != third


def test_a_rank_that_is_killed_ends_all_of_them_and_the_run_goes_on(tmp_path: Path) -> None:
    project = RealProject(tmp_path / "p")
    process = project.begin("--steps", "60", ranks=2)
    wait_for(project.folder, "t.db.train/*/b*/step-000001", process)
    listed = subprocess.run(
        ["ps", "-eo", "pid,ppid,args"], capture_output=True, text=True, check=True
    ).stdout
    ranks = [
        int(line.split()[0])
        for line in listed.splitlines()
        if line.split()[1] == str(process.pid) and "grpo_practice" in line
    ]
    assert len(ranks) == 2, listed
    other = next(pid for pid in ranks if "RANK=1" in _environ(pid))
    os.kill(other, signal.SIGKILL)
    said, _ = process.communicate(timeout=100)
    assert process.returncode != 0, said
    code, said = project.train("--steps", "60")
    assert code == 0, said
    assert len(project.rows()["rollouts"]) == 60 * 16


def _environ(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace").split("\0")


def test_a_loss_that_is_no_number_is_a_sentence(tmp_path: Path) -> None:
    project = RealProject(tmp_path / "p")
    code, said = project.train("--set", "train.learning_rate=1.0e+30", "--set", "train.lora=null")
    assert code == 1, said
    assert "the weights are unusable from here on" in said
    assert "Traceback" not in said


def test_a_dry_run_measures_a_step_and_leaves_nothing(tmp_path: Path) -> None:
    project = RealProject(tmp_path / "p")
    code, said = project.train("--dry-run", "--json")
    assert code == 0, said
    found = json.loads(said[said.index("{") :])
    assert (found["steps"], found["steps_left"], found["rollouts"]) == (8, 8, 16)
    assert found["step_s"] > 0
    assert found["trained"] == 8192
    assert not project.db.exists()
    assert not list(project.folder.glob("*.train"))


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ("train.device=cuda", "torch finds no such device"),
        ("train.generate=vllm", "which is not installed"),
        ("train.lora={targets: [nothing]}", "Target modules {'nothing'} not found"),
        ("train.lora={targets: [lm_head]}", "is the vocabulary layer"),
        ("train.model=some/name", "cannot be downloaded from the hub"),
        ("train.model=./nowhere", "has no config.json"),
        ("evaluation.agent.toolkits={py: {name: python_executor}}", "an agent with tools cannot"),
        ("train.prompts_per_step=17", "16 questions do not fill a step of 17"),
    ],
)
def test_what_cannot_be_trained_is_a_sentence(tmp_path: Path, sets: str, said: str) -> None:
    project = RealProject(tmp_path / "p")
    code, told = project.train("--set", sets)
    assert (code in (2, 4), said in told, "Traceback" in told) == (True, True, False), told
    assert "hint: " in told


def test_all_weights_are_trained_and_served_in_the_base_models_precision(tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    project = RealProject(tmp_path / "p")
    base = project.folder / "base"
    AutoModelForCausalLM.from_pretrained(base, dtype="bfloat16").save_pretrained(base)
    code, said = project.train("--set", "train.lora=null", "--steps", "2")
    assert code == 0, said
    (folder,) = project.folder.glob("t.db.train/*/b*/step-000001")
    code, said = project.command("export-agent", "--run", "toy/train")
    assert code == 0, said
    sizes = [
        (where / "model.safetensors").stat().st_size
        for where in (base, folder, project.folder / "toy-trained/model")
    ]
    assert sizes[0] == pytest.approx(sizes[2], rel=0.02)
    assert sizes[1] == pytest.approx(2 * sizes[0], rel=0.05)
    served = AutoModelForCausalLM.from_pretrained(project.folder / "toy-trained/model")
    assert str(served.dtype) == "torch.bfloat16"


def test_a_model_that_asks_for_code_or_has_only_pickles_is_refused(tmp_path: Path) -> None:
    project = RealProject(tmp_path / "p")
    config = project.folder / "base/config.json"
    kept = config.read_text()
    config.write_text(json.dumps(json.loads(kept) | {"auto_map": {"AutoModel": "evil.Model"}}))
    code, said = project.train()
    assert (code, "refers to Python code shipped with the model" in said) == (2, True), said
    config.write_text(kept)
    (project.folder / "base/model.safetensors").rename(project.folder / "base/pytorch_model.bin")
    code, said = project.train()
    assert (code, "has no weights (*.safetensors)" in said) == (2, True), said


def test_a_model_that_cannot_be_trained_so_is_a_sentence(tmp_path: Path) -> None:
    project = RealProject(tmp_path / "p")
    config, template = (
        project.folder / "base" / name for name in ("config.json", "chat_template.jinja")
    )
    kept, was = config.read_text(), template.read_text()
    template.write_text("{{ raise_exception('System role not supported') }}")
    code, said = project.train()
    assert (code, "refuses the messages: System role not supported" in said) == (2, True), said
    template.write_text(was)
    config.write_text(json.dumps(json.loads(kept) | {"tie_word_embeddings": True}))
    code, said = project.train("--set", "train.lora={targets: [embed_tokens]}")
    assert (code, "is the vocabulary layer" in said) == (2, True), said
    more = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
    config.write_text(json.dumps(json.loads(kept) | more))
    code, said = project.train()
    assert (code, "is quantised" in said) == (2, True), said


def test_what_does_not_fit_is_said_before_weights_are_loaded(tmp_path: Path) -> None:
    project = RealProject(tmp_path / "p")
    code, said = project.train("--set", "train.max_output_tokens=600")
    assert (code, "do not fit into the model's window of 512" in said) == (4, True), said
    (project.folder / "base/chat_template.jinja").unlink()
    code, said = project.train()
    assert (code, "has no chat template" in said) == (2, True), said
