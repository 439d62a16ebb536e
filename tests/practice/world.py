"""A run whose models answer when a test lets them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from grpo_practice.config.schema.runs import PracticeSettings
from grpo_practice.core.calls import Address, Chat, Message, Reply, Request, Scope
from grpo_practice.core.errors import (
    GrpoPracticeError,
)
from grpo_practice.core.events import (
    Event,
)
from grpo_practice.core.played import PlayedRollout
from grpo_practice.core.prompts.files import load_prompts
from grpo_practice.core.types import Library, PlannedStep, Sample, Verdict
from grpo_practice.llm.ledgered import AgentChat, Model, ledgered
from grpo_practice.practice.context import Practice
from grpo_practice.practice.loop import practise
from grpo_practice.practice.teacher import Teacher
from grpo_practice.rollout.agents.simple import play_simple
from grpo_practice.rollout.play import Player
from grpo_practice.store import Store, datasets, steps
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
    truth: bool = True
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
    _emitted: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
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

    def emit(self, event: Event) -> None:
        self.events.append(event)
        self._emitted.set()

    async def until_emitted(self, true: Callable[[], bool]) -> None:
        """Return once the events say so."""
        async with asyncio.timeout(PATIENCE_S):
            while not true():
                self._emitted.clear()
                await self._emitted.wait()

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
                        return ledgered(model, ledger, self.emit)(scope)

                    return opened

                def player(by: str) -> Player:
                    return Player(play_simple, chats(by), chats("judge"), self._verify, 0, 60.0)

                job = Practice(
                    branch=branch,
                    store=store,
                    emit=self.emit,
                    player=player("player"),
                    later=player("later"),
                    teacher=Teacher(
                        chats("teacher"), load_prompts(), None, None, self.truth, 1, 0, "Answer."
                    ),
                    settings=PracticeSettings(
                        rollout_concurrency=self.concurrency,
                        max_failed_share=self.max_failed_share,
                        overlap=self.overlap,
                    ),
                    drain=drained,
                    after_step=self._after,
                    page_tools=(),
                )
                await practise(job, store.read(steps.on_line, branch))

    async def _verify(
        self, sample: Sample, response: str, judge: Chat, rollout: PlayedRollout | None
    ) -> Verdict:
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


async def drained(error: GrpoPracticeError) -> None:
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
