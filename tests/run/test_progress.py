"""The bar of a command covers all that it plays, ends full, and never goes back."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.cli.terminal.tally import Tally
from grpo_practice.core.events import (
    CallFinished,
    Event,
    RetryWaits,
    RolloutFinished,
    RolloutStarted,
    RunStarted,
    ScoringFinished,
    ScoringStarted,
    StepFinished,
)
from grpo_practice.llm import retry_wait
from grpo_practice.run.arms import prepare_arms, run_arms
from grpo_practice.run.requests.runs import ArmsRequest
from grpo_practice.sim.questions import questions
from grpo_practice.store import Store
from tests.contract.effects_project import measurable
from tests.contract.project import cut_off, served
from tests.contract.test_overlap import HALF
from tests.run.project import Project, finished

TESTED = ("practice.do_eval=true", "practice.eval_strategy=steps", "practice.eval_steps=1")
SELECTED = "practice.select_dataset=pick"
OBJECTIVES = ("practice.agent_objective=Add.", "practice.learning_objective=Be exact.")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path / "p")
    with Store(made.db) as store:
        store.add_dataset("pick", questions(30, 0)[24:], origin="sim", replace=False)
    return made


def watched(events: Sequence[Event]) -> Tally:
    """Return the tally after the events; its share has not fallen on the way."""
    tally, share = Tally(), 0.0
    for event in events:
        tally.record(event)
        assert share <= tally.share <= 1.0
        share = tally.share
        assert tally.whole.done <= tally.whole.planned
        assert 0 <= tally.scoring <= tally.rollouts
    return tally


def ended(events: Sequence[Event]) -> Tally:
    """Return the tally of a command that has ended: nothing is under way."""
    tally = watched(events)
    assert (tally.rollouts, tally.scoring, tally.teacher) == (0, 0, [])
    return tally


def finishes(events: Sequence[Event]) -> Tally:
    """Return the tally of a command that has done all; its bar is full, and not before."""
    last = max(i for i, e in enumerate(events) if isinstance(e, RolloutFinished) and not e.stored)
    assert watched(events[:last]).share < 1.0
    tally = ended(events)
    assert (tally.whole.done, tally.share) == (tally.whole.planned, 1.0)
    return tally


@pytest.mark.long
async def test_steps_and_the_evaluations_on_the_way_are_one_bar(project: Project) -> None:
    await project.practise(*TESTED, SELECTED)
    tally = finishes(project.events)
    first = next(e for e in project.events if isinstance(e, RunStarted))
    # 4 steps of 18; 12 questions before and after each step; 6 of the start and of each step.
    assert (first.rollouts, first.evaluations) == (4 * 18, 5 * 12 + 5 * 6)
    assert tally.whole.planned == first.rollouts + first.evaluations


@pytest.mark.long
async def test_a_run_that_goes_on_tells_what_it_replays_from_what_is_new(project: Project) -> None:
    async with served() as endpoint:
        await cut_off(project.practise(*TESTED, endpoint.override()), endpoint, 70)
        ended(project.events)
        project.events.clear()
        await project.practise(*TESTED, endpoint.override())
    tally = finishes(project.events)
    played = [e for e in project.events if isinstance(e, RolloutFinished) and not e.stored]
    new = {
        (e.address.branch_id, e.address.step, e.address.slot, e.address.attempt)
        for e in project.events
        if isinstance(e, CallFinished) and not e.replayed and e.address.stage == "play"
    }
    assert tally.whole.played == len(played)
    assert tally.whole.replayed == len(played) - len(new)


@pytest.mark.long
async def test_a_run_that_is_done_is_a_full_bar_at_once(project: Project) -> None:
    await project.practise(*TESTED)
    project.events.clear()
    await project.practise(*TESTED)
    tally = watched(project.events)
    assert (tally.share, tally.whole.played) == (1.0, 0)


async def test_all_arms_are_one_bar(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    project.events.clear()  # those of the run before
    with Store(project.db) as store:
        request = ArmsRequest(("none", "full", "direct", "filler"), project.config, env={})
        await run_arms(prepare_arms(project.session(store), request))
    tally = finishes(project.events)
    assert (tally.whole.planned, tally.beside) == (4 * 12, 3)


async def test_a_measurement_of_experiences_is_one_bar(tmp_path: Path) -> None:
    measured = await measurable(tmp_path / "p")
    measured.upload("held", 24, 30)
    library = await measured.library(4)
    measured.events.clear()
    await measured.measure(library=library, k=4)
    tally = finishes(measured.events)
    assert tally.whole.planned == 6 * (4 + 1 + 1)


async def test_an_answer_is_scored_while_its_rollout_is_under_way(project: Project) -> None:
    await project.evaluate()
    scored = [e.address for e in project.events if isinstance(e, ScoringStarted)]
    assert len(set(scored)) == 12
    assert sorted(scored, key=str) == sorted(
        (e.address for e in project.events if isinstance(e, ScoringFinished)), key=str
    )


async def test_early_groups_fill_the_bar_of_their_step(project: Project) -> None:
    async with served() as endpoint:
        await cut_off(project.practise(HALF, endpoint.override()), endpoint, 60)
        project.events.clear()
        report = await project.practise(HALF, endpoint.override())
    finishes(project.events)
    tally, shown = Tally(), dict[int, float | None]()
    for event in project.events:
        tally.record(event)
        assert tally.part.done <= tally.part.planned
        if isinstance(event, StepFinished):
            assert tally.part.done == tally.part.planned
            shown[event.step] = tally.part.mean
    assert shown
    stats = {row.plan.step: row.stats or {} for row in report.steps}
    assert shown == {step: pytest.approx(stats[step]["mean_reward"]) for step in shown}


def test_an_evaluation_larger_than_announced_does_not_draw_the_bar_back() -> None:
    events: list[Event] = [RunStarted("toy", 1, 1, rollouts=10, done=0, evaluations=2)]
    for slot in range(10):
        events += [RolloutStarted("toy", 0, slot, 0)]
        events += [RolloutFinished("toy", 0, slot, 0, "ok", 1.0)]
    events += [RunStarted("toy/eval", 2, 1, rollouts=90, done=0)]
    tally = watched(events)
    assert (tally.whole.done, tally.whole.planned) == (10, 100)
    assert tally.share == pytest.approx(10 / 12)


async def test_a_request_that_is_tried_again_is_an_event_of_the_command(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry_wait, "_backoff", lambda state: 0.0)

    def overloaded(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (503, {"error": {"message": "overloaded"}}) if n == 1 else None

    async with served(overloaded) as endpoint:
        at = endpoint.override().removeprefix("evaluation.")
        await project.evaluate(at)
    (wait,) = [event for event in project.events if isinstance(event, RetryWaits)]
    assert (wait.status, wait.asked) == (503, False)
    finishes(project.events)
