"""A whole practice run: learns, is the same at any concurrency, and never pays twice."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.app import practice_run, specs
from grpo_practice.errors import (
    ConfigError,
    DataError,
    EndpointRefusedError,
    FingerprintError,
    RunFailedError,
)
from grpo_practice.events import Notice
from grpo_practice.store import Store, datasets
from grpo_practice.types import Experience, Library, Sample
from tests.app.project import Project, finished
from tests.contract.project import Served, served


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


async def test_practice_learns_and_a_second_run_costs_nothing(project: Project) -> None:
    first = await project.practise()
    assert [row.status for row in first.steps] == ["closed"] * 4
    assert len(first.library) >= 3
    assert first.requests.new > 36 * 2
    again = await project.practise()
    assert (again.requests.new, again.replayed) == (0, 0)
    assert again.library == first.library


async def test_the_result_does_not_depend_on_concurrency(project: Project, tmp_path: Path) -> None:
    await project.practise("practice.rollout_concurrency=1")
    other = Project(tmp_path / "other")
    await other.practise("practice.rollout_concurrency=64")
    assert other.results() == project.results()
    third = Project(tmp_path / "third")
    await third.practise("practice.seed=1")
    assert third.results() != project.results()


async def test_a_run_of_another_method_is_read_and_not_gone_on_with(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of two methods in one run would be one result over two experiments."""
    await project.practise()
    results = project.results()
    monkeypatch.setattr(specs, "METHOD", 2)
    monkeypatch.setattr(practice_run, "METHOD", 2)
    assert (await project.practise()).requests.new == 0
    with pytest.raises(FingerprintError, match="begun by another version") as refused:
        await project.practise("practice.epochs=5")
    (change,) = refused.value.diff
    assert (change.key, change.now) == ("practice.method", 2)
    assert "--restart-step" in (refused.value.hint or "")
    assert project.results() == results
    afresh = await project.practise(restart_step=2)
    assert afresh.requests.new > 0


async def cut_off(work: Coroutine[Any, Any, object], endpoint: Served, after: int) -> None:
    """Cancel the work once the endpoint has been asked `after` times."""
    task = asyncio.create_task(work)
    await endpoint.asked(after)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("after", [1, 20, 45, 80])
async def test_a_run_cut_off_anywhere_ends_as_if_it_had_not_been(
    project: Project, tmp_path: Path, after: int
) -> None:
    whole = await finished(tmp_path / "whole")
    async with served() as endpoint:
        await cut_off(project.practise(endpoint.override()), endpoint, after)
        await project.practise(endpoint.override())
        asked = len(endpoint.bodies)
    assert project.results() == whole.results()
    assert asked - whole.query("SELECT count(*) FROM calls")[0][0] <= 8  # what was in flight


async def test_restart_plays_exactly_the_steps_from_there_on(project: Project) -> None:
    async with served() as endpoint:
        first = await project.practise(endpoint.override())
        before = len(endpoint.bodies)
        second = await project.practise(endpoint.override(), restart_step=2)
        assert endpoint.by_stage["play"] == 36 * 2 + 36
        assert len(endpoint.bodies) > before
        assert [row.branch_id == second.branch.id for row in second.steps] == [0, 0, 1, 1]
        assert [r.library_out for r in second.steps[:2]] == [r.library_out for r in first.steps[:2]]
        done = len(endpoint.bodies)
        plain = await project.practise(endpoint.override())
        assert (len(endpoint.bodies), plain.branch.id) == (done, second.branch.id)
        with pytest.raises(ConfigError, match="4 steps recorded"):
            await project.practise(endpoint.override(), restart_step=5)


async def test_a_restart_that_was_cut_off_is_gone_on_with(project: Project) -> None:
    async with served() as endpoint:
        await project.practise(endpoint.override())
        done = len(endpoint.bodies)
        await cut_off(project.practise(endpoint.override(), restart_step=1), endpoint, done + 30)
        cut = len(endpoint.bodies)
        report = await project.practise(endpoint.override(), restart_step=1)
        assert report.branch.id == 2
        assert any("under way" in e.text for e in project.events if isinstance(e, Notice))
        ended = len(endpoint.bodies)
        same = await project.practise(endpoint.override(), restart_step=1)
        assert (same.branch.id, len(endpoint.bodies)) == (2, ended)
        said = [e.text for e in project.events if isinstance(e, Notice)]
        assert "not played again (--again" in said[-1]
        other = await project.practise(endpoint.override(), restart_step=1, again=True)
        assert other.branch.id == 3
        assert len(endpoint.bodies) - cut > 30


async def test_a_changed_configuration_is_refused_once_a_step_is_closed(project: Project) -> None:
    await project.practise()
    with pytest.raises(FingerprintError) as e:
        await project.practise("practice.grpo_n=4", "practice.rollout_concurrency=2")
    assert [c.key for c in e.value.diff] == ["practice.grpo_n"]
    report = await project.practise("practice.grpo_n=4", restart_step=2)
    assert [row.plan.slots[0][1] for row in report.steps] == [3, 3, 4, 4]


async def test_a_mended_teacher_does_not_pay_for_the_rollouts_again(project: Project) -> None:
    def no_teacher(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if body["messages"][0]["content"].startswith(("You review", "You compare")):
            return 401, {"error": {"message": "bad key"}}
        return None

    async with served(no_teacher) as endpoint:
        with pytest.raises(EndpointRefusedError):
            await project.practise(endpoint.override(), "practice.rollout_concurrency=1")
        played = endpoint.by_stage["play"]
    async with served() as endpoint:
        settings = "practice.teacher_model={model_provider: {model: sim}}"
        await project.practise(endpoint.override(), settings)
        assert endpoint.by_stage["play"] == 36 * 2 - played


async def test_more_epochs_go_on_from_what_is_there(project: Project) -> None:
    first = await project.practise()
    more = await project.practise("practice.epochs=3")
    assert [row.branch_id for row in more.steps] == [first.branch.id] * 6
    assert more.requests.new < first.requests.new


def no_merge(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
    if "## The proposals" in body["messages"][-1]["content"]:
        return 400, {"error": {"message": "no"}}
    return None


async def test_a_failed_merge_changes_nothing_and_is_not_a_success(project: Project) -> None:
    async with served(no_merge) as endpoint:
        report = await project.practise(endpoint.override())
    assert {row.status for row in report.steps} >= {"merge_failed"}
    assert (len(report.library), report.document()["exit"]) == (0, 1)
    first = report.merge_failed[0]
    assert report.next_command == f"grpo-practice practice --restart-step {first}"


async def test_the_next_command_repeats_the_restart_whose_merge_failed(project: Project) -> None:
    await project.practise()
    async with served(no_merge) as endpoint:
        report = await project.practise(endpoint.override(), restart_step=3)
        assert report.merge_failed == [3]
        assert report.next_command == "grpo-practice practice --restart-step 3 --again"
    async with served() as endpoint:
        report = await project.practise(endpoint.override(), restart_step=3, again=True)
        assert (report.merge_failed, endpoint.by_stage["play"]) == ([], 18)


async def test_too_many_failures_stop_the_run_and_the_next_one_plays_only_those(
    project: Project,
) -> None:
    def some(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (400, {"error": {"message": "odd"}}) if n % 3 == 0 else None

    async with served(some) as endpoint:
        with pytest.raises(RunFailedError, match="odd"):
            await project.practise(endpoint.override(), "practice.rollout_concurrency=1")
        answered = sum(1 for n in range(1, len(endpoint.bodies) + 1) if n % 3)
    assert project.query("SELECT count(*) FROM calls") == [(answered,)]
    rewards = project.query(
        "SELECT count(*) FROM rollouts JOIN verdicts USING (rollout_id) WHERE outcome = 'error'"
    )
    assert rewards == [(0,)]
    async with served() as endpoint:
        report = await project.practise(endpoint.override())
        assert endpoint.by_stage["play"] == 36 * 2 - answered
    assert not report.merge_failed


async def test_failed_rollouts_shrink_their_group_and_nothing_else(project: Project) -> None:
    def one(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (400, {"error": {"message": "odd"}}) if n == 2 else None

    async with served(one) as endpoint:
        report = await project.practise(endpoint.override())
    rollouts = report.document()["steps"][0]["rollouts"]
    assert rollouts["outcomes"] == {"error.provider": 1, "ok": 17}
    assert (rollouts["planned"], rollouts["scored"]) == (18, 17)
    scored = project.query("SELECT sum(planned), sum(scored) FROM groups WHERE step = 0")
    assert scored == [(18, 17)]


async def test_evaluations_on_the_way_are_runs_of_their_own_and_paid_once(
    project: Project,
) -> None:
    settings = ["practice.do_eval=true", "practice.eval_strategy=steps", "practice.eval_steps=2"]
    report = await project.practise(*settings)
    names = project.query("SELECT run_id, role, parent_run_id, parent_step FROM runs ORDER BY 1")
    assert ("toy", "", None, None) in names
    evals = [n for n in names if n[1] == "in_run"]
    assert evals.pop(0) == ("toy/eval", "in_run", "toy", None)  # before it has learnt
    assert [n[0].startswith("toy/eval/L") for n in evals] == [True] * len(evals)
    assert {n[2] for n in evals} == {"toy"}
    assert set(report.evals) >= {1, 3}
    assert report.after is not None
    calls = project.query("SELECT count(*) FROM calls")
    await project.practise(*settings)
    assert project.query("SELECT count(*) FROM calls") == calls


async def test_an_evaluation_that_was_missed_is_made_when_it_is_asked_for(
    project: Project,
) -> None:
    plain = await project.practise()
    assert plain.after is None
    later = await project.practise("practice.do_eval=true")
    assert later.after is not None
    own = project.query("SELECT sum(calls) FROM v_costs WHERE run_id = 'toy'")
    assert own == [(plain.requests.new,)]


async def test_the_teachers_temperature_is_not_the_rollouts(project: Project) -> None:
    async with served() as endpoint:
        await project.practise(endpoint.override(), "practice.rollout_temperature=0.9")
        temperatures = {
            (body["messages"][0]["content"][:10], body["temperature"]) for body in endpoint.bodies
        }
    assert {t for start, t in temperatures if start == "Solve it. "} == {0.9}
    assert {t for start, t in temperatures if start != "Solve it. "} == {0.0}


async def test_a_library_of_another_run_is_a_start(project: Project) -> None:
    first = await project.practise()
    second = await project.practise("exp_id=next", "practice.epochs=1", start=first.library)
    assert second.branch.library.experiences == first.library.experiences
    again = await project.practise("exp_id=next", "practice.epochs=1")  # without naming it again
    assert (again.requests.new, again.branch.id) == (0, second.branch.id)
    other = Library((Experience(1, "Another: start."),), 2)
    with pytest.raises(FingerprintError, match="another configuration") as e:
        await project.practise("exp_id=next", "practice.epochs=1", start=other)
    assert [c.key for c in e.value.diff] == ["library.sha256"]


async def test_rows_added_to_the_dataset_do_not_matter_and_lost_ones_do(project: Project) -> None:
    first = await project.practise("practice.epochs=1")
    with Store(project.db) as store:
        rows = store.read(datasets.samples, store.read(datasets.get, "train").id)
        added = [Sample("1+1?", "2"), *reversed(rows)]
        store.add_dataset("train", added, origin="x", replace=True)
    more = await project.practise("practice.epochs=2")
    ids = [{i for i, _ in row.plan.slots} for row in more.steps]
    assert ids[0] | ids[1] == ids[2] | ids[3]
    assert more.branch.id == first.branch.id
    assert any("has changed" in e.text for e in project.events if isinstance(e, Notice))
    with Store(project.db) as store:
        store.add_dataset("train", rows[1:], origin="x", replace=True)
    with pytest.raises(FingerprintError, match="lost 1 of the samples") as e:
        await project.practise("practice.epochs=2")
    assert "another exp_id" in str(e.value.hint)


async def test_another_dataset_is_not_called_one_that_has_lost_samples(project: Project) -> None:
    await project.practise("practice.epochs=1")
    with pytest.raises(FingerprintError) as e:
        await project.practise("practice.epochs=1", "data.practice_dataset_name=test")
    assert str(e.value) == (
        "toy was started with dataset 'train', and 'test' lacks 12 of its 12 samples"
    )
    assert [(c.was, c.now) for c in e.value.diff] == [("train", "test")]
    assert "another exp_id" in str(e.value.hint)
    assert "upload" not in str(e.value.hint)
    with Store(project.db) as store:
        rows = store.read(datasets.samples, store.read(datasets.get, "train").id)
        store.add_dataset("more", [Sample("1+1?", "2"), *rows], origin="x", replace=False)
    await project.practise("practice.epochs=1", "data.practice_dataset_name=more")
    notes = [e.text for e in project.events if isinstance(e, Notice)]
    assert any("'more' has all samples that toy planned of 'train'" in text for text in notes)


async def test_a_gold_that_cannot_be_scored_is_said_before_anything_is_paid(
    project: Project,
) -> None:
    with Store(project.db) as store:
        rows = [Sample("1+1?", "2"), Sample("what?", None)]
        store.add_dataset("train", rows, origin="x", replace=True)
    async with served() as endpoint:
        with pytest.raises(DataError, match="row 2"):
            await project.practise(endpoint.override())
        assert endpoint.bodies == []
    assert project.query("SELECT count(*) FROM runs") == [(0,)]


async def test_a_restart_with_a_changed_agent_evaluates_its_libraries_anew(
    project: Project,
) -> None:
    await project.practise("practice.do_eval=true")
    changed = ("practice.do_eval=true", "evaluation.agent.agent.instructions=Solve it.")
    report = await project.practise(*changed, restart_step=2)
    assert report.after is not None
    twice = project.query(
        "SELECT run_id FROM branches WHERE run_id LIKE 'toy/eval/L%' GROUP BY 1 HAVING count(*) = 2"
    )
    assert len(twice) == 1  # the library that step 1 made, under the old and the new agent
    again = await project.practise(*changed)
    assert again.requests.new == 0


async def test_the_stored_configuration_follows_what_may_change(project: Project) -> None:
    await project.practise("practice.epochs=1")
    await project.practise("practice.epochs=2", "practice.do_eval=true")
    (text,) = project.query(
        "SELECT body FROM branches JOIN texts ON sha256 = config_sha WHERE run_id = 'toy'"
    )
    assert "do_eval: true" in text[0]
    assert "epochs: 2" in text[0]
