"""Which evaluations are the score of a practice run's agent, before and after it practised."""

from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from grpo_practice.config.reading.yaml_reader import dump_yaml, parse_yaml
from grpo_practice.errors import PausedError
from grpo_practice.llm.budget import NO_CAPS, Caps
from grpo_practice.sim.questions import questions
from grpo_practice.store import Store
from tests.app.project import Project
from tests.contract.project import CONFIG
from tests.export.rendered import export_agent


def evaluation(folder: Path, exp_id: str) -> Path:
    """The project's evaluation in a file of its own, as the published configs have it."""
    config = parse_yaml(CONFIG, "c.yaml").data["evaluation"]
    path = folder / f"{exp_id}.yaml"
    path.write_text(dump_yaml({"exp_id": exp_id, **config}), "utf-8")
    return path


def exported(project: Project) -> Path:
    path = project.folder / "learnt.yaml"
    with Store(project.db) as store:
        path.write_text(export_agent(store, "toy", "last", "yaml"), "utf-8")
    return path


async def test_evaluations_of_another_experiment_are_before_and_after(tmp_path: Path) -> None:
    project = Project(tmp_path)
    config = evaluation(tmp_path, "published")
    before = await project.evaluate(config=config)
    assert (await project.practise()).after is None
    after = await project.evaluate(config=config, agent=exported(project))
    report = await project.practise()
    assert report.before is not None
    assert report.after is not None
    assert (report.before.run, report.before.score) == ("published/eval", before.score)
    assert (report.after.run, report.after.score) == ("published/eval/learnt", after.score)
    ws = Workspace(project.db)
    assert ws.run("toy").scores == {before.run: before.score, after.run: after.score}
    agent = ws.export("toy").agent.provenance
    assert agent.before is not None
    assert agent.after is not None
    assert (agent.before.run, agent.after.run) == (before.run, after.run)


OTHER = {
    "another model": ("agent.model.model_provider.model=sim:other",),
    "another temperature": ("agent.model.model_settings.temperature=0.9",),
    "other instructions": ("agent.agent.instructions=Guess.",),
    "another function": ("verify=contains",),
    "another dataset": ("data.dataset=train",),
}


@pytest.mark.parametrize("sets", OTHER.values(), ids=OTHER)
async def test_an_evaluation_that_differs_counts_for_nothing(
    tmp_path: Path, sets: tuple[str, ...]
) -> None:
    project = Project(tmp_path)
    config = evaluation(tmp_path, "published")
    await project.practise()
    await project.evaluate(*sets, config=config)
    await project.evaluate(*sets, config=config, agent=exported(project))
    report = await project.practise()
    assert (report.before, report.after) == (None, None)


async def test_a_part_of_the_test_set_counts_for_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    await project.evaluate(config=evaluation(tmp_path, "published"), limit=3)
    assert (await project.practise()).before is None


async def test_a_test_set_that_has_changed_since_counts_for_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    await project.evaluate(config=evaluation(tmp_path, "published"))
    with Store(project.db) as store:
        store.add_dataset("test", questions(8, 5), origin="sim", replace=True)
    assert (await project.practise()).before is None


async def test_an_evaluation_that_is_not_complete_counts_for_nothing(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.caps = Caps(5, None, None)
    with pytest.raises(PausedError):
        await project.evaluate(config=evaluation(tmp_path, "published"))
    project.caps = NO_CAPS
    assert (await project.practise()).before is None


def solve(question: str, system: str, context: Any) -> str:
    """An agent of the program that is right now and then, and more often once it has learnt."""
    wanted = {s.question: str(s.answer) for s in questions(24, 0)}[question]
    right = context.attempt % 2 == 0 or "[E1]" in system
    return f"\\boxed{{{wanted if right else 0}}}"


async def test_a_python_function_has_a_score_before_and_after(tmp_path: Path) -> None:
    project = Project(tmp_path)
    before = await project.evaluate(agent=solve)
    learnt = (await project.practise(agent=solve)).library
    assert learnt.experiences
    after = await project.evaluate(agent=solve, library="toy")
    report = await project.practise(agent=solve)
    assert report.before is not None
    assert report.after is not None
    assert (report.before.run, report.before.score) == (before.run, before.score)
    assert (report.after.run, report.after.score) == (after.run, after.score)
    assert before.run != after.run
