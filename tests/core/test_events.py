"""How progress is told, and that it agrees with what is stored."""

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pytest

from grpo_practice.core import events
from grpo_practice.core.calls import Entry
from grpo_practice.core.errors import PausedError
from grpo_practice.core.events import (
    Aborted,
    BatchWaits,
    CallFinished,
    CallStarted,
    Event,
    Notice,
    RetryWaits,
    RolloutFinished,
    RolloutStarted,
    RunFinished,
    RunStarted,
    ToolFinished,
    WeightsUpdated,
    tee,
)
from grpo_practice.store import Store
from grpo_practice.store.ledger import SqlLedger
from tests.contract.project import served
from tests.fakes import cancelling
from tests.run.project import Project

ELSEWHERE = {Aborted, BatchWaits, Notice, RetryWaits, WeightsUpdated}
"""Events that a run of practice in which nothing goes wrong need not emit: other tests see them."""
OVERLAP = "practice.overlap=0.5"
ON_THE_WAY = ("practice.do_eval=true", "practice.eval_strategy=steps")
TOOLS = "evaluation.agent.toolkits={py: {name: python_executor, mode: builtin}}"


def test_a_sink_that_fails_harms_neither_the_others_nor_the_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(event: Event) -> None:
        raise ValueError("no screen")

    seen: list[Event] = []
    emit = tee(seen.append, broken, seen.append)
    with caplog.at_level(logging.DEBUG):
        emit(Notice("a"))
        emit(Notice("b"))
    assert seen == [Notice("a"), Notice("a"), Notice("b"), Notice("b")]
    assert "no screen" in caplog.text


def test_a_key_pressed_while_a_sink_runs_still_stops_the_run() -> None:
    def pressed(event: Event) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tee(pressed)(Notice("a"))


def key(event: Event) -> tuple[object, ...]:
    """What a `…Started` and its end have in common."""
    match event:
        case CallStarted() | CallFinished():
            return ("call", event.address, event.model)
        case RolloutStarted() | RolloutFinished():
            return ("rollout", event.run, event.step, event.slot, event.attempt)
        case RunStarted() | RunFinished():
            return ("run", event.run)
        case Aborted():
            return key(event.started)
        case _:
            raise AssertionError(event)


def unended(events: Sequence[Event]) -> Counter[tuple[object, ...]]:
    """What was started and not ended, or ended and not started; every end comes after its start."""
    open_ = Counter[tuple[object, ...]]()
    for event in events:
        match event:
            case CallStarted() | RolloutStarted() | RunStarted():
                open_[key(event)] += 1
            case RolloutFinished(stored=True):
                pass
            case CallFinished() | RolloutFinished() | RunFinished() | Aborted():
                assert open_[key(event)] > 0
                open_[key(event)] -= 1
            case _:
                pass
    return +open_


def agrees(project: Project) -> None:
    """Each stored call, tool call and rollout has its event, and no other has one."""
    made = Counter(
        (e.address.branch_id, e.address.step, e.address.slot, e.address.attempt, e.address.stage)
        for e in project.events
        if isinstance(e, CallFinished | ToolFinished) and not e.replayed
    )
    rows = project.query("SELECT branch_id, step, slot, attempt, stage FROM calls")
    assert made == Counter(rows)
    played = {
        (e.run, e.step, e.slot, e.attempt)
        for e in project.events
        if isinstance(e, RolloutFinished) and not e.stored
    }
    assert played == set(project.query("SELECT run_id, step, slot, attempt FROM v_rollouts"))
    assert not unended(project.events)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "p")


async def test_events_agree_with_what_is_stored(project: Project) -> None:
    await project.practise(OVERLAP, *ON_THE_WAY)
    agrees(project)
    runs = {e.run: e.error for e in project.events if isinstance(e, RunFinished)}
    assert set(runs.values()) == {None}
    assert runs.keys() == {row[0] for row in project.query("SELECT run_id FROM runs")}
    assert len(runs) > 1
    assert {e.model for e in project.events if isinstance(e, CallFinished)} == {"sim"}


async def test_a_run_that_goes_on_reports_what_it_replays_as_such(project: Project) -> None:
    async with served() as endpoint:
        task = asyncio.create_task(project.practise(endpoint.override()))
        await endpoint.asked(41)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await project.practise(endpoint.override())
    agrees(project)  # over both commands: nothing is counted twice
    assert any(e.replayed for e in project.events if isinstance(e, CallFinished))
    assert any(e.stored for e in project.events if isinstance(e, RolloutFinished))


async def test_a_run_scored_again_starts_and_finishes_its_rollouts(project: Project) -> None:
    await project.evaluate()
    project.events.clear()
    await project.evaluate(verify="contains")
    started = [e for e in project.events if isinstance(e, RolloutStarted)]
    assert len(started) == 12
    assert not unended(project.events)


@pytest.mark.long_after(2)
@pytest.mark.parametrize("after", [1, 7, 20, 41, 62])
async def test_events_agree_with_what_is_stored_though_the_run_is_cancelled(
    project: Project, after: int
) -> None:
    async with served() as endpoint:
        task = asyncio.create_task(project.practise(OVERLAP, *ON_THE_WAY, endpoint.override()))
        await endpoint.asked(after)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    agrees(project)
    assert any(isinstance(e, Aborted) for e in project.events)
    ends = [e for e in project.events if isinstance(e, RunFinished)]
    assert [e.error for e in ends if e.run == "toy"] == ["CancelledError"]


@pytest.mark.parametrize("stage", ["play", "propose"])
def test_a_cancellation_at_the_commit_of_a_call_loses_neither_the_row_nor_the_event(
    project: Project, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    put = SqlLedger.put
    cut = cancelling(put)

    async def chosen(self: SqlLedger, entry: Entry) -> int:
        return int(await (cut if entry.address.stage == stage else put)(self, entry))

    monkeypatch.setattr(SqlLedger, "put", chosen)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(project.practise(OVERLAP))
    assert project.query("SELECT 1 FROM calls WHERE stage = ?", stage)
    agrees(project)


def test_a_cancellation_at_the_commit_of_a_rollout_loses_neither_the_row_nor_the_event(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "save_rollout", cancelling(Store.save_rollout))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(project.practise(OVERLAP))
    agrees(project)


async def test_tool_calls_agree_with_what_is_stored(project: Project) -> None:
    await project.practise(TOOLS, "practice.epochs=1")
    assert any(isinstance(e, ToolFinished) for e in project.events)
    agrees(project)
    emitted = {type(event) for event in project.events}
    assert set(get_args(Event)) - emitted <= ELSEWHERE, "emit it, or name it in ELSEWHERE"


async def test_a_run_that_fails_or_pauses_says_so_at_its_end(tmp_path: Path) -> None:
    project = Project(tmp_path / "capped", max_requests=10)
    with pytest.raises(PausedError) as caught:
        await project.practise()
    agrees(project)
    (end,) = [e for e in project.events if isinstance(e, RunFinished)]
    assert end.error is not None
    assert str(caught.value) in end.error
    assert project.events[-1] == end


def test_every_event_is_in_the_union() -> None:
    kinds = {
        kind
        for _, kind in inspect.getmembers(events, inspect.isclass)
        if kind.__module__ == events.__name__
    }
    assert kinds == set(get_args(Event))
