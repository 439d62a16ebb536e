"""A training run in the commands that look at runs; nothing of it needs torch."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from grpo_practice import Workspace
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.hashing import text_sha
from grpo_practice.store.identity import MODEL
from tests.train.fake_trainer import TrainProject
from tests.train.stored import BASE_SHA, REWARDS, RUN, UNSCORED, training_database


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(training_database(tmp_path))


def test_the_stored_run_has_two_branches_and_each_step_once(workspace: Workspace) -> None:
    report = workspace.run(RUN)
    assert [branch.cause for branch in report.branches] == ["start", "restart"]
    assert [row.branch_id for row in report.steps] == [1, 1, 2]
    assert report.outcomes == {"ok": 46, "truncated": 1, "error.verify": 1}


def test_a_run_says_from_what_and_how_it_was_trained(workspace: Workspace) -> None:
    document = workspace.run(RUN).document()
    assert (document["model"], document["verify"]) == ("models/base", "exact")
    assert document["trained"]["base_sha"] == BASE_SHA.hex()
    assert [(row["step"], row["loss"]) for row in document["trained"]["updates"]] == [
        (0, 0.5),
        (1, 0.25),
        (2, 0.0),
    ]
    assert [row["path"] for row in document["trained"]["checkpoints"]] == [
        "t.db.train/toy.train/b1/step-000001",
        "t.db.train/toy.train/b2/step-000002",
    ]
    assert [run["model"] for run in workspace.runs().document()["runs"]] == ["models/base"]


@pytest.mark.parametrize("train", ["[model]", "[]", "models/base", "{}", "{model: 7}"])
def test_a_config_of_somebody_else_is_no_obstacle(workspace: Workspace, train: str) -> None:
    with closing(sqlite3.connect(workspace.path)) as db, db:
        text = f"train: {train}"
        db.execute("INSERT INTO texts VALUES (?, ?)", (text_sha(text), text))
        db.execute("UPDATE branches SET config_sha = ?", (text_sha(text),))
    assert len(workspace.runs().runs) == 1
    assert workspace.run(RUN).steps


def test_rollouts_have_question_prompt_and_answer_without_calls(workspace: Workspace) -> None:
    (shown,) = [
        one
        for one in workspace.rollouts(RUN)
        if (one.step, one.rollout.slot, one.rollout.attempt) == UNSCORED
    ]
    assert shown.question == "How many legs have 4 cats?"
    assert (shown.system, shown.rollout.played.response) == ("Count.", "163")
    assert (shown.rollout.reward, shown.rollout.played.reason) == (None, "verify")


def test_a_question_flips_between_its_first_and_its_last_step(workspace: Workspace) -> None:
    report = workspace.rollout_list(RUN, flipped=True)
    assert {row.number for row in report.rollouts} == {3, 4}
    assert report.compared == "the first time that the run played the question"


def test_attempts_can_be_trained_on_as_they_were_asked(
    workspace: Workspace, tmp_path: Path
) -> None:
    out = tmp_path / "d.jsonl"
    workspace.export_data(RUN, "sft", out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert rows[0]["messages"] == [
        {"role": "system", "content": "Count."},
        {"role": "user", "content": "How many legs have 1 cats?"},
        {"role": "assistant", "content": "4"},
    ]
    assert len(rows) == sum(reward == 1 for step in REWARDS for group in step for reward in group)
    workspace.export_data(RUN, "dpo", out, force=True)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert (rows[0]["chosen"][0]["content"], rows[0]["rejected"][0]["content"]) == ("12", "121")


def test_a_training_run_is_whole_without_libraries(workspace: Workspace) -> None:
    checked = workspace.check()
    assert [(f.wrong, f.notes) for f in checked.checks] == [([], [])] * len(checked.checks)
    looked_at = {finding.name: finding.looked_at for finding in checked.checks}
    assert (looked_at["closed steps of training"], looked_at["checkpoints"]) == (4, 2)


@pytest.mark.parametrize("of", ["groups", "rollouts", "updates"])
def test_a_step_of_training_without_all_of_it_is_damage(workspace: Workspace, of: str) -> None:
    with closing(sqlite3.connect(workspace.path)) as db, db:
        db.execute(f"DELETE FROM {of} WHERE branch_id = 1 AND step = 1")
    said = {finding.name: finding.wrong for finding in workspace.check().checks}
    (wrong,) = said["closed steps of training"]
    what = {"groups": "0 of 4 groups", "rollouts": "0 of 16 rollouts", "updates": "no update"}[of]
    assert wrong == f"step 1 of {RUN} is closed with {what}"


def test_a_checkpoint_that_is_gone_is_said_and_no_damage(
    workspace: Workspace, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / "t.db.train/toy.train/b1")
    with closing(sqlite3.connect(workspace.path)) as db, db:
        db.execute("UPDATE checkpoints SET path = ? WHERE step = 2", ("x" * 5_000,))
    checked = workspace.check()
    assert (checked.problems, checked.exit_code) == (0, 0)
    (notes,) = [finding.notes for finding in checked.checks if finding.notes]
    gone = f"the checkpoint of step 1 of {RUN} is missing: t.db.train/toy.train/b1/step-000001"
    assert notes == [gone, notes[1]]
    assert len(notes) == 2


@pytest.fixture
def selected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainProject:
    """A run whose weights were evaluated on the way."""
    project = TrainProject(tmp_path / "p", monkeypatch)
    project.train(None, "practice.select_dataset=s.jsonl", "train.eval_every=3")
    return project


def test_scores_on_the_selection_questions_are_shown_and_are_no_results(
    selected: TrainProject,
) -> None:
    report = selected.workspace.run(RUN)
    assert [*report.document()["trained"]["selection"]] == ["2", "5"]
    assert dict(report.scores) == {}
    page = selected.workspace.report(RUN).text
    assert "score of the weights on the selection questions" in page
    assert page.count('r="5.5"') == 2


def test_answers_of_weights_are_scored_again_as_theirs(selected: TrainProject) -> None:
    (name,) = [r.name for r in selected.workspace.runs().runs if r.parent_step == 2]
    sets = ("data.dataset=s.jsonl", "agent.model.model_provider.model=sim")
    again = selected.workspace.evaluate(
        rejudge=True, run=name, verify="contains", sets=sets, env={}
    )
    assert again.run == f"{name}/rejudge=contains"
    bound = "SELECT identity FROM branches JOIN runs USING (run_id) WHERE run_id = ?"
    was, now = (json.loads(selected.query(bound, run)[0][0]) for run in (name, again.run))
    assert (now["weights.sha256"], now[MODEL]) == (was["weights.sha256"], "base")
    assert not again.simulated


def test_answers_of_training_are_of_no_one_agent(selected: TrainProject) -> None:
    with pytest.raises(ConfigError, match="used different weights in each step"):
        selected.workspace.evaluate(rejudge=True, run=RUN, verify="contains", env={})
