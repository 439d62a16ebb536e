"""Ways to practise: prompts of one's own, evaluations on the way, a selection set, no truth."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.project import Project, Said, questions, served
from tests.contract.test_practice_run import ADDED, upload


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


async def test_evaluations_on_the_way_are_runs_of_their_own_and_paid_once(
    project: Project,
) -> None:
    settings = ["practice.do_eval=true", "practice.eval_strategy=steps", "practice.eval_steps=2"]
    report = await project.practise(*settings)
    names = project.query("SELECT run_id, purpose, parent_run_id, parent_step FROM runs ORDER BY 1")
    assert ("toy", "practice", None, None) in names
    evals = [n for n in names if n[1] == "test"]
    assert evals.pop(0) == ("toy/eval", "test", "toy", None)  # before it has learnt
    assert [n[0].startswith("toy/eval/L") for n in evals] == [True] * len(evals)
    assert {n[2] for n in evals} == {"toy"}
    assert set(report.evals) >= {1, 3}
    assert report.after is not None
    calls = project.count("calls")
    await project.practise(*settings)
    assert project.count("calls") == calls
    by_hand = await project.evaluate()  # the agent before it had learnt
    assert (by_hand.run, by_hand.requests.new) == ("toy/eval", 0)
    assert report.before is not None
    assert by_hand.score == report.before.score

    changed = ("practice.do_eval=true", "evaluation.agent.agent.instructions=Solve it.")
    report = await project.practise(*changed, restart_step=2)
    assert report.after is not None
    twice = project.query(
        "SELECT run_id FROM branches WHERE run_id LIKE 'toy/eval/L%' GROUP BY 1 HAVING count(*) = 2"
    )
    assert len(twice) == 1  # the library that step 1 made, under the old and the new agent
    assert (await project.practise(*changed)).requests.new == 0


@pytest.mark.long
async def test_evaluations_that_were_missed_are_made_when_they_are_asked_for(
    project: Project,
) -> None:
    def odd(n: int, body: dict[str, Any]) -> Said | None:
        return (400, {"error": {"message": "odd"}}) if n == 2 else None

    one = ("practice.epochs=1",)
    plain = await project.practise(*one)
    assert plain.after is None
    async with served(odd) as endpoint:
        later = await project.practise(*one, "practice.do_eval=true", endpoint.override())
    assert later.after is not None
    assert (later.requests.new, later.requests.failed) == (11, 1)
    again = await project.practise(*one, "practice.do_eval=true")
    (all_out,) = project.query("SELECT sum(tokens_out) FROM calls")[0]
    assert (again.requests.new, again.usage.tokens_out) == (1, all_out)
    assert plain.usage.tokens_out < all_out
    calls = project.query("SELECT run_id, sum(calls) FROM v_costs GROUP BY 1 ORDER BY 1")
    assert [n for _, n in calls] == [plain.requests.new, 12]
    await project.practise("practice.epochs=2", "practice.do_eval=true")
    (text,) = project.query(
        "SELECT body FROM branches JOIN texts ON sha256 = config_sha WHERE run_id = 'toy'"
    )
    assert "do_eval: true" in text[0], "the stored configuration follows what may change"
    assert "epochs: 2" in text[0]


async def test_a_baseline_made_by_hand_stays(project: Project) -> None:
    by_hand = await project.evaluate("pass_k=2")
    practised = await project.practise("practice.do_eval=true")
    assert practised.before is not None
    assert practised.before.score == by_hand.score


async def test_the_teachers_temperature_is_not_the_rollouts(project: Project) -> None:
    async with served() as endpoint:
        await project.practise(endpoint.override(), "practice.rollout_temperature=0.9")
        temperatures = {
            (body["messages"][0]["content"][:10], body["temperature"]) for body in endpoint.bodies
        }
    assert {t for start, t in temperatures if start == "Solve it. "} == {0.9}
    assert {t for start, t in temperatures if start != "Solve it. "} == {0.0}


def own(folder: Path, name: str, old: str, new: str) -> None:
    """Write a shipped prompt with some other words into `prompts`."""
    shipped = (files("grpo_practice") / "core" / "prompts" / name).read_text("utf-8")
    assert old in shipped
    (folder / "prompts").mkdir(exist_ok=True)
    (folder / "prompts" / name).write_text(shipped.replace(old, new))


async def test_a_run_goes_on_with_the_prompts_it_was_started_with(project: Project) -> None:
    own(project.folder, "compare.md", "You compare several", "You study several")
    async with served() as endpoint:
        setting = (endpoint.override(), "practice.prompts_dir=prompts")
        await project.practise(*setting, "practice.epochs=1")
        asked = [b["messages"][0]["content"] for b in endpoint.bodies]
        assert any(text.startswith("You study several") for text in asked)
        own(project.folder, "compare.md", "You compare several", "You inspect several")
        done = len(endpoint.bodies)
        await project.practise(*setting, "practice.epochs=2")
        later = [b["messages"][0]["content"] for b in endpoint.bodies[done:]]
    assert any(text.startswith("You study several") for text in later)
    assert not any(text.startswith("You inspect") for text in later)


async def test_what_cannot_be_used_is_said_before_anything_is_paid(project: Project) -> None:
    prompts = project.folder / "prompts"
    prompts.mkdir()
    (prompts / "merge.md").write_text("Merge {{ proposals }} and {{ everything }}.")
    setting = "practice.prompts_dir=prompts"
    async with served() as endpoint:
        with pytest.raises(Exception, match="unknown slot everything"):
            await project.practise(endpoint.override(), setting)
        (prompts / "merge.md").unlink()
        (prompts / "reask.md").write_text("Use sk-live-12345678. {{ error }}")
        key = "evaluation.agent.model.model_provider.api_key=sk-live-12345678"
        with pytest.raises(Exception, match=r"reask\.md contains a secret") as e:
            await project.practise(endpoint.override(), key, setting)
        assert "sk-live" not in str(e.value)
        upload(project, "train", [ADDED, {"question": "what?", "answer": None}])
        with pytest.raises(Exception, match="row 2"):
            await project.practise(endpoint.override())
        assert endpoint.bodies == []
    assert project.count("runs") == 0


async def test_without_ground_truth_no_request_of_the_teacher_holds_the_answer_or_the_reward(
    project: Project,
) -> None:
    async with served() as endpoint:
        await project.practise(endpoint.override(), "practice.given_ground_truth=false")
        told = [
            body["messages"][-1]["content"]
            for body in endpoint.bodies
            if body["messages"][0]["content"].startswith("You ")
        ]
    assert len(told) > 10
    for text in told:
        assert "## The correct answer" not in text
        assert "## How the attempt was judged" not in text
        assert ": reward" not in text
    summaries = [t for t in told if "## The attempts" in t]
    assert all("It is not known which attempts are right" in t for t in summaries)
    assert summaries


@pytest.mark.long
async def test_the_best_step_is_chosen_on_questions_of_its_own(project: Project) -> None:
    upload(project, "dev", questions(60)[48:])
    workspace = Workspace(project.db)
    with pytest.raises(Exception, match="worthless"):
        await project.practise("practice.select_dataset=test")
    await project.practise("practice.select_dataset=dev")
    (runs,) = project.query("SELECT count(*) FROM runs WHERE run_id LIKE '%/data=dev'")
    candidates = project.query(
        """SELECT count(DISTINCT sha256) FROM libraries WHERE cause = 'empty' OR library_id IN
             (SELECT made FROM (SELECT library_out AS made, max(step) FROM steps
                                 GROUP BY branch_id, epoch))"""
    )
    assert [runs] == candidates
    best = workspace.experiences("toy:best").library
    assert best == workspace.experiences("toy", "best").library
    assert not any("data=dev" in name for name in workspace.run("toy").scores)
    await project.practise("exp_id=plain")
    with pytest.raises(Exception, match="choose its best"):
        workspace.experiences("plain:best")
    (project.folder / "mine.yaml").write_text("- Name the units first.\n- Add totals twice.\n")
    start = str(project.folder / "mine.yaml")
    await project.practise("exp_id=mine", "practice.select_dataset=dev", start=start)
    found = project.query(
        "SELECT parent_step FROM runs WHERE run_id LIKE 'mine/%/data=dev' ORDER BY rowid LIMIT 1"
    )
    assert found == [(None,)], "the library of a file is a candidate too"


@pytest.mark.long
async def test_an_evaluation_on_the_way_has_the_limits_of_its_run(project: Project) -> None:
    def no_test(n: int, body: dict[str, Any]) -> Said | None:
        evaluating = body.get("temperature") == 0.31
        return (400, {"error": {"message": "odd"}}) if evaluating and n % 2 else None

    settings = ("evaluation.agent.model.model_settings.temperature=0.31", "practice.do_eval=true")
    async with served(no_test) as endpoint:
        with pytest.raises(Exception, match="odd"):
            await project.practise(endpoint.override(), *settings)
        report = await project.practise(
            endpoint.override(), *settings, "practice.max_failed_share=1"
        )
    assert report.evals
