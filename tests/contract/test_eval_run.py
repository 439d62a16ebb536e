"""A whole evaluation: exact, resumable, extendable; each number of its report, and a practice's."""

from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.command import Gp
from tests.contract.project import Project, Said, changed_keys, served


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


async def test_an_evaluation_counts_every_rollout_once(project: Project, gp: Gp) -> None:
    async with served() as endpoint:
        report = await project.evaluate(endpoint.override()[len("evaluation.") :], "pass_k=3")
        assert len(endpoint.bodies) == 36
    document = report.document()
    assert document["score"]["planned"] == document["score"]["scored"] == 36
    assert document["outcomes"] == {"ok": 36}
    assert document["score"]["mean"] == pytest.approx(document["score"]["correct"] / 36)
    assert (document["run"], document["simulated"]) == ("toy/eval", True)
    seeds = {b["seed"] for b in endpoint.bodies}
    assert len(seeds) == 36
    text = gp("rollouts", "show", "toy/eval", "--limit", "2", "--db", str(project.db)).out
    assert [text.count(f"attempt {i} of 3") for i in (1, 2, 3)] == [2, 2, 2]
    assert text.count("]  reward ") == 6


async def test_a_second_evaluation_asks_nothing_and_says_the_same(project: Project) -> None:
    first = await project.evaluate("pass_k=2")
    second = await project.evaluate("pass_k=2", "concurrency=1")
    assert second.requests.new == 0
    assert second.score == first.score


async def test_only_what_is_missing_is_asked(project: Project) -> None:
    await project.evaluate("pass_k=1", limit=3)
    all_once = await project.evaluate("pass_k=1")
    assert all_once.requests.new == 12 - 3
    thrice = await project.evaluate("pass_k=3")
    assert thrice.requests.new == 24
    assert thrice.score.planned == 36
    with pytest.raises(Exception, match="3 rollouts per question"):
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
    def one(n: int, body: dict[str, Any]) -> Said | None:
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
    def down(n: int, body: dict[str, Any]) -> Said:
        return 400, {"error": {"message": "nothing works"}}

    async with served(down) as endpoint:
        with pytest.raises(Exception, match="nothing works"):
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
    def one(n: int, body: dict[str, Any]) -> Said | None:
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
    with pytest.raises(Exception, match="a different configuration") as e:
        await project.evaluate("agent.agent.instructions=Guess.", "concurrency=3")
    assert changed_keys(e.value) == ["agent.agent.instructions"]


async def test_the_steps_of_a_practice_document_are_complete(project: Project) -> None:
    document = (await project.practise()).document()
    hashes = dict(project.query("SELECT 'L' || library_id, lower(hex(sha256)) FROM libraries"))
    for step in document["steps"]:
        number, stats = str(step["step"]), step["stats"]
        assert document["library_shas"][number] == hashes[step["library"]]
        assert step["groups"] == sum(stats["groups"].values())
        assert stats["informative"] == stats["groups"].get("distilled", 0)
        assert document["step_cost_usd"][number] == 0  # the simulated endpoint is paid nothing
    assert document["library"] == document["steps"][-1]["library"]


async def test_an_evaluation_says_what_was_cut_off_and_how_long_an_answer_took(
    project: Project,
) -> None:
    def cut(n: int, body: dict[str, Any]) -> Said | None:
        if n == 1:
            return 400, {"error": {"message": "odd"}}
        if n > 4:
            return None
        message = {"role": "assistant", "content": "hm"}
        return 200, {"choices": [{"message": message, "finish_reason": "length"}]}

    async with served(cut) as endpoint:
        at = f"agent.model.model_provider.base_url={endpoint.url}"
        report = await project.evaluate(at, "verify=contains")
    rollouts = report.document()
    assert rollouts["outcomes"] == {"error.provider": 1, "ok": 8, "truncated": 3}
    assert rollouts["truncated_share"] == 3 / 11
    (mean,) = project.query("SELECT avg(model_ms) FROM rollouts WHERE outcome <> 'error'")[0]
    assert rollouts["seconds_per_rollout"] == pytest.approx(mean / 1000)
    assert mean > 0


async def test_a_question_that_is_asked_twice_is_one_cluster(project: Project) -> None:
    rows = [{"question": f"{i}+{i}?", "answer": str(2 * i), "source": "s"} for i in range(12)]
    for name, these in (("once", rows), ("twice", [*rows, *rows])):
        Workspace(project.db).datasets.upload(name, these)
    single = await project.evaluate("data.dataset=once", "exp_id=once")
    double = await project.evaluate("data.dataset=twice", "exp_id=twice")
    assert (single.score.questions, double.score.questions) == (12, 24)
    assert single.score.mean == double.score.mean
    assert double.score.ci95 == pytest.approx(single.score.ci95)


async def test_what_a_step_cost_is_the_sum_of_its_calls_or_unknown(project: Project) -> None:
    first = await project.practise()
    project.change("UPDATE calls SET cost_micro = CASE WHEN step <> 1 THEN 1000 END")
    costs = [*(await project.practise()).document()["step_cost_usd"].values()]
    calls = dict(project.query("SELECT step, count(*) FROM calls GROUP BY 1"))
    assert costs == [calls[0] / 1000, None, calls[2] / 1000, calls[3] / 1000]
    assert first.document()["step_cost_usd"]["0"] == 0


def test_a_limit_below_the_questions_played_is_said_to_change_nothing(demo: Gp) -> None:
    said = "note: --limit 5 changes nothing: all 40 questions of demo/eval are already played"
    assert said in demo("eval", "--run", "demo/eval", "--limit", "5").err
    assert "--limit" not in demo("eval", "--run", "demo/eval", "--limit", "40").err
