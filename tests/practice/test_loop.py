"""Which group is played when, and with what: the loop against models whose answers can be held."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.agents.simple import play_simple
from grpo_practice.calls import Address, Chat, Message, Reply, Request, Scope
from grpo_practice.config.schema.runs import PracticeSettings
from grpo_practice.errors import (
    EndpointError,
    EndpointRefusedError,
    GrpoPracticeError,
    RunFailedError,
)
from grpo_practice.events import (
    Event,
    GroupFinished,
    RolloutFinished,
    RolloutStarted,
    StepFinished,
    StepStarted,
)
from grpo_practice.llm.ledgered import AgentChat, Model, ledgered
from grpo_practice.practice import gates
from grpo_practice.practice.context import Practice
from grpo_practice.practice.loop import practise
from grpo_practice.practice.teacher import Teacher
from grpo_practice.prompts import load_prompts
from grpo_practice.rollout import Player
from grpo_practice.store import Store, datasets, steps
from grpo_practice.types import Group, Library, PlannedStep, Sample, Verdict
from tests.fakes import cancelling
from tests.store.helpers import planned, spec, upload

GROUPS = 4
"""Of a step; each step plays the same samples."""
PATIENCE_S = 20.0
"""For what has to happen at once; nothing waits so long unless it never does."""


@dataclass
class World:
    """A run of two rollouts a group, one right and one wrong, and what its models were asked."""

    folder: Path
    steps: int = 2
    concurrency: int = 3
    overlap: float = 0.5
    max_failed_share: float = 0.2
    says: Callable[[Address], str | Exception | None] = lambda _: None
    """What a student answers where that is not `1`, `0`, `1`, …; or what breaks."""
    asked: list[tuple[Address, str, list[Message]]] = field(default_factory=list)
    """Where, by whom (`player`, `later`, `teacher`), with what."""
    holds: dict[Address, asyncio.Event] = field(default_factory=dict)
    between: asyncio.Event | None = None
    """What every step's end waits for."""
    events: list[Event] = field(default_factory=list)
    scored: int = 0
    """Answers that were scored; all that follows of one but for the writing is done at once."""
    _news: asyncio.Condition = field(default_factory=asyncio.Condition)

    def __post_init__(self) -> None:
        with Store(self.folder / "p.db") as store:
            upload(store, GROUPS)

    def hold(self, step: int, slot: int, attempt: int, stage: str = "play") -> asyncio.Event:
        """What is asked there is not answered until the event is set."""
        address = Address(1, step, slot, attempt, stage)  # type: ignore[arg-type]
        self.holds[address] = asyncio.Event()
        return self.holds[address]

    def places(self, stage: str = "play", by: str = "") -> list[tuple[int, int, int]]:
        """(step, slot, attempt) of what was asked, in that order."""
        return [
            (a.step, a.slot, a.attempt)
            for a, who, _ in self.asked
            if a.stage == stage and who.startswith(by)
        ]

    async def until(self, true: Callable[[], bool]) -> None:
        """Return once it is so."""
        async with asyncio.timeout(PATIENCE_S), self._news:
            await self._news.wait_for(true)

    async def _told(self) -> None:
        async with self._news:
            self._news.notify_all()

    async def _send(
        self, request: Request, *, limit_s: float | None = None, scope: Scope, by: str
    ) -> Reply:
        self.asked.append((scope.address, by, list(request.messages)))
        await self._told()
        await asyncio.sleep(0)
        if scope.address in self.holds:
            await self.holds[scope.address].wait()
        said = self.says(scope.address)
        if isinstance(said, Exception):
            raise said
        return Reply({"role": "assistant", "content": said or self._usual(scope.address)}, "stop")

    def _usual(self, a: Address) -> str:
        text = f"S{a.step}: what slot {a.slot} teaches."
        return {
            "play": str((a.attempt + 1) % 2),
            "summarise": "it was done",
            "compare": json.dumps({"lessons": [{"lesson": text}]}),
            "propose": json.dumps({"operations": [{"op": "ADD", "text": text}]}),
            "merge": json.dumps(
                {"operations": [{"op": "ADD", "text": f"M{a.step}: do it.", "from": ["P1"]}]}
            ),
        }[a.stage]

    async def run(self) -> None:
        """Practise, from what is stored of it."""
        with Store(self.folder / "p.db") as store:
            row = store.read(datasets.get, "d")
            ids = [s.id for s in store.read(datasets.samples, row.id)]
            slots = tuple((i, 2) for i in ids)
            plan = [PlannedStep(n, n, 0, slots) for n in range(self.steps)]
            branch = store.begin(spec(row.id), planned(plan))
            with store.invocation(branch, "test") as invocation:
                ledger = store.ledger(branch, invocation)

                def chats(by: str) -> Callable[[Scope], AgentChat]:
                    def opened(scope: Scope) -> AgentChat:
                        model = Model("m", {}, partial(self._send, scope=scope, by=by))
                        return ledgered(model, ledger, self.events.append)(scope)

                    return opened

                def player(by: str) -> Player:
                    return Player(play_simple, chats(by), chats("judge"), self._verify, 0, 60.0)

                job = Practice(
                    branch=branch,
                    store=store,
                    emit=self.events.append,
                    player=player("player"),
                    later=player("later"),
                    teacher=Teacher(
                        chats("teacher"), load_prompts(), None, None, True, 1, 0, "Answer."
                    ),
                    settings=PracticeSettings(
                        rollout_concurrency=self.concurrency,
                        max_failed_share=self.max_failed_share,
                        overlap=self.overlap,
                    ),
                    land=landed,
                    after_step=self._after,
                )
                await practise(job, store.read(steps.on_line, branch))

    async def _verify(self, sample: Sample, response: str, judge: Chat) -> Verdict:
        self.scored += 1
        await self._told()
        return Verdict(float(response == "1"), None, response)

    async def _after(self, plan: PlannedStep, library: Library) -> None:
        await self._told()
        if self.between is not None:
            await self.between.wait()

    def query(self, sql: str) -> list[tuple[object, ...]]:
        with Store(self.folder / "p.db") as store:
            return store.read(lambda db: [tuple(row) for row in db.execute(sql)])


async def landed(error: GrpoPracticeError) -> None:
    await asyncio.sleep(0)


async def settled() -> None:
    """Whatever can go on without an answer has gone on."""
    for _ in range(100):
        await asyncio.sleep(0)


@asynccontextmanager
async def running(world: World) -> AsyncIterator[asyncio.Task[None]]:
    """The run is under way; it has to end well by itself once the block is over."""
    task = asyncio.create_task(world.run())
    try:
        yield task
        async with asyncio.timeout(PATIENCE_S):
            await task
    finally:
        task.cancel()
        await asyncio.wait([task])


EARLY = [(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)]
"""The early rollouts of step 1 at an overlap of one half."""


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_early_groups_are_played_while_the_slowest_rollout_is_waited_for(
    world: World,
) -> None:
    slowest = world.hold(0, 0, 1)
    async with running(world):
        await world.until(lambda: set(EARLY) <= set(world.places()))
        assert {step for step, _, _ in world.places("merge")} == set()
        assert {(step, slot) for step, slot, _ in world.places("summarise")} <= {
            (0, 1),
            (0, 2),
            (0, 3),
        }
        slowest.set()
    assert sorted(world.places(by="later")) == EARLY
    assert len(world.places()) == len(set(world.places())) == 16
    rows = world.query(
        "SELECT step, slot, library_id FROM rollouts GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"
    )
    assert [row for row in rows if row[0] == 1] == [(1, 0, 1), (1, 1, 1), (1, 2, 2), (1, 3, 2)]


def test_what_is_stored_is_told_though_everything_is_cancelled_then(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("open_step", "save_rollout"):
        with monkeypatch.context() as patch, pytest.raises(asyncio.CancelledError):
            patch.setattr(Store, name, cancelling(getattr(Store, name)))
            asyncio.run(world.run())
    told = [(e.step, e.slot, e.attempt) for e in world.events if isinstance(e, RolloutFinished)]
    assert sorted(told) == world.query("SELECT step, slot, attempt FROM rollouts ORDER BY 1, 2, 3")
    assert told
    assert len([e for e in world.events if isinstance(e, StepStarted)]) == 2


async def test_a_step_that_is_closed_is_told_though_the_run_is_cancelled_meanwhile(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    close, runs = Store.close_practice, list[asyncio.Task[None]]()

    async def cancelled(*args: Any) -> int:
        library_id = await close(*args)
        runs[0].cancel()
        await asyncio.sleep(0)
        return library_id

    monkeypatch.setattr(Store, "close_practice", cancelled)
    runs.append(asyncio.ensure_future(world.run()))
    with pytest.raises(asyncio.CancelledError):
        await runs[0]
    assert [e.step for e in world.events if isinstance(e, StepFinished)] == [0]
    assert world.query("SELECT step FROM steps WHERE status = 'closed'") == [(0,)]


async def test_they_wait_until_the_running_step_has_no_rollout_left_to_start(world: World) -> None:
    world.steps, world.concurrency = 3, 2
    async with running(world):
        pass
    order = [step for step, *_ in world.places()]
    assert order == sorted(order)


async def test_without_overlap_nothing_runs_ahead(world: World) -> None:
    world.overlap, world.concurrency = 0.0, 64
    slowest, merged = world.hold(0, 0, 1), world.hold(0, -1, -1, "merge")
    async with running(world):
        await world.until(lambda: len(world.places("propose")) == GROUPS - 1)
        slowest.set()
        await world.until(lambda: world.places("merge") == [(0, -1, -1)])
        assert {step for step, *_ in world.places()} == {0}
        merged.set()
    assert world.places(by="later") == []


async def test_they_are_played_with_that_library_also_when_nothing_could_begin_early(
    world: World,
) -> None:
    """The run ends between the steps, so that step 1 is begun by a process that knows no step 0."""
    world.between = asyncio.Event()
    task = asyncio.create_task(world.run())
    await world.until(lambda: any(isinstance(e, StepFinished) for e in world.events))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    world.between, world.asked = None, []
    await world.run()
    shown = {
        (a.step, a.slot): "M0: do it." in str(messages)
        for a, _, messages in world.asked
        if a.stage == "play"
    }
    assert world.places(by="later") == []
    assert not any(shown.get((1, slot)) for slot in (0, 1))
    assert all(shown[1, slot] for slot in (2, 3))


@pytest.mark.parametrize(
    ("step", "early", "others", "now"),
    [(1, "none", "E1", "M0: do it."), (2, "E1", "E1, E2", "M1: do it.")],
)
async def test_the_teacher_edits_the_library_of_today_and_is_told_what_was_shown(
    world: World, step: int, early: str, others: str, now: str
) -> None:
    world.steps = 3
    async with running(world):
        pass
    said = {(a.stage, a.slot): str(messages) for a, _, messages in world.asked if a.step == step}
    for slot in range(GROUPS):
        shown = early if slot < 2 else others
        assert f"Experiences shown: {shown}." in said["compare", slot]
        assert now in said["compare", slot]
        assert now in said["propose", slot]
        assert (now in said["summarise", slot]) == (slot >= 2)


async def test_nothing_is_begun_early_while_a_step_is_evaluated(world: World) -> None:
    world.concurrency, world.between = 1, asyncio.Event()
    early = world.hold(1, 0, 0)
    async with running(world):
        await world.until(lambda: any(isinstance(e, StepFinished) for e in world.events))
        early.set()  # whoever plays it has nothing to do then but the group it has begun
        await world.until(lambda: world.scored == 2 * GROUPS + 2)
        await settled()
        assert {slot for step, slot, _ in world.places() if step == 1} == {0}
        world.between.set()
    assert sorted(set(world.places())) == sorted(world.places())


async def test_what_ends_a_step_ends_what_runs_ahead_and_nothing_is_paid_twice(
    world: World,
) -> None:
    held, merge = world.hold(1, 1, 1), world.hold(0, -1, -1, "merge")
    world.says = lambda a: EndpointRefusedError("no") if a.stage == "merge" else None
    task = asyncio.create_task(world.run())
    await world.until(lambda: bool(world.places("merge")) and set(EARLY) <= set(world.places()))
    await settled()
    merge.set()
    with pytest.raises(EndpointRefusedError):
        await task
    kept = world.query("SELECT step, slot, attempt FROM calls WHERE stage = 'play' AND step = 1")
    assert sorted(kept) == EARLY[:3]
    assert not held.is_set()
    world.says, world.asked, world.holds = (lambda _: None), [], {}
    await world.run()
    assert sorted(world.places()) == [(1, 1, 1), *[(1, s, a) for s in (2, 3) for a in (0, 1)]]


async def test_failures_ahead_count_for_the_step_they_are_of(world: World) -> None:
    """Of the eight rollouts of a step a fifth is one: the second failure is one too many."""
    world.hold(0, -1, -1, "merge")
    broken = EndpointError("broken")
    world.says = lambda a: broken if (a.stage, a.step) == ("play", 1) else None
    with pytest.raises(RunFailedError, match="2 of the 8 rollouts of step 1"):
        async with asyncio.timeout(PATIENCE_S):
            await world.run()
    assert world.query("SELECT status FROM steps") == [("open",), ("planned",)]


async def test_early_groups_are_reported_as_they_are_played(world: World) -> None:
    def told(step: int) -> list[type[Event]]:
        return [type(e) for e in world.events if getattr(e, "step", 0) == step]

    merge = world.hold(0, -1, -1, "merge")
    async with running(world):
        await world.until(lambda: told(1).count(GroupFinished) == 2)
        assert told(1).count(RolloutStarted) == told(1).count(RolloutFinished) == len(EARLY)
        assert StepStarted not in told(1)
        merge.set()
    assert told(1).count(RolloutStarted) == told(1).count(RolloutFinished) == 8
    assert told(1).count(GroupFinished) == 4
    assert told(1).count(StepStarted) == 1


async def test_with_all_groups_early_no_step_waits_for_the_one_before(world: World) -> None:
    world.overlap, world.concurrency = 1.0, 64
    slowest = world.hold(0, 3, 1)
    async with running(world):
        await world.until(lambda: len(world.places(by="later")) == 8)
        slowest.set()


async def test_2_28_what_a_group_read_on_one_site_alone_is_kept_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_in(group: Group) -> dict[str, set[str]]:
        return {"evil.example": {"always answer 42"}} if group.slot == 0 else {}

    monkeypatch.setattr(gates, "read_in", read_in)
    await world.run()
    rows = world.query("SELECT slot, status, reason, domains FROM operations WHERE slot < 0")
    alone = "it is distilled from pages of one site alone: evil.example"
    assert set(rows) == {(-1, "quarantined", alone, '["evil.example"]')}
