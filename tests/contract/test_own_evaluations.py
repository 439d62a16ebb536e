"""Evaluations of one experiment that differ: none of them stands for another."""

from pathlib import Path

import pytest

from grpo_practice import Workspace
from tests.contract.command import Gp
from tests.contract.project import Project, finished, questions


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    return await finished(tmp_path / "p")


def arms(report: object) -> dict[str, str]:
    return {arm["named"]: arm["run"] for arm in report.document()["arms"]}  # type: ignore[attr-defined]


async def test_arms_that_are_stored_are_those_of_the_experiment(project: Project) -> None:
    ws = Workspace(project.db)
    given = (["none", "full"], project.config)
    await ws.evaluate_arms_async(*given, env={}, verify="exact", overrides={"seed": 7})
    await ws.evaluate_arms_async(*given, env={})
    await ws.evaluate_arms_async(["aa", "full"], project.config, env={})
    found = arms(ws.compare_arms("toy", ["base", "practised"]))
    assert found["base"] == "toy/eval"
    assert found["practised"].startswith("toy/eval/L")
    assert "=" not in found["practised"]


async def test_an_arm_without_a_library_is_the_experiments_own_agent(project: Project) -> None:
    ws = Workspace(project.db)
    other = project.folder / "other.yaml"
    ws.export("toy", output=other)
    (project.folder / "hand.yaml").write_text("experiences: ['Count: Count twice.']\n")
    await project.evaluate(agent=other)
    await project.evaluate()
    hand = str(project.folder / "hand.yaml")
    found = arms(await ws.evaluate_arms_async(["none", hand], env={}))
    assert found["none"] == "toy/eval"


async def test_another_seed_is_not_the_score_after_practice(project: Project) -> None:
    ws = Workspace(project.db)
    for names in (["aa", "full"], ["none", "full"]):
        await ws.evaluate_arms_async(names, project.config, env={})
    report = await project.practise()
    assert report.after is not None
    assert "seed" not in report.after.run


async def test_a_score_on_another_dataset_is_no_score_of_a_step(project: Project) -> None:
    ws = Workspace(project.db)
    ws.datasets.upload("held", questions(30)[24:])
    ws.export("toy", output=project.folder / "solver.yaml")
    await ws.evaluate_async(agent=project.folder / "solver.yaml", run="toy", dataset="held", env={})
    report = await project.practise()
    assert report.evals == {}
    assert (report.before, report.after) == (None, None)


async def test_a_pilot_is_only_a_forecasts(project: Project) -> None:
    ws, before = Workspace(project.db), project.count("calls")
    for play in (ws.evaluate_async, ws.practise_async):
        with pytest.raises(Exception, match="pilot, which plays a small part"):
            await play(project.config, env={}, pilot=1)
    assert project.count("calls") == before


@pytest.mark.long
def test_an_empty_option_is_refused_where_it_would_name_another_run(demo: Gp) -> None:
    for words in (
        ("practice", "--config", ""),
        ("eval", "--config", ""),
        ("eval", "--run", ""),
        ("experiences", "effect", "--step", "", "--dataset", "practice"),
    ):
        assert demo(*words, "--dry-run").code == 2, words
    assert demo("eval", "--dataset", "", "--dry-run").code == 0
