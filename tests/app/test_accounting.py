"""Every number of a report: whose it is, what it counts, and null where it is unknown."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.store import Store
from grpo_practice.types import Sample
from tests.app.project import Project
from tests.contract.project import served


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


async def test_a_practice_run_costs_what_its_evaluations_cost_too(project: Project) -> None:
    plain = await project.practise("practice.epochs=1")
    later = await project.practise("practice.epochs=1", "practice.do_eval=true")
    assert (later.requests.new, later.requests.failed) == (12, 0)
    (all_out,) = project.query("SELECT sum(tokens_out) FROM calls")[0]
    assert later.usage.tokens_out == all_out
    assert plain.usage.tokens_out is not None
    assert plain.usage.tokens_out < all_out
    again = await project.practise("practice.epochs=1", "practice.do_eval=true")
    assert (again.requests.new, again.usage) == (0, later.usage)
    calls = project.query("SELECT run_id, sum(calls) FROM v_costs GROUP BY 1 ORDER BY 1")
    assert [n for _, n in calls] == [plain.requests.new, 12]


async def test_failed_requests_of_the_evaluations_on_the_way_are_counted(project: Project) -> None:
    await project.practise("practice.epochs=1")

    def one(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (400, {"error": {"message": "odd"}}) if n == 2 else None

    async with served(one) as endpoint:
        report = await project.practise(
            "practice.epochs=1", "practice.do_eval=true", endpoint.override()
        )
    assert (report.requests.new, report.requests.failed) == (11, 1)


async def test_a_question_that_is_asked_twice_is_one_cluster(project: Project) -> None:
    once = [Sample(f"{i}+{i}?", str(2 * i), source="s") for i in range(12)]
    with Store(project.db) as store:
        store.add_dataset("once", once, origin="x", replace=False)
        store.add_dataset("twice", [*once, *once], origin="x", replace=False)
    single = await project.evaluate("data.dataset=once", "exp_id=once")
    double = await project.evaluate("data.dataset=twice", "exp_id=twice")
    assert (single.score.n_questions, double.score.n_questions) == (12, 24)
    assert single.score.mean == double.score.mean
    assert double.score.ci95 == pytest.approx(single.score.ci95)


async def test_the_steps_of_a_practice_document_are_complete(project: Project) -> None:
    document = (await project.practise()).document()
    hashes = dict(project.query("SELECT 'L' || library_id, lower(hex(sha256)) FROM libraries"))
    for step in document["steps"]:
        assert step["sha256"] == hashes[step["library"]]
        groups = step["groups"]
        counted = [groups[key] for key in ("uniform", "failed", "too_few")]
        assert groups["planned"] == groups["informative"] - groups["failed"] + sum(counted)
        assert step["cost_usd"] == 0  # the simulated endpoint is paid nothing
    assert document["library"]["sha256"] == hashes[document["library"]["id"]]
    assert document["library"]["tokens"] is None


async def test_what_a_step_cost_is_the_sum_of_its_calls_or_unknown(project: Project) -> None:
    first = await project.practise()

    def price(db: sqlite3.Connection) -> int:
        sql = "UPDATE calls SET cost_micro = CASE WHEN step <> 1 THEN 1000 END"
        return db.execute(sql).rowcount

    with Store(project.db) as store:
        store._writer.submit(price).result()
    costs = [step["cost_usd"] for step in (await project.practise()).document()["steps"]]
    calls = dict(project.query("SELECT step, count(*) FROM calls GROUP BY 1"))
    assert costs == [calls[0] / 1000, None, calls[2] / 1000, calls[3] / 1000]
    assert first.document()["steps"][0]["cost_usd"] == 0


async def test_an_evaluation_says_what_was_cut_off_and_how_long_an_answer_took(
    project: Project,
) -> None:
    def cut(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if n == 1:
            return 400, {"error": {"message": "odd"}}
        if n > 4:
            return None
        message = {"role": "assistant", "content": "hm"}
        return 200, {"choices": [{"message": message, "finish_reason": "length"}]}

    async with served(cut) as endpoint:
        report = await project.evaluate(f"agent.model.model_provider.base_url={endpoint.url}")
    rollouts = report.document()["rollouts"]
    assert rollouts["outcomes"] == {"error.provider": 1, "ok": 8, "truncated": 3}
    assert rollouts["truncated_share"] == 3 / 11
    (mean,) = project.query("SELECT avg(model_ms) FROM rollouts WHERE outcome <> 'error'")[0]
    assert rollouts["seconds_per_rollout"] == pytest.approx(mean / 1000)
    assert mean > 0
