"""Scoring again: every answer there is, by another function, beside what was scored before."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.app.evaluation_run import run_eval
from grpo_practice.errors import ConfigError, RunFailedError
from grpo_practice.events import Notice, RolloutFinished
from grpo_practice.reports.run_reports import EvalReport
from grpo_practice.sim import stage_of
from grpo_practice.store import Store, datasets
from grpo_practice.store.queries import runs
from grpo_practice.store.records import Unscored
from grpo_practice.types import Verdict
from tests.app.project import Project
from tests.contract.endpoint.actions import completion
from tests.contract.project import served
from tests.fakes import cancelling

FLAKY = """
import pathlib

def flaky(sample, **kwargs):
    if sample.raw_question in pathlib.Path(__file__).with_name("odd").read_text("utf-8"):
        raise ValueError("odd")
    return {"reward": 0.5}
"""
"""Raises for the questions in the file `odd` beside it."""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    (project.folder / "flaky.py").write_text(FLAKY)
    break_for(project, 0)
    return project


def break_for(project: Project, n: int) -> None:
    """The flaky function fails for the first n questions from now on."""
    with Store(project.db) as store:
        asked = [
            s.question for s in store.read(datasets.samples, store.read(datasets.get, "test").id)
        ]
    (project.folder / "odd").write_text("\n".join(asked[:n]), "utf-8")


async def rejudge(
    project: Project,
    verify: str,
    *overrides: str,
    run: str | None = "toy/eval",
    restart_step: int | None = None,
) -> EvalReport:
    with Store(project.db) as store:
        asked: dict[str, Any] = {"verify": verify, "run": run, "restart_step": restart_step}
        job = project.eval_job(store, *overrides, config=None, rejudge=True, **asked)
        return await run_eval(job)


def at(url: str) -> str:
    return f"agent.model.model_provider.base_url={url}"


def judge_refuses(*judgements: int) -> Any:
    """A hook under which the n-th judgements get no answer, from 1."""
    seen = 0

    def hook(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        nonlocal seen
        seen += stage_of(body) == "judge"
        return (400, {"error": {"message": "no"}}) if seen in judgements else None

    return hook


def test_what_is_stored_is_told_though_everything_is_cancelled_then(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(project.evaluate())
    project.events.clear()
    count = "SELECT count(*) FROM verdicts"
    ((before,),) = project.query(count)
    monkeypatch.setattr(Store, "save_verdict", cancelling(Store.save_verdict))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(rejudge(project, "flaky.py:flaky"))
    ((after,),) = project.query(count)
    told = [e for e in project.events if isinstance(e, RolloutFinished)]
    assert len(told) == after - before > 0


async def test_another_verify_function_scores_the_same_rollouts_for_nothing(
    project: Project,
) -> None:
    half = "def half(sample, **kwargs):\n    return {'reward': 0.5, 'reasoning': sample.source}\n"
    (project.folder / "half.py").write_text(half)
    plain = await project.evaluate("pass_k=2")
    report = await rejudge(project, "half.py:half", run=None)
    assert (report.run, report.requests.new) == ("toy/eval/rejudge=half.py:half", 0)
    assert (report.score.planned, report.score.scored, report.score.mean) == (24, 24, 0.5)
    kept = await project.evaluate("pass_k=2")
    assert kept.score == plain.score


async def test_scoring_again_opens_no_tools(project: Project) -> None:
    await project.evaluate()
    (project.folder / "gone.py").write_text("import pathlib; pathlib.Path('opened').touch()")
    kit = {"mode": "mcp", "config": {"command": sys.executable, "args": ["gone.py"]}}
    report = await rejudge(project, "exact", f"agent.toolkits={json.dumps({'kit': kit})}")
    assert report.score.scored == 12
    assert not (project.folder / "opened").exists()


async def test_a_judge_is_asked_once_per_rollout_also_by_other_runs(project: Project) -> None:
    await project.evaluate()
    first = await rejudge(project, "judge")
    assert first.requests.new == 12
    again = await rejudge(project, "judge")
    assert again.requests.new == 0
    assert again.score == first.score


async def test_rejudging_needs_a_function_and_a_run(project: Project) -> None:
    with pytest.raises(ConfigError, match="no run 'nope'"):
        await rejudge(project, "exact", run="nope")
    with pytest.raises(ConfigError, match="no evaluation to score again"):
        await rejudge(project, "exact", run=None)


async def test_an_evaluation_that_is_not_complete_is_refused_with_what_is_missing(
    project: Project,
) -> None:
    def down(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (400, {"error": {"message": "down"}}) if n > 4 else None

    async with served(down) as endpoint:
        with pytest.raises(RunFailedError):
            await project.evaluate(at(endpoint.url), "concurrency=1")
    with pytest.raises(ConfigError, match="5 of the 12 rollouts of toy/eval are missing") as e:
        await rejudge(project, "exact")
    assert e.value.hint == "finish it first: test"
    assert project.query("SELECT run_id FROM runs") == [("toy/eval",)]


@pytest.mark.parametrize("first", ["flaky.py:flaky", "judge"])
async def test_an_answer_whose_first_verdict_failed_is_scored(project: Project, first: str) -> None:
    break_for(project, 2)
    async with served(judge_refuses(3, 4)) as endpoint:
        played = await project.evaluate(at(endpoint.url), f"verify={first}")
    reason = "judge" if first == "judge" else "verify"
    assert played.outcomes == {f"error.{reason}": 2, "ok": 10}
    report = await rejudge(project, "math")
    assert (report.score.scored, report.score.coverage) == (12, 1.0)
    assert (report.outcomes, report.failures) == ({"ok": 12}, {})
    break_for(project, 0)
    again = await project.evaluate(f"verify={first}")
    assert (again.score.scored, again.outcomes) == (12, {"ok": 12})


async def test_answers_that_are_not_there_stay_missing(project: Project) -> None:
    def one(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (400, {"error": {"message": "odd"}}) if n == 2 else None

    async with served(one) as endpoint:
        await project.evaluate(at(endpoint.url))
    report = await rejudge(project, "flaky.py:flaky")
    assert report.outcomes == {"error.provider": 1, "ok": 11}
    assert project.query("SELECT count(*) FROM verdicts WHERE error IS NOT NULL") == [(0,)]


async def test_what_the_new_function_could_not_score_is_seen_and_tried_again(
    project: Project,
) -> None:
    plain = await project.evaluate()
    break_for(project, 2)
    report = await rejudge(project, "flaky.py:flaky")
    assert (report.score.scored, report.score.mean) == (10, 0.5)
    assert report.outcomes == {"error.verify": 2, "ok": 10}
    assert [("odd" in error, n) for error, n in report.failures.items()] == [(True, 2)]
    assert (await project.evaluate()).score == plain.score
    break_for(project, 1)
    fewer = await rejudge(project, "flaky.py:flaky")
    assert (fewer.score.scored, fewer.outcomes) == (11, {"error.verify": 1, "ok": 11})
    break_for(project, 0)
    whole = await rejudge(project, "flaky.py:flaky")
    assert (whole.score.scored, whole.outcomes, whole.failures) == (12, {"ok": 12}, {})


async def test_a_judge_that_failed_is_asked_again_for_those_only(project: Project) -> None:
    await project.evaluate()
    async with served(judge_refuses(3, 7)) as endpoint:
        report = await rejudge(project, "judge", at(endpoint.url))
    assert report.outcomes == {"error.judge": 2, "ok": 10}
    async with served() as endpoint:
        again = await rejudge(project, "judge", at(endpoint.url))
        assert len(endpoint.bodies) == 2
    assert (again.score.scored, again.outcomes) == (12, {"ok": 12})


async def test_a_reward_is_never_replaced(project: Project) -> None:
    await project.evaluate()
    report = await rejudge(project, "flaky.py:flaky")
    before = project.query("SELECT * FROM verdicts ORDER BY 1, 2")
    with Store(project.db) as store:
        for rollout_id in range(1, 13):
            await store.save_verdict(report.branch, rollout_id, Verdict(1.0, "better"))
            await store.save_verdict(report.branch, rollout_id, Unscored("verify", "worse"))
    assert project.query("SELECT * FROM verdicts ORDER BY 1, 2") == before


async def test_more_rollouts_of_the_source_are_scored_too(project: Project) -> None:
    await project.evaluate()
    await rejudge(project, "judge")
    await project.evaluate("pass_k=3")
    report = await rejudge(project, "judge")
    assert (report.score.planned, report.score.scored) == (36, 36)
    assert report.requests.new == 24
    assert any("has changed" in e.text for e in project.events if isinstance(e, Notice))
    assert (await rejudge(project, "judge")).branch.id == report.branch.id


async def test_a_source_that_changes_again_before_it_was_scored_is_followed(
    project: Project,
) -> None:
    await project.evaluate()
    await rejudge(project, "flaky.py:flaky")
    await project.evaluate("pass_k=2")
    break_for(project, 12)
    with pytest.raises(RunFailedError, match="odd"):
        await rejudge(project, "flaky.py:flaky")
    break_for(project, 0)
    await project.evaluate("pass_k=3")
    report = await rejudge(project, "flaky.py:flaky")
    assert (report.score.planned, report.score.scored) == (36, 36)


async def test_a_restarted_source_is_scored_as_it_is_now(project: Project) -> None:
    await project.evaluate("batch_size=3")
    old = await rejudge(project, "judge")
    await project.evaluate("batch_size=3", restart_step=2)
    report = await rejudge(project, "judge")
    assert (report.score.planned, report.requests.new) == (12, 6)
    line = "SELECT rollout_id FROM v_rollouts WHERE run_id = ? AND reward IS NOT NULL ORDER BY 1"
    assert project.query(line, report.run) == project.query(line, "toy/eval")
    assert report.branch.id != old.branch.id


async def test_a_source_restarted_under_another_agent_is_scored_as_it_is_now(
    project: Project,
) -> None:
    await project.evaluate()
    await rejudge(project, "flaky.py:flaky")
    await project.evaluate("agent.agent.instructions=Guess.", restart_step=0)
    report = await rejudge(project, "flaky.py:flaky")
    assert report.score.scored == 12
    line = "SELECT rollout_id FROM v_rollouts WHERE run_id = ? AND reward IS NOT NULL ORDER BY 1"
    assert project.query(line, report.run) == project.query(line, "toy/eval")


async def test_a_changed_function_under_the_same_name_scores_again(project: Project) -> None:
    await project.evaluate()
    first = await rejudge(project, "flaky.py:flaky")
    (project.folder / "flaky.py").write_text(FLAKY.replace("0.5", "0.25"))
    second = await rejudge(project, "flaky.py:flaky")
    assert (first.run, first.score.mean) == (second.run, 0.5)
    assert (second.score.mean, second.score.scored, second.requests.new) == (0.25, 12, 0)


async def test_playing_under_a_function_and_scoring_again_by_it_are_two_runs(
    project: Project,
) -> None:
    await project.evaluate()
    again = await rejudge(project, "exact")
    played = await project.evaluate(verify="exact")
    assert (again.run, played.run) == ("toy/eval/rejudge=exact", "toy/eval/verify=exact")
    assert (again.requests.new, played.requests.new) == (0, 0)  # the same answers, scored anew


async def test_a_rejudgement_costs_what_it_asked_and_its_source_no_more(project: Project) -> None:
    plain = await project.evaluate()
    report = await rejudge(project, "judge")
    assert report.usage.tokens_out is not None
    assert plain.usage.tokens_out is not None
    assert (await project.evaluate()).usage == plain.usage
    total = project.query("SELECT sum(tokens_out) FROM calls")[0][0]
    assert report.usage.tokens_out == total - plain.usage.tokens_out
    with Store(project.db) as store:
        stages = {
            name: [(cost.stage, cost.calls) for cost in store.read(runs.costs, name)]
            for name in ("toy/eval", report.run)
        }
    assert stages == {"toy/eval": [("play", 12)], report.run: [("judge", 12)]}


async def test_two_judges_are_not_taken_for_one_whose_answers_do_not_fit(project: Project) -> None:
    def judge(model: str) -> str:
        return f"judge_model={{model_provider: {{model: sim}}, model_settings: {model}}}"

    await project.evaluate("verify=judge")
    first = await rejudge(project, "judge", judge("{temperature: 0.3}"))
    second = await rejudge(project, "judge", judge("{temperature: 0.6}"), restart_step=0)
    assert (first.requests.new, second.requests.new) == (12, 12)
    notices = [e.text for e in project.events if isinstance(e, Notice)]
    assert [text for text in notices if "could not be used" in text] == []


async def test_a_rejudgement_can_be_deleted_and_what_was_paid_stays(project: Project) -> None:
    await project.evaluate()
    async with served(judge_refuses(2)) as endpoint:
        report = await rejudge(project, "judge", at(endpoint.url))
    paid = project.query("SELECT count(*) FROM calls")
    with Store(project.db) as store:
        assert store.delete_runs([report.run]) == [report.run]
    assert project.query("SELECT run_id FROM runs") == [("toy/eval",)]
    assert project.query("SELECT count(*) FROM calls") == paid
    assert project.query("SELECT DISTINCT run_id FROM invocations") == [("toy/eval",)]
    assert project.query("PRAGMA foreign_key_check") == []
    again = await rejudge(project, "judge")
    assert (again.score.scored, again.requests.new) == (12, 1)
    with Store(project.db) as store:
        gone = store.delete_runs(["toy/eval"])
    assert project.query("SELECT count(*) FROM failures") == [(0,)]
    assert sorted(gone) == ["toy/eval", report.run]
    assert project.query("SELECT count(*) FROM calls") == [(0,)]


async def test_a_rejudgement_that_got_no_answer_at_all_can_be_deleted(project: Project) -> None:
    await project.evaluate()
    async with served(judge_refuses(*range(99))) as endpoint:
        with pytest.raises(RunFailedError):
            await rejudge(project, "judge", at(endpoint.url), "concurrency=1")
    with Store(project.db) as store:
        store.delete_runs(["toy/eval/rejudge=judge"])
    assert project.query("SELECT run_id FROM runs") == [("toy/eval",)]
    assert project.query("SELECT count(*) FROM failures") == [(3,)]
    assert project.query("PRAGMA foreign_key_check") == []


async def test_a_judge_that_gave_no_grade_is_asked_again_by_the_next_command(
    project: Project,
) -> None:
    def no_grade(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        judging = "## The answer to grade" in body["messages"][-1]["content"]
        return (200, completion("I could not say.")) if judging and n < 8 else None

    async with served(no_grade) as endpoint:
        settings = (
            endpoint.override().removeprefix("evaluation."),
            "verify=judge",
            "concurrency=1",
        )
        first = await project.evaluate(*settings)
        assert first.score.scored < 12
        asked = len(endpoint.bodies)
        again = await project.evaluate(*settings)
    assert again.score.scored == 12
    assert len(endpoint.bodies) - asked == 12 - first.score.scored
