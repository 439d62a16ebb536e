"""A whole evaluation: exact, resumable, extendable."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.errors import FingerprintError, RunFailedError
from grpo_practice.events import RolloutFinished
from grpo_practice.store import Store
from tests.app.project import Project
from tests.contract.project import served
from tests.fakes import cancelling


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


async def test_an_evaluation_counts_every_rollout_once(project: Project) -> None:
    async with served() as endpoint:
        report = await project.evaluate(endpoint.override()[len("evaluation.") :], "pass_k=3")
        assert len(endpoint.bodies) == 36
    document = report.document()
    assert document["rollouts"]["planned"] == document["rollouts"]["scored"] == 36
    assert document["rollouts"]["outcomes"] == {"ok": 36}
    assert document["score"]["mean"] == pytest.approx(document["rollouts"]["correct"] / 36)
    assert (document["run"], document["simulated"]) == ("toy/eval", True)
    seeds = {b["seed"] for b in endpoint.bodies}
    assert len(seeds) == 36


async def test_a_second_evaluation_asks_nothing_and_says_the_same(project: Project) -> None:
    first = await project.evaluate("pass_k=2")
    second = await project.evaluate("pass_k=2", "concurrency=1")
    assert second.requests.new == 0
    assert second.score == first.score


def test_what_is_stored_is_told_though_everything_is_cancelled_then(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "save_rollout", cancelling(Store.save_rollout))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(project.evaluate())
    told = [(e.step, e.slot, e.attempt) for e in project.events if isinstance(e, RolloutFinished)]
    assert sorted(told) == project.query(
        "SELECT step, slot, attempt FROM rollouts ORDER BY 1, 2, 3"
    )
    assert told


async def test_only_what_is_missing_is_asked(project: Project) -> None:
    await project.evaluate("pass_k=1", limit=3)
    all_once = await project.evaluate("pass_k=1")
    assert all_once.requests.new == 12 - 3
    thrice = await project.evaluate("pass_k=3")
    assert thrice.requests.new == 24
    assert thrice.score.planned == 36
    with pytest.raises(FingerprintError, match="3 rollouts per question"):
        await project.evaluate("pass_k=2")


async def test_extending_gives_what_asking_at_once_would_have(
    project: Project, tmp_path: Path
) -> None:
    await project.evaluate("pass_k=1", limit=5)
    await project.evaluate("pass_k=3")
    whole = Project(tmp_path / "whole")
    await whole.evaluate("pass_k=3")
    assert project.results("toy/eval") == whole.results("toy/eval")


async def test_failed_rollouts_are_missing_not_wrong_and_are_tried_again(
    project: Project,
) -> None:
    def one(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (400, {"error": {"message": "odd"}}) if n in (2, 5) else None

    async with served(one) as endpoint:
        report = await project.evaluate(endpoint.override()[len("evaluation.") :])
    assert (report.score.planned, report.score.scored) == (12, 10)
    assert report.score.mean == report.score.correct / 10
    assert report.outcomes == {"error.provider": 2, "ok": 10}
    assert any("odd" in error for error in report.failures)
    async with served() as endpoint:
        again = await project.evaluate(endpoint.override()[len("evaluation.") :])
        assert len(endpoint.bodies) == 2
    assert again.score.scored == 12


async def test_an_outage_stops_the_evaluation(project: Project) -> None:
    def down(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        return 400, {"error": {"message": "nothing works"}}

    async with served(down) as endpoint:
        with pytest.raises(RunFailedError, match="nothing works"):
            await project.evaluate(endpoint.override()[len("evaluation.") :], "concurrency=1")
        assert len(endpoint.bodies) == 3  # 0.2 of 12 allows two


async def test_restart_asks_the_later_steps_afresh(project: Project) -> None:
    settings = ("batch_size=3",)
    first = await project.evaluate(*settings)
    second = await project.evaluate(*settings, restart_step=2)
    assert second.requests.new == 6
    assert second.branch.id != first.branch.id
    assert second.score.planned == 12
    third = await project.evaluate(*settings)
    assert (third.requests.new, third.branch.id) == (0, second.branch.id)


async def test_failed_rollouts_before_a_restart_are_tried_again_too(project: Project) -> None:
    def one(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (400, {"error": {"message": "odd"}}) if n == 2 else None

    async with served(one) as endpoint:
        url = f"agent.model.model_provider.base_url={endpoint.url}"
        await project.evaluate(url, "batch_size=3", "concurrency=1")
    async with served() as endpoint:
        url = f"agent.model.model_provider.base_url={endpoint.url}"
        report = await project.evaluate(url, "batch_size=3", restart_step=2)
        assert len(endpoint.bodies) == 1 + 6
    assert (report.score.scored, report.outcomes) == (12, {"ok": 12})
    kept = project.query("SELECT branch_id, count(*) FROM rollouts WHERE step < 2 GROUP BY 1")
    assert kept == [(1, 6)]
    assert (await project.evaluate("batch_size=3")).requests.new == 0


async def test_flags_make_runs_of_their_own(project: Project) -> None:
    await project.evaluate()
    other = await project.evaluate(model="sim:other", verify="exact")
    assert other.run == "toy/eval/model=sim:other/verify=exact"
    assert other.requests.new == 12


async def test_a_changed_agent_under_the_same_name_is_refused(project: Project) -> None:
    await project.evaluate()
    with pytest.raises(FingerprintError) as e:
        await project.evaluate("agent.agent.instructions=Guess.", "concurrency=3")
    assert [c.key for c in e.value.diff] == ["agent.agent.instructions"]
