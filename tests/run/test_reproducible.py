"""When the promise of the same result does not hold, the summary and the document say why."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.main import run
from grpo_practice.sim import stage_of
from grpo_practice.store import Store
from tests.contract.endpoint.actions import completion
from tests.contract.project import served
from tests.run.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def changed(project: Project, *statements: str) -> None:
    """The database, as a run that went worse would have left it."""

    def work(db: sqlite3.Connection) -> int:
        return sum(db.execute(sql).rowcount for sql in statements)

    with Store(project.db) as store:
        store._writer.submit(work).result()


def reasons(document: dict[str, Any], about: str = "not reproducible") -> list[str]:
    return [found["sentence"] for found in document["findings"] if found["about"] == about]


async def test_a_run_that_went_well_promises_it(project: Project) -> None:
    document = (await project.practise("practice.epochs=1")).document()
    assert (document["reproducible"], reasons(document)) == (True, [])
    evaluated = (await project.evaluate()).document()
    assert (evaluated["reproducible"], reasons(evaluated)) == (True, [])


async def test_rollouts_that_ended_by_time_void_it(project: Project) -> None:
    await project.evaluate()
    changed(
        project,
        "DELETE FROM verdicts WHERE rollout_id IN (1, 2, 3)",
        """UPDATE rollouts SET outcome = 'limit', reason = 'time', strikes = 3
            WHERE rollout_id IN (1, 2, 3)""",
    )
    report = await project.evaluate()
    assert report.requests.new == 0
    document = report.document()
    assert (document["reproducible"], reasons(document)) == (False, ["3 rollouts timed out"])


async def test_replies_asked_for_without_a_seed_void_it(project: Project) -> None:
    def no_seed(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if "seed" not in body:
            return None
        return 400, {"error": {"message": "Unknown parameter: 'seed'.", "param": "seed"}}

    async with served(no_seed) as endpoint:
        report = await project.evaluate(f"agent.model.model_provider.base_url={endpoint.url}")
    assert project.query("SELECT count(*), sum(seeded) FROM calls") == [(12, 0)]
    (reason,) = reasons(report.document())
    assert reason.startswith("12 replies requested without a seed")


async def test_errors_in_closed_steps_and_unanswered_comparisons_void_it(
    project: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    def unlucky(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        failing = n == 2 or stage_of(body) in ("compare", "merge")
        return (400, {"error": {"message": "odd"}}) if failing else None

    async with served(unlucky) as endpoint:
        report = await project.practise(endpoint.override(), "practice.epochs=1")
        groups = endpoint.by_stage["compare"]
    assert reasons(report.document()) == [
        "1 rollout got no reward because of an error",
        f"{groups} comparisons failed because a request got no answer",
    ]
    run(["runs", "show", "toy", "--db", str(project.db)])
    said = "not reproducible: 1 rollout got no reward because of an error"
    assert said in capsys.readouterr().out


async def test_a_merge_without_an_answer_voids_it(project: Project) -> None:
    def unlucky(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (400, {"error": {"message": "odd"}}) if stage_of(body) == "merge" else None

    async with served(unlucky) as endpoint:
        report = await project.practise(endpoint.override(), "practice.epochs=1")
    assert report.health.untaught == len(report.merge_failed) > 0


async def test_a_failure_that_was_made_good_is_no_reason(project: Project) -> None:
    def odd(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (400, {"error": {"message": "odd"}}) if n == 2 else None

    async with served(odd) as endpoint:
        url = f"agent.model.model_provider.base_url={endpoint.url}"
        first = await project.evaluate(url)
    assert first.document()["reproducible"] is False
    second = (await project.evaluate()).document()
    assert second["reproducible"] is True
    assert second["health"]["unanswered"] == {"HTTP 400": 1}


async def test_who_answered_is_noted_when_it_is_not_who_was_asked(project: Project) -> None:
    def aliased(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return 200, completion("\\boxed{1}", model="sim-2025" if n <= 8 else "sim-2026")

    async with served(aliased) as endpoint:
        url = f"agent.model.model_provider.base_url={endpoint.url}"
        report = await project.evaluate(url, "concurrency=1")
    document = report.document()
    assert document["reproducible"] is True
    (note,) = reasons(document, "model")
    at = endpoint.url.removeprefix("http://").removesuffix("/v1")
    assert note == f"sim was answered by sim-2025@{at} (8), sim-2026@{at} (4)"
