"""A whole practice run: learns, is the same at any concurrency, and never pays twice."""

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.project import (
    Project,
    Said,
    changed_keys,
    cut_off,
    finished,
    questions,
    served,
)

ONE = "practice.rollout_concurrency=1"
MANY = "practice.rollout_concurrency=64"
WAYS: dict[str, tuple[tuple[str, ...], tuple[int, ...], tuple[int, ...]]] = {
    "plain": ((), (1, 20, 45, 80), (30, 75)),
    "summarising": (
        ("practice.epochs=3", "practice.seed=1", "practice.summaries=always"),
        (1, 45, 52, 58, 75),
        (55, 62),
    ),
    "overlapping": (("practice.overlap=0.5",), (1, 18, 26, 40, 80), (15, 25, 45)),
}
"""Settings, the requests after which a run is cut off, and the caps at which one pauses."""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
async def test_a_run_ends_the_same_however_it_is_played(
    project: Project, tmp_path: Path, way: str
) -> None:
    settings, cuts, caps = WAYS[way]
    whole = await finished(tmp_path / "whole", *settings)
    results, calls = whole.results(), whole.count("calls")
    for concurrency in (ONE, MANY):
        other = Project(tmp_path / concurrency)
        await other.practise(*settings, concurrency)
        assert other.results() == results, concurrency

    async with served() as endpoint:
        for after in cuts:
            await cut_off(project.practise(*settings, endpoint.override()), endpoint, after)
        await project.practise(*settings, endpoint.override())
        asked = len(endpoint.bodies)
    assert project.results() == results
    assert asked - calls <= 8 * len(cuts)  # what was in flight

    capped = Project(tmp_path / "capped")
    for cap in caps:
        with pytest.raises(Exception, match=f"{cap} requests spent so far"):
            await capped.practise(*settings, max_requests=cap)
    await capped.practise(*settings, max_requests=10**6)
    assert (capped.results(), capped.count("calls")) == (results, calls)

    for step in (3, 1, 0):
        await whole.practise(*settings, restart_step=step)
        assert whole.results() == results, f"restarted at step {step}"
    assert project.wrong == capped.wrong == whole.wrong == []


async def test_practice_learns_and_a_second_run_costs_nothing(project: Project) -> None:
    first = await project.practise()
    assert [row.status for row in first.steps] == ["closed"] * 4
    assert len(first.library) >= 3
    assert first.requests.new > 36 * 2
    again = await project.practise()
    assert (again.requests.new, again.replayed) == (0, 0)
    assert again.library == first.library

    more = await project.practise("practice.epochs=3")
    assert [row.branch_id for row in more.steps] == [first.branch.id] * 6
    assert more.requests.new < first.requests.new

    before = project.results()
    with pytest.raises(Exception, match="a different configuration") as e:
        await project.practise("practice.epochs=3", "practice.grpo_n=4", ONE)
    assert changed_keys(e.value) == ["practice.grpo_n"]
    assert project.results() == before
    report = await project.practise("practice.epochs=3", "practice.grpo_n=4", restart_step=2)
    assert [row.plan.slots[0][1] for row in report.steps] == [3, 3, 4, 4, 4, 4]

    other = Project(project.folder / "other")
    await other.practise("practice.seed=1")
    assert other.results() != (await finished(project.folder / "plain")).results()


async def test_a_run_of_another_method_is_read_and_not_gone_on_with(tmp_path: Path) -> None:
    """Steps of two methods in one run would be one result over two experiments."""
    project = await finished(tmp_path)
    results = project.results()
    ((identity,),) = project.query("SELECT identity FROM branches")
    method = json.loads(identity)["practice.method"]
    project.change("UPDATE branches SET identity = json_set(identity, '$.\"practice.method\"', 99)")
    assert (await project.practise()).requests.new == 0
    with pytest.raises(Exception, match="begun by another version") as refused:
        await project.practise("practice.epochs=5")
    error: Any = refused.value
    (change,) = error.diff
    assert (change.key, change.was) == ("practice.method", 99)
    assert change.now.startswith(f"{method} (")
    assert "--restart-step" in error.hint
    assert project.results() == results
    afresh = await project.practise(restart_step=2)
    assert afresh.requests.new > 0


@pytest.mark.long
async def test_restart_plays_exactly_the_steps_from_there_on(tmp_path: Path) -> None:
    project = Project(tmp_path)
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
        with pytest.raises(Exception, match="4 steps recorded"):
            await project.practise(endpoint.override(), restart_step=5)

        await cut_off(project.practise(endpoint.override(), restart_step=1), endpoint, done + 30)
        cut = len(endpoint.bodies)
        report = await project.practise(endpoint.override(), restart_step=1)
        assert report.branch.id == 3
        assert any("resuming the restart" in text for text in project.notices)
        ended = len(endpoint.bodies)
        same = await project.practise(endpoint.override(), restart_step=1)
        assert (same.branch.id, len(endpoint.bodies)) == (3, ended)
        assert "is already finished (--again" in project.notices[-1]
        other = await project.practise(endpoint.override(), restart_step=1, again=True)
        assert other.branch.id == 4
        assert len(endpoint.bodies) - cut > 30


async def test_a_mended_teacher_does_not_pay_for_the_rollouts_again(project: Project) -> None:
    def no_teacher(n: int, body: dict[str, Any]) -> Said | None:
        if body["messages"][0]["content"].startswith(("You review", "You compare")):
            return 401, {"error": {"message": "bad key"}}
        return None

    async with served(no_teacher) as endpoint:
        with pytest.raises(Exception, match="bad key"):
            await project.practise(endpoint.override(), ONE)
        played = endpoint.by_stage["play"]
    async with served() as endpoint:
        settings = "practice.teacher_model={model_provider: {model: sim}}"
        await project.practise(endpoint.override(), settings)
        assert endpoint.by_stage["play"] == 36 * 2 - played


def no_merge(n: int, body: dict[str, Any]) -> Said | None:
    if "## The proposals" in body["messages"][-1]["content"]:
        return 400, {"error": {"message": "no"}}
    return None


@pytest.mark.long
async def test_a_failed_merge_changes_nothing_and_is_not_a_success(project: Project) -> None:
    async with served(no_merge) as endpoint:
        report = await project.practise(endpoint.override())
    assert {row.status for row in report.steps} >= {"merge_failed"}
    assert (len(report.library), report.document()["exit"]) == (0, 1)
    first = report.merge_failed[0]
    assert report.next_command == f"grpo-practice practice --restart-step {first}"

    other = await finished(project.folder / "other")
    async with served(no_merge) as endpoint:
        report = await other.practise(endpoint.override(), restart_step=3)
        assert report.merge_failed == [3]
        assert report.next_command == "grpo-practice practice --restart-step 3 --again"
    async with served() as endpoint:
        report = await other.practise(endpoint.override(), restart_step=3, again=True)
        assert (report.merge_failed, endpoint.by_stage["play"]) == ([], 18)


async def test_too_many_failures_stop_the_run_and_the_next_one_plays_only_those(
    project: Project,
) -> None:
    def some(n: int, body: dict[str, Any]) -> Said | None:
        return (400, {"error": {"message": "odd"}}) if n % 3 == 0 else None

    async with served(some) as endpoint:
        with pytest.raises(Exception, match="odd"):
            await project.practise(endpoint.override(), ONE)
        answered = sum(1 for n in range(1, len(endpoint.bodies) + 1) if n % 3)
    assert project.count("calls") == answered
    rewards = project.query(
        "SELECT count(*) FROM rollouts JOIN verdicts USING (rollout_id) WHERE outcome = 'error'"
    )
    assert rewards == [(0,)]
    async with served() as endpoint:
        report = await project.practise(endpoint.override())
        assert endpoint.by_stage["play"] == 36 * 2 - answered
    assert not report.merge_failed


async def test_failed_rollouts_shrink_their_group_and_nothing_else(project: Project) -> None:
    def one(n: int, body: dict[str, Any]) -> Said | None:
        return (400, {"error": {"message": "odd"}}) if n == 2 else None

    async with served(one) as endpoint:
        report = await project.practise(endpoint.override())
    rollouts = report.document()["steps"][0]["stats"]
    assert rollouts["outcomes"] == {"error.provider": 1, "ok": 17}
    assert (rollouts["planned"], rollouts["scored"]) == (18, 17)
    scored = project.query("SELECT sum(planned), sum(scored) FROM groups WHERE step = 0")
    assert scored == [(18, 17)]


async def test_a_library_of_another_run_is_a_start(project: Project) -> None:
    first = await project.practise()
    one = ("exp_id=next", "practice.epochs=1")
    second = await project.practise(*one, start="toy")
    assert second.branch.library.experiences == first.library.experiences
    again = await project.practise(*one)  # without naming it again
    assert (again.requests.new, again.branch.id) == (0, second.branch.id)
    (project.folder / "other.yaml").write_text("- 'Another: start.'\n")
    with pytest.raises(Exception, match="a different configuration") as e:
        await project.practise(*one, start=str(project.folder / "other.yaml"))
    assert changed_keys(e.value) == ["library.sha256"]


def upload(project: Project, name: str, rows: list[dict[str, Any]]) -> None:
    Workspace(project.db).datasets.upload(name, rows, if_exists="replace")


ADDED = {"question": "1+1?", "answer": "2"}


async def test_rows_added_to_the_dataset_do_not_matter_and_lost_ones_do(project: Project) -> None:
    rows = questions(12)
    first = await project.practise("practice.epochs=1")
    with pytest.raises(Exception, match=r"started with dataset 'train', and 'test' lacks") as e:
        await project.practise("practice.epochs=1", "data.practice_dataset_name=test")
    error: Any = e.value
    assert str(error) == (
        "toy was started with dataset 'train', and 'test' lacks 12 of the 12 planned samples"
    )
    assert [(c.was, c.now) for c in error.diff] == [("train", "test")]
    assert "another exp_id" in error.hint
    assert "upload" not in error.hint
    upload(project, "more", [ADDED, *rows])
    same = await project.practise("practice.epochs=1", "data.practice_dataset_name=more")
    assert same.requests.new == 0
    assert any(
        "'more' contains all samples that toy planned from 'train'" in t for t in project.notices
    )

    upload(project, "train", [ADDED, *reversed(rows)])
    more = await project.practise("practice.epochs=2")
    ids = [{i for i, _ in row.plan.slots} for row in more.steps]
    assert ids[0] | ids[1] == ids[2] | ids[3]
    assert more.branch.id == first.branch.id
    assert any("has changed" in text for text in project.notices)
    upload(project, "train", rows[1:])
    with pytest.raises(Exception, match="lost 1 of the samples") as e:
        await project.practise("practice.epochs=2")
    error = e.value
    assert "another exp_id" in error.hint
