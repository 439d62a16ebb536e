"""What is refused leaves everything as it was, and a run that failed does not pass as a success."""

from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import ConfigError, DataError, FingerprintError, RunFailedError
from grpo_practice.core.types import Sample
from grpo_practice.store import Store
from tests.contract.project import served
from tests.run.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def everything(project: Project) -> list[Any]:
    return [
        project.query(f"SELECT * FROM {table} ORDER BY 1")
        for table in ("runs", "branches", "invocations", "libraries")
    ] + [project.query("SELECT branch_id, step, plan, status FROM steps ORDER BY 1, 2")]


@pytest.mark.long_after(1)
@pytest.mark.parametrize(
    ("settings", "restart_step"),
    [
        (["practice.batch_size=50", "practice.drop_last=true"], 2),
        (["evaluation.agent.model.model_settings.extra_headers={X: aé}"], 1),
        (["practice.epochs=1"], None),
        (["practice.grpo_n=4"], None),
    ],
    ids=lambda v: str(v),
)
async def test_a_refused_command_changes_nothing(
    project: Project, settings: list[str], restart_step: int | None
) -> None:
    await project.practise()
    before = everything(project)
    with pytest.raises(ConfigError):
        await project.practise(*settings, restart_step=restart_step)
    assert everything(project) == before
    assert (await project.practise()).requests.new == 0


async def test_a_first_run_that_is_refused_is_not_there(project: Project) -> None:
    with pytest.raises(ConfigError, match="no step to play"):
        await project.practise("practice.batch_size=50", "practice.drop_last=true")
    assert project.query("SELECT * FROM runs") == []


async def test_fewer_epochs_are_refused_with_a_diff(project: Project) -> None:
    await project.practise("practice.epochs=2")
    with pytest.raises(FingerprintError) as e:
        await project.practise("practice.epochs=1")
    assert [(c.key, c.was, c.now) for c in e.value.diff] == [("practice.epochs", 2, 1)]


async def test_fewer_rollouts_per_question_do_not_pay_an_evaluation_on_the_way_again(
    project: Project,
) -> None:
    await project.practise("practice.do_eval=true", "evaluation.pass_k=2")
    calls = project.query("SELECT count(*) FROM calls")
    with pytest.raises(FingerprintError, match="can only grow"):
        await project.practise("practice.do_eval=true", "evaluation.pass_k=1")
    assert project.query("SELECT count(*) FROM calls") == calls


async def test_an_evaluation_that_grows_stays_bound_to_its_configuration(
    project: Project,
) -> None:
    await project.evaluate("pass_k=1")

    def down(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return 400, {"error": {"message": "down"}}

    async with served(down) as endpoint:
        at = endpoint.override().removeprefix("evaluation.")
        with pytest.raises(RunFailedError):
            await project.evaluate(at, "pass_k=2")
    with pytest.raises(FingerprintError, match="a different configuration"):
        await project.evaluate("pass_k=2", "agent.agent.instructions=Guess.")


async def test_an_evaluation_is_not_restarted_in_the_middle_as_another_agent(
    project: Project,
) -> None:
    await project.evaluate("batch_size=3")
    changed = ("batch_size=3", "agent.agent.instructions=Guess.")
    with pytest.raises(FingerprintError, match="two agents"):
        await project.evaluate(*changed, restart_step=2)
    assert (await project.evaluate(*changed, restart_step=0)).requests.new == 12


async def test_a_failed_merge_is_on_record_as_a_failure(project: Project) -> None:
    def no_merge(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        merging = "## The proposals" in body["messages"][-1]["content"]
        return (400, {"error": {"message": "no"}}) if merging else None

    async with served(no_merge) as endpoint:
        report = await project.practise(endpoint.override())
    assert report.document()["exit"] == 1
    assert project.query("SELECT status FROM runs WHERE run_id = 'toy'") == [("failed",)]
    ((code, reason),) = project.query("SELECT exit_code, reason FROM invocations")
    assert code == 1
    assert "merge" in reason


async def test_running_out_of_time_stops_a_run_like_any_other_failure(project: Project) -> None:
    async with served() as endpoint:
        with pytest.raises(RunFailedError, match="time"):
            await project.practise(endpoint.override(), "practice.task_timeout=0.0001")
    assert project.query("SELECT count(*) FROM verdicts") == [(0,)]


async def test_golds_are_checked_also_when_the_teacher_may_not_see_them(project: Project) -> None:
    with Store(project.db) as store:
        rows = [Sample("1+1?", "2"), Sample("what?", None)]
        store.add_dataset("train", rows, origin="x", replace=True)
    with pytest.raises(DataError, match="row 2"):
        await project.practise("practice.given_ground_truth=false")


async def test_a_dataset_in_a_file_never_takes_an_uploaded_name(project: Project) -> None:
    await project.practise("practice.epochs=1")
    path = project.folder / "other" / "train.jsonl"
    path.parent.mkdir()
    path.write_text('{"question": "1+1?", "answer": 2}\n')
    report = await project.evaluate(f"data.dataset={path}")
    assert report.dataset.name.startswith("train-")
    assert report.score.planned == 1
    assert (await project.practise("practice.epochs=1")).requests.new == 0


async def test_the_same_flags_typed_again_are_the_same_run(project: Project) -> None:
    await project.evaluate()
    await project.evaluate(verify="contains")
    with Store(project.db) as store:
        name = project.eval_job(store, config=None, verify="contains").spec.name
    assert name == "toy/eval/verify=contains"
