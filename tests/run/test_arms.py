"""Arms of which somebody holds one, and what is told of their progress."""

from pathlib import Path
from typing import Any

import pytest

from grpo_practice.cli.terminal.tally import Tally
from grpo_practice.core.errors import (
    LockedError,
)
from grpo_practice.core.events import RolloutFinished
from grpo_practice.reports.comparison import ComparisonReport
from grpo_practice.run.arms import prepare_arms, run_arms
from grpo_practice.run.requests.runs import ArmsRequest
from grpo_practice.store import Store
from tests.run.project import Project, finished

OBJECTIVES = ("practice.agent_objective=Add.", "practice.learning_objective=Be exact.")


async def play(project: Project, *names: str, sets: tuple[str, ...] = (), **more: Any) -> Any:
    with Store(project.db) as store:
        request = ArmsRequest(names, project.config, env={}, sets=sets, **more)
        job = prepare_arms(project.session(store), request)
        return await run_arms(job)


async def test_an_arm_that_is_held_frees_the_others_and_leaves_nothing(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    runs = project.query("SELECT count(*) FROM runs")
    names = ("none", "full", "aa")
    with Store(project.db) as store:
        request = ArmsRequest(names, project.config, env={})
        job = prepare_arms(project.session(store), request)
        targets = [evaluation.spec.name for evaluation in job.evaluations.values()]
        with store.lock(targets[-1]):
            with pytest.raises(LockedError, match="seed=1"):
                await run_arms(job)
            assert not any(store.is_worked_on(name) for name in targets[:-1])
    assert project.query("SELECT count(*) FROM runs") == runs


async def test_a_practice_run_under_way_elsewhere_is_not_written(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    with Store(project.db) as store, store.lock("toy"):
        with pytest.raises(LockedError):
            await play(project, "none", "direct")
        assert isinstance(await play(project, "none", "full"), ComparisonReport)


async def test_a_library_that_is_written_needs_no_lock_on_its_practice_run(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    await play(project, "none", "direct")
    with Store(project.db) as store, store.lock("toy"):
        assert isinstance(await play(project, "none", "direct"), ComparisonReport)


async def test_the_progress_of_all_arms_is_one(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    await play(project, "none", "full", sets=("pass_k=2",))
    tally = Tally()
    for event in project.events:
        tally.record(event)
    assert tally.part is tally.whole
    assert (tally.whole.planned, tally.whole.done, tally.beside) == (48, 48, 1)
    assert not tally.inside
    rollouts = [event for event in project.events if isinstance(event, RolloutFinished)]
    assert {event.run for event in rollouts} == {"toy/eval", learnt_run(project)}
    assert tally.whole.mean == pytest.approx(sum(e.reward or 0.0 for e in rollouts) / 48)


def learnt_run(project: Project) -> str:
    ((name,),) = project.query("SELECT run_id FROM runs WHERE run_id LIKE 'toy/eval/L%'")
    return str(name)
