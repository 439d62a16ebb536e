"""The share of groups that teach follows from what each step decided, by one rule."""

import sqlite3
import zlib
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.run.forecast.shares import ASSUMED_SHARE
from grpo_practice.sim import stage_of
from grpo_practice.sim.questions import questions, solve
from grpo_practice.store import Store
from tests.contract.endpoint.actions import completion
from tests.contract.project import Hook, served
from tests.run.forecast.test_estimate import ahead, pilot
from tests.run.project import Project

MORE = "practice.epochs=2"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def all_right_but_a_refusal(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
    """Answer every question right, and refuse the first time."""
    if stage_of(body) != "play":
        return None
    gold = solve(body["messages"][-1]["content"])
    message: dict[str, Any] = {"role": "assistant", "content": rf"\boxed{{{gold}}}"}
    if n == 1:
        message |= {"content": None, "refusal": "I will not."}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return 200, {"model": "sim", "choices": [choice], "usage": {}}


async def test_one_refusal_in_an_all_right_group_makes_it_neither_for_the_run_nor_the_forecast(
    project: Project,
) -> None:
    async with served(all_right_but_a_refusal) as endpoint:
        await project.practise("practice.epochs=1", endpoint.override())
    assert project.query("SELECT count(*) FROM rollouts WHERE outcome = 'refused'") == [(1,)]
    assert project.query("SELECT status, count(*) FROM groups GROUP BY 1") == [("uniform", 12)]
    forecast = ahead(project, MORE)
    assert forecast.groups == 12
    assert forecast.share is not None
    assert forecast.share.low == 0


async def test_groups_of_a_step_that_is_not_closed_are_decided_by_the_same_rule(
    project: Project,
) -> None:
    async with served(all_right_but_a_refusal) as endpoint:
        forecast = await pilot(project, 3, endpoint.override())
    assert project.query("SELECT count(*) FROM groups") == [(0,)]
    assert forecast.groups == 3
    assert forecast.share is not None
    assert forecast.share.low == 0


async def test_the_forecast_reads_what_was_decided_and_decides_nothing_itself(
    project: Project,
) -> None:
    await project.practise("practice.epochs=1")
    before = ahead(project, MORE)

    def undecide(db: sqlite3.Connection) -> None:
        db.execute("UPDATE groups SET status = 'too_few', informative = 0 WHERE slot < 2")

    with Store(project.db) as store:
        store._writer.submit(undecide).result()
    assert before.groups == 12
    assert ahead(project, MORE).groups == 8


async def test_a_run_without_the_truth_learns_its_share_too(project: Project) -> None:
    blind = "practice.given_ground_truth=false"
    assert ahead(project, blind).share == ASSUMED_SHARE
    await project.practise("practice.epochs=1", blind)
    forecast = ahead(project, MORE, blind)
    assert (forecast.groups, forecast.share == ASSUMED_SHARE) == (12, False)


def answering(right: float) -> Hook:
    """Answer a share of the questions right in every attempt."""

    def hook(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if stage_of(body) != "play":
            return None
        question = body["messages"][-1]["content"]
        is_right = zlib.crc32(question.encode()) % 100 < 100 * right
        return 200, completion(rf"\boxed{{{solve(question) if is_right else 'none'}}}")

    return hook


@pytest.mark.long
@pytest.mark.parametrize(("right", "cut"), [(0.0, True), (1.0, True), (0.5, False)])
async def test_a_score_before_practice_bounds_the_share(
    project: Project, right: float, cut: bool
) -> None:
    with Store(project.db) as store:
        store.add_dataset("forty", questions(40, 7), origin="sim", replace=False)
    async with served(answering(right)) as endpoint:
        sets = [endpoint.override(), "evaluation.data.dataset=forty"]
        report = await project.evaluate(*(word.removeprefix("evaluation.") for word in sets))
        forecast = ahead(project, *sets)
    assert report.run == "toy/eval"
    assert forecast.groups == 0
    if not cut:
        assert forecast.share == ASSUMED_SHARE
        return
    assert report.score.ci95 is not None
    low, high = report.score.ci95
    farthest = high if right == 0 else low
    at_most = 1 - farthest**3 - (1 - farthest) ** 3  # groups of three
    assert forecast.share == pytest.approx((0, at_most))
    assert at_most < 0.3
    # Graded rewards may differ in each group, however low or high their mean is.
    with Store(project.db) as store:
        store._write(lambda db: db.execute("UPDATE verdicts SET reward = 0.02").rowcount)
        store._write(lambda db: db.execute("UPDATE steps SET sums = NULL").rowcount)
    assert ahead(project, *sets).share == ASSUMED_SHARE


async def test_without_the_truth_a_score_says_nothing_of_what_teaches(project: Project) -> None:
    async with served(answering(0.0)) as endpoint:
        await project.evaluate(endpoint.override().removeprefix("evaluation."))
        blind = ("practice.given_ground_truth=false", endpoint.override())
        assert ahead(project, *blind).share == ASSUMED_SHARE
