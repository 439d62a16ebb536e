"""Row by row: what a resume refuses, with a diff, and what does not matter to it."""

from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.project import Project, changed_keys, questions

ONE_STEP = ("practice.epochs=1", "practice.batch_size=12", "practice.grpo_n=2")
HALF = "def check(sample, **kw):\n    return {'reward': 0.5}\n"
BY_FILE = "verify={name: 'v.py:check', timeout_s: 60}"
PRACTISED = (*ONE_STEP, f"evaluation.{BY_FILE}")
OTHERWISE = {
    "evaluation.agent.model.model_provider.model=other": "model_provider.model",
    "evaluation.agent.model.model_settings.max_tokens=9": "model_settings.max_tokens",
    "practice.grpo_n=3": "practice.grpo_n",
    "practice.seed=5": "practice.seed",
    "practice.batch_size=6": "practice.batch_size",
    "practice.rollout_temperature=0.1": "practice.rollout_temperature",
    "evaluation.agent.agent.instructions=Guess.": "instructions",
    "evaluation.verify=exact": "verify",
}


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project whose verify function is in a file."""
    scored_by(tmp_path, HALF)
    return Project(tmp_path)


def scored_by(folder: Path, text: str) -> None:
    (folder / "v.py").write_text(text)


@pytest.mark.long
async def test_1_64_what_a_run_is_bound_to_is_refused_with_a_diff(project: Project) -> None:
    await project.practise(*PRACTISED)
    at = "evaluation.agent.model.model_provider"
    somewhere = (f"{at}.base_url=http://127.0.0.1:9/v1", f"{at}.api_key=k")
    for change, key in OTHERWISE.items():
        with pytest.raises(Exception, match="a different configuration") as e:
            await project.practise(*PRACTISED, *somewhere, change)
        error: Any = e.value
        assert key in " ".join(changed_keys(error)), change
        assert all(c.was != c.now for c in error.diff), change
        assert error.exit_code == 2
    scored_by(project.folder, HALF.replace("0.5", "0.25"))
    with pytest.raises(Exception, match="a different configuration") as e:
        await project.practise(*PRACTISED)
    assert "verify" in " ".join(changed_keys(e.value))
    scored_by(project.folder, HALF)

    others = [{"question": f"{n} + 0?", "answer": str(n)} for n in range(3)]
    rows = [*others, *reversed(questions(12))]  # added and reordered rows do not matter
    Workspace(project.db).datasets.upload("train", rows, if_exists="replace")
    assert (await project.practise(*PRACTISED)).requests.new == 0
    Workspace(project.db).datasets.upload("train", rows[:-1], if_exists="replace")
    with pytest.raises(Exception, match="lost 1 of the samples") as e:
        await project.practise(*PRACTISED)
    assert changed_keys(e.value)


BROKEN = """
def check(sample, **kw):
    if sample.response != sample.correct_answer:
        raise KeyError(sample.response)
    return {'reward': 1.0}
"""
"""Scores the golds, on which it is tried, and raises for what a model says."""


def left(project: Project, *sets: str) -> Any:
    """Return the calls that a forecast says are left."""
    forecast = Workspace(project.db).forecast_evaluation(project.config, sets=sets, env={})
    return forecast.document()["total"]["calls"]


async def test_a_mended_verify_function_scores_the_stored_answers(project: Project) -> None:
    scored_by(project.folder, BROKEN)
    sets = (BY_FILE, "batch_size=1", "concurrency=1")
    with pytest.raises(Exception, match="failed") as failed:
        await project.evaluate(*sets)
    hint = str(getattr(failed.value, "hint", ""))
    assert "fix the cause and run the same command again" in hint
    answered = project.count("calls")
    assert answered
    assert project.query("SELECT count(*) FROM steps WHERE closed_at NOTNULL") != [(0,)]
    scored_by(project.folder, HALF)
    assert left(project, *sets) == [12 - answered] * 2
    report = await project.evaluate(*sets)
    assert (report.replayed, report.requests.new) == (answered, 12 - answered)
    assert (report.run, report.score.scored, report.score.mean) == ("toy/eval", 12, 0.5)

    scored_by(project.folder, HALF.replace("0.5", "0.25"))  # another change beside it is refused
    with pytest.raises(Exception, match="a different configuration"):
        await project.evaluate(*sets, "agent.agent.instructions=Guess.")


@pytest.mark.long
async def test_a_verify_function_edited_under_way_scores_all_alike(project: Project) -> None:
    sets = (BY_FILE, "batch_size=2", "concurrency=1")
    for reward in ("0.5", "0.25"):
        scored_by(project.folder, HALF.replace("0.5", reward))
        with pytest.raises(Exception, match="5 requests spent so far"):
            await project.evaluate(*sets, max_requests=5)
    scored_by(project.folder, HALF.replace("0.5", "0.75"))
    assert left(project, *sets) == [7, 7]
    report = await project.evaluate(*sets)
    assert (report.replayed, report.requests.new) == (5, 7)
    assert (report.score.scored, report.score.mean) == (12, 0.75)
    scored_by(project.folder, HALF)
    back = await project.evaluate(*sets)
    assert (back.requests.new, back.score.mean) == (0, 0.5)
