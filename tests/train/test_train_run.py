"""A training run as it is stored, goes on, and ends."""

import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_practice.core.errors import (
    ConfigError,
    FingerprintError,
    RunFailedError,
    StoppedError,
)
from grpo_practice.core.events import Notice, RunFinished, RunStarted, WeightsUpdated
from grpo_practice.store import Store, branches, trained_steps
from grpo_practice.store.db import insert
from grpo_practice.store.records import CheckpointRow
from grpo_practice.train.work import Answer
from tests.train.fake_trainer import FakeTrainer, KilledError, TrainProject


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainProject:
    return TrainProject(tmp_path / "p", monkeypatch)


@pytest.fixture
def unbroken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainProject:
    made = TrainProject(tmp_path / "unbroken", monkeypatch)
    made.train()
    return made


def killed(project: TrainProject, step: int, *sets: str) -> None:
    with pytest.raises(KilledError):
        project.train(FakeTrainer(kill=step), *sets)


def test_a_run_has_steps_groups_rollouts_verdicts_and_updates(project: TrainProject) -> None:
    report = project.train(None, "train.update_epochs=2")
    assert (report.closed, len(report.steps), len(report.updates)) == (6, 6, 12)
    assert [row.step for row in report.checkpoints] == [1, 3, 5]
    (run,) = project.query("SELECT kind, status, exp_id FROM runs WHERE run_id = 'toy/train'")
    assert run == ("train", "done", "toy")
    assert project.query("SELECT count(*) FROM rollouts") == [(6 * 16,)]
    assert project.query("SELECT count(*) FROM verdicts WHERE reward IS NOT NULL") == [(6 * 16,)]
    assert project.query("SELECT count(*), sum(informative) > 0 FROM groups") == [(6 * 4, 1)]
    assert project.query("SELECT count(*) FROM calls") == [(0,)]
    row = project.query("SELECT tokens_in, tokens_out, cost_micro, turns FROM rollouts LIMIT 1")
    assert row == [(10, 4, None, 1)]
    kinds = {type(event) for event in project.events}
    assert {RunStarted, WeightsUpdated, RunFinished} <= kinds
    assert sum(isinstance(event, WeightsUpdated) for event in project.events) == 6


def test_the_same_command_again_trains_nothing(project: TrainProject) -> None:
    project.train()
    again = FakeTrainer()
    report = project.train(again)
    assert (again.plans, report.closed) == ([], 6)


@pytest.mark.long_after(1)
@pytest.mark.parametrize("step", [3, 0, 1, 2, 4, 5])
def test_a_killed_run_goes_on_at_its_last_checkpoint_and_comes_out_as_unbroken(
    project: TrainProject, unbroken: TrainProject, step: int
) -> None:
    killed(project, step)
    fake = FakeTrainer()
    report = project.train(fake)
    first = step - step % 2
    assert fake.trained == list(range(first, 6))
    assert project.line() == unbroken.line()
    assert len(report.updates) == 6
    assert [row.sha256 for row in report.checkpoints] == [
        row.sha256 for row in unbroken.train().checkpoints
    ]


def test_steps_after_the_checkpoint_stay_on_the_old_branch(project: TrainProject) -> None:
    killed(project, 3)  # step 2 is stored, and its weights are lost
    project.train()
    branches = project.query("SELECT branch_id, from_step, cause FROM branches")
    assert branches == [(1, 0, "start"), (2, 2, "restart")]
    closed = "SELECT branch_id, count(*) FROM steps WHERE status = 'closed' GROUP BY 1"
    assert project.query(closed) == [(1, 3), (2, 4)]
    shown = [event.text for event in project.events if isinstance(event, Notice)]
    assert any("resumes at step 2, after its last checkpoint" in text for text in shown)


@pytest.mark.long
def test_more_steps_go_on_where_the_run_ended(
    project: TrainProject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.train()
    fake = FakeTrainer()
    project.train(fake, "train.steps=8")
    straight = TrainProject(tmp_path / "straight", monkeypatch)
    straight.train(None, "train.steps=8")
    assert (fake.trained, project.line()) == ([6, 7], straight.line())
    with pytest.raises(FingerprintError, match="their number can only grow"):
        project.train(None, "train.steps=7")


def test_another_length_is_another_run_where_the_learning_rate_falls(
    project: TrainProject,
) -> None:
    project.train(None, "train.scheduler=linear")
    with pytest.raises(FingerprintError) as caught:
        project.train(None, "train.scheduler=linear", "train.steps=8")
    assert [change.key for change in caught.value.diff] == ["train.steps"]


def test_other_base_weights_are_refused_by_their_hash(project: TrainProject) -> None:
    project.train()
    (project.base / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(FingerprintError) as caught:
        project.train(None, "train.steps=8")
    assert [change.key for change in caught.value.diff] == ["train.model_sha256"]


def test_a_verify_function_that_needs_rollouts_is_refused(project: TrainProject) -> None:
    fake = FakeTrainer()
    with pytest.raises(ConfigError, match="scores what an agent did in a rollout"):
        project.train(fake, "evaluation.verify={name: tool_calls, required: [a]}")
    assert fake.trained == []


def test_a_checkpoint_of_another_hash_is_refused(project: TrainProject) -> None:
    killed(project, 4)
    (saved,) = project.db.parent.glob("t.db.train/*/*/step-000003/*.safetensors")
    saved.write_text("0123")
    fake = FakeTrainer()
    with pytest.raises(ConfigError, match="does not contain the weights") as caught:
        project.train(fake)
    assert (fake.trained, "rm -r" in (caught.value.hint or "")) == ([], True)


def test_without_the_last_checkpoint_it_goes_on_at_the_one_before(
    project: TrainProject, unbroken: TrainProject
) -> None:
    killed(project, 4)
    (saved,) = project.db.parent.glob("t.db.train/*/*/step-000003")
    shutil.rmtree(saved)
    fake = FakeTrainer()
    project.train(fake)
    assert (fake.trained[0], project.line()) == (2, unbroken.line())


def test_a_checkpoint_elsewhere_is_none_of_ours(project: TrainProject, tmp_path: Path) -> None:
    killed(project, 4)
    (saved,) = project.folder.glob("t.db.train/*/*/step-000003")
    shutil.move(saved, tmp_path / "theirs")
    with Store(project.db) as store:
        moved = "UPDATE checkpoints SET path = '../theirs' WHERE step = 3"
        store._write(lambda db: db.execute(moved))
    fake = FakeTrainer()
    project.train(fake)
    assert fake.trained[0] == 2
    assert fake.plans[0].resume is not None
    assert fake.plans[0].resume.name == "step-000001"


def test_a_restart_is_at_a_checkpoint(project: TrainProject) -> None:
    project.train()
    with pytest.raises(ConfigError, match="no checkpoint was saved before it") as caught:
        project.train(None, "train.learning_rate=2.0e-5", restart_step=3)
    assert caught.value.hint == "--restart-step 0 or 2"
    fake = FakeTrainer()
    project.train(fake, "train.learning_rate=2.0e-5", restart_step=2)
    assert fake.trained == [2, 3, 4, 5]


@pytest.mark.long_after(1)
@pytest.mark.parametrize(("restart", "goes_on"), [(2, 4), (0, 4), (4, 4)])
def test_a_restart_that_was_killed_goes_on_at_its_last_checkpoint(
    project: TrainProject, restart: int, goes_on: int
) -> None:
    project.train()
    with pytest.raises(KilledError):
        project.train(FakeTrainer(kill=5), "train.learning_rate=2.0e-5", restart_step=restart)
    fake = FakeTrainer()
    report = project.train(fake, "train.learning_rate=2.0e-5", restart_step=restart)
    assert (fake.trained, report.closed) == ([*range(goes_on, 6)], 6)


def test_a_finished_restart_is_trained_again_only_with_again(project: TrainProject) -> None:
    project.train()
    project.train(FakeTrainer(), restart_step=2)
    fake = FakeTrainer()
    project.train(fake, restart_step=2)
    assert fake.plans == []
    shown = [event.text for event in project.events if isinstance(event, Notice)]
    assert "is already finished (--again repeats it)" in shown[-1]
    project.train(fake, restart_step=2, again=True)
    assert fake.trained == [2, 3, 4, 5]


@pytest.mark.long_after(1)
@pytest.mark.parametrize(
    "change", ["train.update_epochs=2", "train.lora={r: 8}", "train.lora=null", "base"]
)
def test_weights_that_do_not_fit_are_no_start(project: TrainProject, change: str) -> None:
    project.train()
    if change == "base":
        (project.base / "model.safetensors").write_bytes(b"other weights")
    sets = () if change == "base" else (change,)
    with pytest.raises(FingerprintError, match="its weights do not fit") as caught:
        project.train(None, *sets, restart_step=2)
    assert caught.value.hint == "--restart-step 0 trains from the base model"
    fake = FakeTrainer()
    project.train(fake, *sets, restart_step=0)
    assert (fake.trained, fake.plans[0].resume) == ([*range(6)], None)


def test_a_restart_may_have_more_questions_in_a_step(project: TrainProject) -> None:
    project.train()
    fake = FakeTrainer()
    report = project.train(fake, "train.prompts_per_step=6", "train.steps=6", restart_step=2)
    assert fake.trained == [2, 3, 4, 5]
    assert [len(row.plan.slots) for row in report.steps] == [4, 4, 6, 6, 6, 6]
    (plan,) = fake.plans
    asked = [messages[-1]["content"] for messages in plan.prompts]
    assert asked[:12] == [""] * 12
    (second,) = [row.plan for row in report.steps if row.plan.step == 2]
    questions = dict(project.query("SELECT sample_id, question FROM samples"))
    assert asked[12:18] == [questions[sample] for sample, _ in second.slots]


def unscorable(n: int) -> Callable[[int, list[Answer]], list[Answer]]:
    return lambda step, made: [
        *(replace(answer, text="unscorable") for answer in made[:n]),
        *made[n:],
    ]


def test_what_cannot_be_scored_is_no_wrong_answer(project: TrainProject) -> None:
    project.train(FakeTrainer(change=unscorable(2)))
    failed = "SELECT count(*), max(reason) FROM rollouts WHERE outcome = 'error'"
    assert project.query(failed) == [(12, "verify")]
    assert project.query("SELECT count(*) FROM verdicts") == [(6 * 14,)]


def test_too_many_of_them_end_the_run(project: TrainProject) -> None:
    with pytest.raises(RunFailedError, match="no idea"):
        project.train(FakeTrainer(change=unscorable(8)))
    assert project.query("SELECT status FROM runs") == [("failed",)]


def test_a_loss_that_is_no_number_ends_the_run_with_its_last_checkpoint(
    project: TrainProject,
) -> None:
    with pytest.raises(RunFailedError, match="the loss of step 3 is nan"):
        project.train(FakeTrainer(loss=lambda step: float("nan") if step == 3 else 0.1))
    assert project.query("SELECT max(step) FROM checkpoints") == [(1,)]
    assert project.query("SELECT count(*) FROM steps WHERE status = 'closed'") == [(3,)]


def test_twenty_steps_without_a_lesson_end_the_run(project: TrainProject) -> None:
    def alike(step: int, made: list[Answer]) -> list[Answer]:
        return [replace(answer, text="it is 5") for answer in made] if step else made

    with pytest.raises(RunFailedError, match="in the last 20 steps, all rewards"):
        project.train(FakeTrainer(change=alike), "train.steps=30")
    assert project.query("SELECT count(*) FROM steps WHERE status = 'closed'") == [(21,)]


def test_steps_that_teach_nothing_are_counted_over_a_kill(project: TrainProject) -> None:
    def alike(step: int, answers: list[Answer]) -> list[Answer]:
        return answers if step == 0 else [replace(answer, text="it is 5") for answer in answers]

    with pytest.raises(KilledError):
        project.train(FakeTrainer(change=alike, kill=13), "train.steps=30")
    with pytest.raises(RunFailedError, match="in the last 20 steps, all rewards"):
        project.train(FakeTrainer(change=alike), "train.steps=30")
    assert project.query("SELECT max(step) FROM steps WHERE status = 'closed'") == [(20,)]


def test_a_full_device_is_a_sentence(project: TrainProject) -> None:
    def full(step: int) -> Exception | None:
        return RuntimeError("CUDA out of memory. Tried …") if step == 2 else None

    with pytest.raises(RunFailedError, match="ran out of memory") as caught:
        project.train(FakeTrainer(error=full))
    assert "train.memory=low" in (caught.value.hint or "")


def test_a_full_disk_is_a_sentence(project: TrainProject) -> None:
    def full(step: int) -> Exception | None:
        return OSError(28, "No space left on device") if step == 2 else None

    with pytest.raises(RunFailedError, match="the disk was full while saving a checkpoint"):
        project.train(FakeTrainer(error=full))
    assert project.query("SELECT max(step) FROM checkpoints") == [(1,)]


def test_a_signal_ends_the_run_after_its_step_with_a_checkpoint(
    project: TrainProject, unbroken: TrainProject
) -> None:
    project.workspace._signals = True
    main = threading.main_thread().ident
    assert main is not None
    fake = FakeTrainer(stop=2, request_stop=lambda: signal.pthread_kill(main, signal.SIGTERM))
    with pytest.raises(StoppedError):
        project.train(fake)
    assert fake.trained == [0, 1, 2]
    assert project.query("SELECT status FROM runs") == [("stopped",)]
    assert project.query("SELECT max(step) FROM checkpoints") == [(2,)]
    project.train()
    assert project.line() == unbroken.line()


def test_weights_are_evaluated_on_the_selection_questions(project: TrainProject) -> None:
    sets = ("practice.select_dataset=s.jsonl", "train.eval_every=3")
    report = project.train(None, *sets)
    assert list(report.selection) == [2, 5]
    runs = project.query("SELECT run_id, parent_run_id, parent_step FROM runs WHERE kind = 'eval'")
    assert [(parent, step) for _, parent, step in runs] == [("toy/train", 2), ("toy/train", 5)]
    assert len(project.line(runs[0][0])) == 3 * 2
    again = project.train(None, *sets)
    assert again.selection == report.selection


def test_equal_weights_are_not_scored_again(project: TrainProject) -> None:
    sets = ("practice.select_dataset=s.jsonl", "train.eval_every=2", "train.save_every=2")
    killed(project, 2, *sets)
    (saved,) = project.db.parent.glob("t.db.train/*/*/step-000001")
    shutil.rmtree(saved)  # so that step 1 is trained again, to the same weights
    project.train(None, *sets)
    count = "SELECT count(*) FROM runs WHERE kind = 'eval' AND parent_step = 1"
    assert project.query(count) == [(1,)]
    rollouts = "SELECT count(*) FROM rollouts JOIN branches USING (branch_id) WHERE run_id LIKE ?"
    assert project.query(rollouts, "toy/train/eval/%") == [(3 * 6,)]


def test_what_a_judge_said_is_not_paid_again(project: TrainProject) -> None:
    judged = (
        "evaluation.verify=judge",
        "evaluation.agent.model={model_provider: {model: sim}}",
    )
    killed(project, 1, *judged)  # step 0 is stored, step 1 judged; there is no checkpoint yet
    asked = project.query("SELECT count(*) FROM calls")
    assert asked == [(2 * 16,)]
    project.train(None, *judged)
    assert project.query("SELECT count(*) FROM calls") == [(6 * 16,)]
    assert project.query("SELECT count(*) FROM rollouts") == [((1 + 6) * 16,)]


def test_a_deleted_run_takes_its_checkpoints_along_and_nothing_else(
    project: TrainProject, tmp_path: Path
) -> None:
    killed(project, 3)
    project.train()
    others = tmp_path / "mine"
    others.mkdir()
    inside = project.folder / "t.db.train/toy.train/b1/notes.txt"
    inside.write_text("mine")
    (project.folder / "t.db.train/link").symlink_to(others)
    with Store(project.db) as store:
        branch = store.read(branches.load, 1)

        def lie(db: sqlite3.Connection) -> None:
            """Name folders that are not ours, as a database of somebody else may."""
            for step, path in (
                (90, str(others)),
                (91, "../mine"),
                (92, "t.db.train/link"),
                (93, "."),
            ):
                row = {"branch_id": 1, "step": step, "epoch": 0, "batch": 0, "plan": "[]"}
                insert(db, "steps", row | {"status": "planned"})
                trained_steps.add_checkpoint(db, branch, CheckpointRow(step, path, bytes(32), 0))

        store._write(lie)
    project.workspace.delete_run("toy/train")
    assert others.is_dir()
    assert project.db.is_file()
    assert inside.read_text() == "mine"
    left = {path.name for path in (project.folder / "t.db.train").rglob("*")}
    assert left == {"toy.train", "b1", "notes.txt", "link"}
    assert project.query("SELECT count(*) FROM updates") == [(0,)]
    assert project.query("SELECT count(*) FROM checkpoints") == [(0,)]


def test_runs_show_has_steps_updates_and_checkpoints(project: TrainProject) -> None:
    project.train()
    report = project.workspace.run("toy/train")
    assert report.trained is not None
    document = report.document()
    trained = document["trained"]
    assert [update["step"] for update in trained["updates"]] == list(range(6))
    assert [row["step"] for row in trained["checkpoints"]] == [1, 3, 5]
    assert len(trained["base_sha"]) == 64
    assert (document["model"], document["run"]["kind"]) == ("base", "train")
    assert report.next_command == "grpo-practice export-agent --run toy/train"
