"""A planned evaluation grows in questions and in attempts, each on its own, and never shrinks."""

from pathlib import Path

import pytest

from grpo_practice.build.evaluation import grown
from grpo_practice.types import PlannedStep
from tests.build.project import Project


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
