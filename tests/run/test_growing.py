"""A planned evaluation grows in questions and in attempts, each on its own, and never shrinks."""

from pathlib import Path

import pytest

from grpo_practice.core.errors import RunFailedError
from grpo_practice.core.types import PlannedStep
from grpo_practice.rollout.evaluate import grown
from grpo_practice.store import Store
from grpo_practice.store.queries import runs
from tests.contract.project import served
from tests.run.project import Project


def step(number: int, ids: str, attempts: int) -> PlannedStep:
    return PlannedStep(number, 0, number, tuple((int(i), attempts) for i in ids))


def slots(steps: list[PlannedStep]) -> list[tuple[tuple[int, int], ...]]:
    return [s.slots for s in steps]


def test_more_attempts_of_fewer_questions_keep_the_other_questions() -> None:
    (made,) = grown([step(0, "123", 4)], [step(0, "12", 5)])
    assert made.slots == ((1, 5), (2, 5), (3, 4))


def test_more_questions_and_steps_are_added() -> None:
    made = grown([step(0, "12", 1)], [step(0, "123", 1), step(1, "4", 1)])
    assert slots(made) == [((1, 1), (2, 1), (3, 1)), ((4, 1),)]


def test_fewer_of_either_change_nothing() -> None:
    stored = [step(0, "123", 4), step(1, "4", 4)]
    assert grown(stored, [step(0, "1", 2)]) == stored


@pytest.mark.long_after(1)
@pytest.mark.parametrize("limit", [2, 5, 9])
async def test_a_narrow_look_with_more_attempts_leaves_the_rest_as_it_was(
    tmp_path: Path, limit: int
) -> None:
    project = Project(tmp_path)
    await project.evaluate("pass_k=2")
    narrow = await project.evaluate("pass_k=3", limit=limit)
    assert narrow.requests.new == limit
    assert narrow.score.planned == 24 + limit
    whole = await project.evaluate("pass_k=3")
    assert whole.requests.new == 12 - limit


async def test_a_narrow_look_at_a_run_that_is_not_complete_asks_no_other_question(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path)
    await project.evaluate("batch_size=3", "pass_k=1")
    with Store(project.db) as store:
        store.delete_runs(["toy/eval"])
    async with served(lambda n, body: (400, {"error": {"message": "no"}})) as endpoint:
        url = endpoint.override().removeprefix("evaluation.")
        with pytest.raises(RunFailedError):
            await project.evaluate("batch_size=3", url)
    narrow = await project.evaluate("batch_size=3", limit=4)
    assert narrow.requests.new == 4
    assert (narrow.score.planned, narrow.score.scored) == (12, 4)
    asked = "SELECT step, slot FROM v_rollouts WHERE reward IS NOT NULL ORDER BY 1, 2"
    assert project.query(asked) == [(0, 0), (0, 1), (0, 2), (1, 0)]
    with Store(project.db) as store:
        run = store.read(runs.get, "toy/eval")
    assert (run.status, run.steps_closed, run.steps) == ("paused", 1, 4)
    assert (await project.evaluate("batch_size=3", limit=4)).requests.new == 0
    whole = await project.evaluate("batch_size=3")
    assert (whole.requests.new, whole.score.scored) == (8, 12)
