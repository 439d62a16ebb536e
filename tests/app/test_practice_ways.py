"""Other ways to practise: without the truth, with a selection set, with one's own prompts."""

from pathlib import Path
from typing import Any

import pytest

from grpo_practice.app.library_refs import library_of
from grpo_practice.errors import ConfigError, RunFailedError
from grpo_practice.reports.stored_runs import run_report
from grpo_practice.sim.questions import questions
from grpo_practice.store import Store
from tests.app.project import Project
from tests.contract.project import served


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


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


async def test_the_best_step_is_chosen_on_questions_of_its_own(project: Project) -> None:
    with Store(project.db) as store:
        store.add_dataset("dev", questions(60, 3)[24:36], origin="sim", replace=False)
    await project.practise("practice.select_dataset=dev")
    (runs,) = project.query("SELECT count(*) FROM runs WHERE run_id LIKE '%/data=dev'")
    libraries = project.query("SELECT count(DISTINCT sha256) FROM libraries WHERE run_id = 'toy'")
    assert runs == libraries[0]  # the empty library is a candidate too
    with Store(project.db) as store:
        best = library_of(store, "toy:best")
        assert best.library == library_of(store, "toy", "best").library
        assert not any("data=dev" in name for name in run_report(store, "toy").scores)
    await project.practise("exp_id=plain")
    with Store(project.db) as store, pytest.raises(ConfigError, match="choose its best"):
        library_of(store, "plain:best")


async def test_the_library_of_a_file_is_a_candidate_too(project: Project) -> None:
    with Store(project.db) as store:
        store.add_dataset("dev", questions(60, 3)[24:36], origin="sim", replace=False)
    file = project.folder / "mine.yaml"
    file.write_text("- Name the units first.\n- Add totals twice.\n")
    await project.practise("practice.select_dataset=dev", start=str(file))
    found = project.query(
        "SELECT parent_step FROM runs WHERE run_id LIKE '%/data=dev' ORDER BY rowid LIMIT 1"
    )
    assert found == [(None,)]


async def test_the_test_set_is_never_the_selection_set(project: Project) -> None:
    with pytest.raises(ConfigError, match="worthless"):
        await project.practise("practice.select_dataset=test")


async def test_a_run_goes_on_with_the_prompts_it_was_started_with(project: Project) -> None:
    folder = project.folder / "prompts"
    folder.mkdir()
    shipped = Path(__file__).parents[2] / "src/grpo_practice/prompts/compare.md"
    own = shipped.read_text("utf-8").replace("You compare several", "You study several")
    (folder / "compare.md").write_text(own)
    async with served() as endpoint:
        setting = (endpoint.override(), "practice.prompts_dir=prompts")
        await project.practise(*setting, "practice.epochs=1")
        asked = [b["messages"][0]["content"] for b in endpoint.bodies]
        assert any(text.startswith("You study several") for text in asked)
        (folder / "compare.md").write_text(own.replace("You study", "You inspect"))
        done = len(endpoint.bodies)
        await project.practise(*setting, "practice.epochs=2")
        later = [b["messages"][0]["content"] for b in endpoint.bodies[done:]]
    assert any(text.startswith("You study several") for text in later)
    assert not any(text.startswith("You inspect") for text in later)


async def test_a_prompt_that_does_not_fit_is_said_before_anything_is_paid(
    project: Project,
) -> None:
    folder = project.folder / "prompts"
    folder.mkdir()
    (folder / "merge.md").write_text("Merge {{ proposals }} and {{ everything }}.")
    async with served() as endpoint:
        with pytest.raises(ConfigError, match="unknown slot everything"):
            await project.practise(endpoint.override(), "practice.prompts_dir=prompts")
        assert endpoint.bodies == []


async def test_a_prompt_that_holds_the_key_is_refused_without_repeating_it(
    project: Project,
) -> None:
    folder = project.folder / "prompts"
    folder.mkdir()
    (folder / "reask.md").write_text("Use sk-live-12345678. {{ error }}")
    at = "evaluation.agent.model.model_provider"
    key = (f"{at}.base_url=http://127.0.0.1:9/v1", f"{at}.api_key=sk-live-12345678")
    with pytest.raises(ConfigError, match=r"reask\.md holds a secret") as e:
        await project.practise(*key, "practice.prompts_dir=prompts")
    assert "sk-live" not in str(e.value)


async def test_an_evaluation_on_the_way_has_the_limits_of_its_run(project: Project) -> None:
    def no_test(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        evaluating = body.get("temperature") == 0.31
        return (400, {"error": {"message": "odd"}}) if evaluating and n % 2 else None

    settings = ("evaluation.agent.model.model_settings.temperature=0.31", "practice.do_eval=true")
    async with served(no_test) as endpoint:
        with pytest.raises(RunFailedError, match="odd"):
            await project.practise(endpoint.override(), *settings)
        report = await project.practise(
            endpoint.override(), *settings, "practice.max_failed_share=1"
        )
    assert report.evals
