"""Sums stand for rows: with and without them, every figure is the same."""

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.llm import client
from grpo_practice.llm.client import Client
from grpo_practice.store import Store, branches, step_totals
from grpo_practice.store.queries import run_health, runs, scores
from tests.contract.project import served
from tests.fakes import FakeSleep
from tests.run.project import Project


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project whose requests are tried again without a wait."""
    monkeypatch.setattr(client, "Client", partial(Client, sleep=FakeSleep()))
    return Project(tmp_path / "p")


FIGURES: list[Callable[..., Any]] = [
    scores.questions,
    scores.outcomes,
    scores.failures,
    scores.seconds_per_rollout,
    scores.settled_counts,
    scores.missing,
    run_health.health_of,
]


def figures(store: Store, run: str) -> list[Any]:
    branch = store.read(branches.load, store.read(runs.get, run).head_branch)
    return [store.read(question, branch) for question in FIGURES]


def write(store: Store, *statements: str) -> None:
    def work(db: sqlite3.Connection) -> None:
        for sql in statements:
            db.execute(sql)

    store._writer.submit(work).result()


def summed(project: Project, run: str) -> list[int]:
    sql = "SELECT step FROM v_steps WHERE run_id = ? AND sums IS NOT NULL ORDER BY 1"
    return [step for (step,) in project.query(sql, run)]


async def test_every_figure_is_the_same_with_and_without_sums(project: Project) -> None:
    def odd(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        def said(content: str | None, finish: str) -> tuple[int, dict[str, Any]]:
            message = {"role": "assistant", "content": content}
            return 200, {"choices": [{"message": message, "finish_reason": finish}]}

        told = {3: said("", "length"), 7: said("cut", "length"), 11: said("I", "content_filter")}
        return (400, {"error": {"message": "odd"}}) if n == 5 else told.get(n)

    async with served(odd) as endpoint:
        url = endpoint.override()[len("evaluation.") :]
        await project.evaluate(url, "batch_size=2", "pass_k=2", "concurrency=1")
    await project.practise()
    assert summed(project, "toy/eval") == [0, 2, 3, 4, 5]  # not of the step with the failure
    assert summed(project, "toy") == [0, 1, 2, 3]
    with Store(project.db) as store:
        with_sums = [figures(store, run) for run in ("toy/eval", "toy")]
        write(store, "UPDATE steps SET sums = NULL")
        assert [figures(store, run) for run in ("toy/eval", "toy")] == with_sums
    assert with_sums[0][1] == {
        "content_filter": 1,
        "error.provider": 1,
        "ok": 20,
        "truncated": 2,
    }


async def test_a_step_that_grows_is_read_row_by_row_until_it_is_closed_again(
    project: Project,
) -> None:
    await project.evaluate("batch_size=4")
    with Store(project.db) as store:
        write(store, "UPDATE steps SET sums = 'no JSON'")
    report = await project.evaluate("batch_size=4", "pass_k=2")
    assert report.score.scored == 24
    assert summed(project, "toy/eval") == [0, 1, 2]


async def test_a_step_whose_failures_were_tried_again_gets_its_sums(project: Project) -> None:
    def one(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (400, {"error": {"message": "odd"}}) if n == 2 else None

    async with served(one) as endpoint:
        await project.evaluate(endpoint.override()[len("evaluation.") :], "batch_size=12")
    assert summed(project, "toy/eval") == []
    async with served() as endpoint:
        await project.evaluate(endpoint.override()[len("evaluation.") :], "batch_size=12")
    assert summed(project, "toy/eval") == [0]


async def test_verdicts_on_rollouts_of_another_run_are_read_row_by_row(project: Project) -> None:
    await project.evaluate("batch_size=12")
    with Store(project.db) as store:
        write(store, "UPDATE steps SET played_by = branch_id")
        store._writer.submit(lambda db: step_totals.write_totals(db, 1, 0)).result()
    assert summed(project, "toy/eval") == []


OF_CALLS = """
SELECT branch_id, step, invocation_id, stage, name, coalesce(answered_by, ''), seeded,
       tokens_in + tokens_out IS NOT NULL, cost_micro IS NOT NULL, count(*), sum(tries),
       sum(tries > 1), sum(tokens_in), sum(tokens_cached), sum(tokens_out), sum(tokens_reasoning),
       sum(cost_micro), max(tokens_in + tokens_out), max(tokens_out), max(cost_micro)
  FROM calls GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9 ORDER BY 1, 2, 3, 4, 5, 6, 7, 8, 9"""


async def test_calls_add_up_to_their_sums_whatever_becomes_of_them(project: Project) -> None:
    usages: list[dict[str, Any]] = [
        {},
        {"prompt_tokens": 5},
        {"completion_tokens": 9},
        {"prompt_tokens": 7, "completion_tokens": 3},
        {"prompt_tokens": 2, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 1}},
    ]

    def counted(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if n % 7 == 6:
            return 503, {"error": {"message": "busy"}}
        message = {"role": "assistant", "content": "1"}
        said = {"choices": [{"message": message, "finish_reason": "stop"}]}
        return 200, said | {"usage": usages[n % len(usages)]}

    def same() -> int:
        expected = project.query(OF_CALLS)
        assert project.query("SELECT * FROM call_sums") == expected
        return len(expected)

    async with served(counted) as endpoint:
        await project.evaluate(endpoint.override()[len("evaluation.") :], "pass_k=3")
    await project.practise()
    assert same() > 10
    with Store(project.db) as store:
        spent = store.read(runs.costs, "toy/eval")
        assert sum(cost.calls for cost in spent) == 36
        write(store, "UPDATE calls SET cost_micro = call_id WHERE step = 0 AND call_id % 3 = 0")
    assert same() > 10
    with Store(project.db) as store:
        store.delete_runs(["toy/eval"])
    assert same() > 5
    with Store(project.db) as store:
        store.delete_runs(["toy"])
    assert same() == 0


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE rollouts SET outcome = 'truncated' WHERE rollout_id = 5",
        "UPDATE verdicts SET reward = 0.25 WHERE rollout_id = 5",
        "DELETE FROM verdicts WHERE rollout_id = 5",
    ],
)
async def test_a_row_that_is_changed_by_hand_counts_as_it_is(project: Project, change: str) -> None:
    await project.evaluate("batch_size=2")
    with Store(project.db) as store:
        (step,) = store.read(
            lambda db: db.execute("SELECT step FROM rollouts WHERE rollout_id = 5").fetchone()
        )
        write(store, change)
    assert summed(project, "toy/eval") == [n for n in range(6) if n != step]


async def test_what_no_endpoint_told_is_not_0_for_a_tool_that_was_called(project: Project) -> None:
    await project.evaluate("pass_k=1")
    with Store(project.db) as store:
        zeros = ", ".join(f"tokens_{kind} = 0" for kind in ("in", "cached", "out", "reasoning"))
        write(
            store,
            f"UPDATE calls SET stage = 'tool', name = 't', tries = 0, {zeros} WHERE call_id = 1",
            "UPDATE calls SET tokens_in = NULL, tokens_out = NULL WHERE call_id = 2",
        )
        usage = store.read(scores.usage, "toy/eval")
        found = {cost.stage: cost for cost in store.read(runs.costs, "toy/eval")}
    assert (usage.tokens_cached, usage.tokens_in) == (None, found["play"].tokens_in)
    assert found["tool"].tokens_cached is None
    assert {stage: cost.uncounted for stage, cost in found.items()} == {"play": 1, "tool": 0}
