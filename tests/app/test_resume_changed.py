"""Row by row: what a resume refuses, with a diff, and what does not matter to it."""

from pathlib import Path

import pytest

from grpo_practice.errors import FingerprintError, PausedError, RunFailedError
from grpo_practice.forecast.remaining_calls import forecast
from grpo_practice.llm.budget import Caps
from grpo_practice.store import Store, datasets
from grpo_practice.types import Sample
from tests.app.project import Project

ONE_STEP = ("practice.epochs=1", "practice.batch_size=12", "practice.grpo_n=2")


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    """A finished run, whose verify function is in a file."""
    project = Project(tmp_path)
    (tmp_path / "v.py").write_text("def check(sample, **kw):\n    return {'reward': 0.5}\n")
    await project.practise(*ONE_STEP, "evaluation.verify=v.py:check")
    return project


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ("evaluation.agent.model.model_provider.model=other", "model_provider.model"),
        ("evaluation.agent.model.model_settings.max_tokens=9", "model_settings.max_tokens"),
        ("practice.grpo_n=3", "practice.grpo_n"),
        *(
            pytest.param(change, key, marks=pytest.mark.long)
            for change, key in (
                ("practice.seed=5", "practice.seed"),
                ("practice.batch_size=6", "practice.batch_size"),
                ("practice.rollout_temperature=0.1", "practice.rollout_temperature"),
                ("evaluation.agent.agent.instructions=Guess.", "instructions"),
            )
        ),
        ("evaluation.verify=exact", "verify"),
    ],
)
async def test_1_64_a_changed_setting_is_refused_with_a_diff(
    project: Project, change: str, key: str
) -> None:
    somewhere = "evaluation.agent.model.model_provider.base_url=http://127.0.0.1:9/v1"
    with pytest.raises(FingerprintError) as e:
        await project.practise(*ONE_STEP, "evaluation.verify=v.py:check", somewhere, change)
    assert key in " ".join(c.key for c in e.value.diff)
    assert all(c.was != c.now for c in e.value.diff)
    assert e.value.exit_code == 2


async def test_1_64_a_changed_verify_file_is_refused_with_a_diff(project: Project) -> None:
    file = project.folder / "v.py"
    file.write_text(file.read_text().replace("0.5", "0.25"))
    with pytest.raises(FingerprintError) as e:
        await project.practise(*ONE_STEP, "evaluation.verify=v.py:check")
    assert "verify" in " ".join(c.key for c in e.value.diff)


def grown(project: Project, less: int, more: int) -> None:
    """The dataset without so many of its rows, and with so many others, in another order."""
    with Store(project.db) as store:
        rows = store.read(datasets.samples, store.read(datasets.get, "train").id)[less:]
        others = [Sample(f"{n} + 0?", str(n)) for n in range(more)]
        store.add_dataset("train", [*others, *reversed(rows)], origin="x", replace=True)


async def test_1_64_a_missing_row_of_the_dataset_is_refused(project: Project) -> None:
    grown(project, 1, 0)
    with pytest.raises(FingerprintError) as e:
        await project.practise(*ONE_STEP, "evaluation.verify=v.py:check")
    assert e.value.diff


async def test_1_64_added_and_reordered_rows_do_not_matter(project: Project) -> None:
    grown(project, 0, 3)
    report = await project.practise(*ONE_STEP, "evaluation.verify=v.py:check")
    assert report.requests.new == 0


BROKEN = """
def check(sample, **kw):
    if sample.response != sample.correct_answer:
        raise KeyError(sample.response)
    return {'reward': 1.0}
"""
"""Scores the golds, on which it is tried, and raises for what a model says."""
HALF = "def check(sample, **kw):\n    return {'reward': 0.5}\n"
BY_FILE = "verify=v.py:check"


def scored_by(folder: Path, text: str) -> None:
    (folder / "v.py").write_text(text)


async def test_a_mended_verify_function_scores_the_stored_answers(tmp_path: Path) -> None:
    project = Project(tmp_path)
    scored_by(tmp_path, BROKEN)
    with pytest.raises(RunFailedError) as failed:
        await project.evaluate(BY_FILE, "batch_size=1", "concurrency=1")
    assert "mend the cause and run the same command again" in (failed.value.hint or "")
    ((answered,),) = project.query("SELECT count(*) FROM calls")
    assert answered
    assert project.query("SELECT count(*) FROM steps WHERE closed_at NOTNULL") != [(0,)]
    scored_by(tmp_path, HALF)
    with Store(project.db, "scratch") as store:
        left = forecast(project.eval_job(store, BY_FILE, "batch_size=1", "concurrency=1"))
    report = await project.evaluate(BY_FILE, "batch_size=1", "concurrency=1")
    assert (report.replayed, report.requests.new) == (answered, 12 - answered)
    assert left.document()["total"]["calls"] == [12 - answered] * 2
    assert (report.run, report.score.scored, report.score.mean) == ("toy/eval", 12, 0.5)


async def test_a_verify_function_edited_under_way_scores_all_alike(tmp_path: Path) -> None:
    project = Project(tmp_path)
    scored_by(tmp_path, HALF)
    with pytest.raises(PausedError):
        await project.evaluate(BY_FILE, "batch_size=2", "concurrency=1", caps=Caps(requests=5))
    scored_by(tmp_path, HALF.replace("0.5", "0.25"))
    with pytest.raises(PausedError):
        await project.evaluate(BY_FILE, "batch_size=2", "concurrency=1", caps=Caps(requests=5))
    scored_by(tmp_path, HALF.replace("0.5", "0.75"))
    with Store(project.db, "scratch") as store:
        left = forecast(project.eval_job(store, BY_FILE, "batch_size=2", "concurrency=1"))
    assert left.document()["total"]["calls"] == [7, 7]
    report = await project.evaluate(BY_FILE, "batch_size=2", "concurrency=1")
    assert (report.replayed, report.requests.new) == (5, 7)
    assert (report.score.scored, report.score.mean) == (12, 0.75)
    scored_by(tmp_path, HALF)
    back = await project.evaluate(BY_FILE, "batch_size=2", "concurrency=1")
    assert (back.requests.new, back.score.mean) == (0, 0.5)


async def test_another_change_beside_the_verify_file_is_refused(tmp_path: Path) -> None:
    project = Project(tmp_path)
    scored_by(tmp_path, HALF)
    await project.evaluate(BY_FILE)
    scored_by(tmp_path, HALF.replace("0.5", "0.25"))
    with pytest.raises(FingerprintError, match="another configuration"):
        await project.evaluate(BY_FILE, "agent.agent.instructions=Guess.")
