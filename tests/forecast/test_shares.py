"""The share of groups that teach follows from what each step decided, by one rule."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.forecast.shares import ASSUMED_SHARE
from grpo_practice.sim import stage_of
from grpo_practice.sim.questions import solve
from grpo_practice.store import Store
from tests.app.project import Project, served
from tests.forecast.test_estimate import ahead, pilot

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
