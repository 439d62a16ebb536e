"""Scoring again: every answer there is, by another function, beside what was scored before."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.endpoint.actions import completion
from tests.contract.endpoint.simulated import stage_of
from tests.contract.project import Project, Said, questions, served

FLAKY = """
import pathlib

def flaky(sample, **kwargs):
    if sample.raw_question in pathlib.Path(__file__).with_name("odd").read_text("utf-8"):
        raise ValueError("odd")
    return {"reward": 0.5}
"""
"""Raises for the questions in the file `odd` beside it."""
BY_FILE = "flaky.py:flaky"
SCORED = "SELECT rollout_id FROM v_rollouts WHERE run_id = ? AND reward IS NOT NULL ORDER BY 1"
RUNS = "SELECT run_id FROM runs"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    (project.folder / "flaky.py").write_text(FLAKY)
    break_for(project, 0)
    return project


def break_for(project: Project, n: int) -> None:
    """The flaky function fails for the first n questions from now on."""
    asked = [row["question"] for row in questions(24)[12:]]
    (project.folder / "odd").write_text("\n".join(asked[:n]), "utf-8")


async def rejudge(project: Project, verify: str, *overrides: str, **options: Any) -> Any:
    given = {"config": None, "rejudge": True, "verify": verify, "run": "toy/eval"}
    return await project.evaluate(*overrides, **(given | options))


def at(url: str) -> str:
    return f"agent.model.model_provider.base_url={url}"


def judge_refuses(*judgements: int) -> Any:
    """A hook under which the n-th judgements get no answer, from 1."""
    seen = 0

    def hook(n: int, body: dict[str, Any]) -> Said | None:
        nonlocal seen
        seen += stage_of(body) == "judge"
        return (400, {"error": {"message": "no"}}) if seen in judgements else None

    return hook


async def test_another_verify_function_scores_the_same_rollouts_for_nothing(
    project: Project,
) -> None:
    half = "def half(sample, **kwargs):\n    return {'reward': 0.5, 'reasoning': sample.source}\n"
    (project.folder / "half.py").write_text(half)
    for run, why in (("nope", "no run 'nope'"), (None, "no evaluation to score again")):
        with pytest.raises(Exception, match=why):
            await rejudge(project, "exact", run=run)
    plain = await project.evaluate("pass_k=2")
    report = await rejudge(project, "half.py:half", run=None)
    assert (report.run, report.requests.new) == ("toy/eval/rejudge=half.py:half", 0)
    assert (report.score.planned, report.score.scored, report.score.mean) == (24, 24, 0.5)
    kept = await project.evaluate("pass_k=2")
    assert kept.score == plain.score

    (project.folder / "half.py").write_text(half.replace("0.5", "0.25"))
    second = await rejudge(project, "half.py:half")
    assert (report.run, second.score.scored, second.requests.new) == (second.run, 24, 0)
    assert second.score.mean == 0.25, "a changed function under the same name scores again"

    (project.folder / "gone.py").write_text("import pathlib; pathlib.Path('opened').touch()")
    kit = {"mode": "mcp", "config": {"command": sys.executable, "args": ["gone.py"]}}
    again = await rejudge(project, "exact", f"agent.toolkits={json.dumps({'kit': kit})}")
    assert again.score.scored == 24
    assert not (project.folder / "opened").exists(), "scoring again opens no tools"
    played = await project.evaluate("pass_k=2", verify="exact")
    assert (again.run, played.run) == ("toy/eval/rejudge=exact", "toy/eval/verify=exact")
    assert (again.requests.new, played.requests.new) == (0, 0)  # the same answers, scored anew


async def test_a_judge_is_asked_once_per_rollout_and_its_source_costs_no_more(
    project: Project,
) -> None:
    plain = await project.evaluate()
    first = await rejudge(project, "judge")
    assert first.requests.new == 12
    again = await rejudge(project, "judge")
    assert (again.requests.new, again.score) == (0, first.score)
    assert (await project.evaluate()).usage == plain.usage
    total = project.query("SELECT sum(tokens_out) FROM calls")[0][0]
    assert first.usage.tokens_out == total - plain.usage.tokens_out > 0
    stages = project.query("SELECT run_id, stage, sum(calls) FROM v_costs GROUP BY 1, 2 ORDER BY 1")
    assert stages == [("toy/eval", "play", 12), (first.run, "judge", 12)]

    await project.evaluate("pass_k=3")  # more rollouts of the source are scored too
    report = await rejudge(project, "judge")
    assert (report.score.planned, report.score.scored) == (36, 36)
    assert report.requests.new == 24
    assert any("has changed" in text for text in project.notices)
    assert (await rejudge(project, "judge")).branch.id == report.branch.id


async def test_an_evaluation_that_is_not_complete_is_refused_with_what_is_missing(
    project: Project,
) -> None:
    def down(n: int, body: dict[str, Any]) -> Said | None:
        return (400, {"error": {"message": "down"}}) if n > 4 else None

    async with served(down) as endpoint:
        with pytest.raises(Exception, match="down"):
            await project.evaluate(at(endpoint.url), "concurrency=1")
    with pytest.raises(Exception, match="5 of the 12 rollouts of toy/eval are missing") as e:
        await rejudge(project, "exact")
    error: Any = e.value
    assert error.hint.startswith("finish it first: Workspace(")
    assert project.query(RUNS) == [("toy/eval",)]


@pytest.mark.long_after(1)
@pytest.mark.parametrize("first", [BY_FILE, "judge"])
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
    def one(n: int, body: dict[str, Any]) -> Said | None:
        return (400, {"error": {"message": "odd"}}) if n == 2 else None

    async with served(one) as endpoint:
        await project.evaluate(at(endpoint.url))
    report = await rejudge(project, "contains")
    assert report.outcomes == {"error.provider": 1, "ok": 11}
    assert project.query("SELECT count(*) FROM verdicts WHERE error IS NOT NULL") == [(0,)]


@pytest.mark.long
async def test_what_the_new_function_could_not_score_is_seen_and_tried_again(
    project: Project,
) -> None:
    plain = await project.evaluate()
    break_for(project, 2)
    report = await rejudge(project, BY_FILE)
    assert (report.score.scored, report.score.mean) == (10, 0.5)
    assert report.outcomes == {"error.verify": 2, "ok": 10}
    assert [("odd" in error, n) for error, n in report.failures.items()] == [(True, 2)]
    assert (await project.evaluate()).score == plain.score
    for n in (1, 0):
        break_for(project, n)
        fewer = await rejudge(project, BY_FILE)
        assert (fewer.score.scored, fewer.outcomes.get("error.verify", 0)) == (12 - n, n)
    assert (fewer.outcomes, fewer.failures) == ({"ok": 12}, {})

    # A source that changes again before it was scored is followed.
    await project.evaluate("pass_k=2")
    break_for(project, 12)
    with pytest.raises(Exception, match="odd"):
        await rejudge(project, BY_FILE)
    break_for(project, 0)
    await project.evaluate("pass_k=3")
    report = await rejudge(project, BY_FILE)
    assert (report.score.planned, report.score.scored) == (36, 36)


async def test_a_restarted_source_is_scored_as_it_is_now(project: Project) -> None:
    await project.evaluate("batch_size=3")
    old = await rejudge(project, "judge")
    await project.evaluate("batch_size=3", restart_step=2)
    report = await rejudge(project, "judge")
    assert (report.score.planned, report.requests.new) == (12, 6)
    assert project.query(SCORED, report.run) == project.query(SCORED, "toy/eval")
    assert report.branch.id != old.branch.id
    # Under another agent, too.
    await project.evaluate("batch_size=3", "agent.agent.instructions=Guess.", restart_step=0)
    report = await rejudge(project, BY_FILE)
    assert report.score.scored == 12
    assert project.query(SCORED, report.run) == project.query(SCORED, "toy/eval")


async def test_two_judges_are_not_taken_for_one_whose_answers_do_not_fit(project: Project) -> None:
    def judge(model: str) -> str:
        return f"judge_model={{model_provider: {{model: sim}}, model_settings: {model}}}"

    await project.evaluate("verify=judge")
    first = await rejudge(project, "judge", judge("{temperature: 0.3}"))
    second = await rejudge(project, "judge", judge("{temperature: 0.6}"), restart_step=0)
    assert (first.requests.new, second.requests.new) == (12, 12)
    assert [text for text in project.notices if "could not be used" in text] == []


@pytest.mark.long
async def test_a_rejudgement_can_be_deleted_and_what_was_paid_stays(project: Project) -> None:
    workspace = Workspace(project.db)
    await project.evaluate()
    async with served(judge_refuses(*range(99))) as endpoint:
        with pytest.raises(Exception, match="no"):  # it got no answer at all
            await rejudge(project, "judge", at(endpoint.url), "concurrency=1")
    workspace.delete_run("toy/eval/rejudge=judge")
    assert project.query(RUNS) == [("toy/eval",)]
    assert project.count("failures") == 3

    async with served(judge_refuses(3, 7)) as endpoint:
        report = await rejudge(project, "judge", at(endpoint.url))
    assert report.outcomes == {"error.judge": 2, "ok": 10}
    paid = project.count("calls")
    assert list(workspace.delete_run(report.run).runs) == [report.run]
    assert project.query(RUNS) == [("toy/eval",)]
    assert project.count("calls") == paid
    assert project.query("SELECT DISTINCT run_id FROM invocations") == [("toy/eval",)]
    assert (project.wrong, project.query("PRAGMA foreign_key_check")) == ([], [])
    async with served() as endpoint:
        again = await rejudge(project, "judge", at(endpoint.url))
        assert len(endpoint.bodies) == 2, "only those that failed are asked again"
    assert (again.score.scored, again.outcomes) == (12, {"ok": 12})
    gone = workspace.delete_run("toy/eval", with_dependants=True)
    assert sorted(gone.runs) == ["toy/eval", report.run]
    assert project.count("failures") == project.count("calls") == 0


async def test_a_judge_that_gave_no_grade_is_asked_again_by_the_next_command(
    project: Project,
) -> None:
    def no_grade(n: int, body: dict[str, Any]) -> Said | None:
        judging = stage_of(body) == "judge"
        return (200, completion("I could not say.")) if judging and n < 8 else None

    async with served(no_grade) as endpoint:
        settings = (at(endpoint.url), "verify=judge", "concurrency=1")
        first = await project.evaluate(*settings)
        assert first.score.scored < 12
        asked = len(endpoint.bodies)
        again = await project.evaluate(*settings)
    assert again.score.scored == 12
    assert len(endpoint.bodies) - asked == 12 - first.score.scored
