"""A small project against the simulated endpoint, through the same functions the commands call."""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

from grpo_practice.app.evaluation_run import EvalJob, prepare_eval, run_eval
from grpo_practice.app.practice_run import PracticeJob, prepare_practice, run_practice
from grpo_practice.app.request import EvalRequest, PracticeRequest
from grpo_practice.app.session import Session
from grpo_practice.events import Event
from grpo_practice.llm.budget import NO_CAPS, Caps
from grpo_practice.llm.sim import respond
from grpo_practice.reports.run_reports import EvalReport, PracticeReport
from grpo_practice.sim import stage_of
from grpo_practice.sim.questions import questions
from grpo_practice.store import Store

CONFIG = """
exp_id: toy
practice: {epochs: 2, batch_size: 6, grpo_n: 3, rollout_concurrency: 8}
data: {practice_dataset_name: train}
evaluation:
  verify: math
  data: {dataset: test}
  agent:
    model: {model_provider: {model: sim}}
    agent: {name: solver, instructions: "Solve it. Put the answer in \\\\boxed{}."}
"""


@dataclass
class Project:
    """A folder with a database, two uploaded datasets and a config."""

    folder: Path
    events: list[Event] = field(default_factory=list)
    caps: Caps = NO_CAPS

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.db = self.folder / "p.db"
        self.config = self.folder / "c.yaml"
        self.config.write_text(CONFIG)
        samples = questions(24, 0)
        with Store(self.db) as store:
            store.add_dataset("train", samples[:12], origin="sim", replace=False)
            store.add_dataset("test", samples[12:], origin="sim", replace=False)

    def session(self, store: Store) -> Session:
        return Session(store, self.events.append, "test")

    def practice_job(self, store: Store, *overrides: str, **request: Any) -> PracticeJob:
        given = {"config": self.config, "env": {}, "caps": self.caps, **request}
        return prepare_practice(self.session(store), PracticeRequest(sets=overrides, **given))

    def eval_job(self, store: Store, *overrides: str, **request: Any) -> EvalJob:
        given = {"config": self.config, "env": {}, "caps": self.caps, **request}
        return prepare_eval(self.session(store), EvalRequest(sets=overrides, **given))

    async def practise(self, *overrides: str, **request: Any) -> PracticeReport:
        """Practise under the project's config; `request` as `PracticeRequest` has it."""
        with Store(self.db) as store:
            return await run_practice(self.practice_job(store, *overrides, **request))

    async def evaluate(self, *overrides: str, **request: Any) -> EvalReport:
        """Evaluate under the project's config; `request` as `EvalRequest` has it."""
        with Store(self.db) as store:
            return await run_eval(self.eval_job(store, *overrides, **request))

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        with Store(self.db) as store:
            return store.read(lambda db: [tuple(row) for row in db.execute(sql, values)])

    def results(self, run: str = "toy") -> str:
        """A hash over (step, slot, attempt, response, reward) and over every library."""
        rows = self.query(
            """SELECT r.step, r.slot, r.attempt, b.response, r.reward FROM v_rollouts r
                 JOIN rollout_bodies b USING (rollout_id) WHERE run_id = ? ORDER BY 1, 2, 3""",
            run,
        )
        libraries = self.query(
            """SELECT s.step, hex(l.sha256) FROM v_steps s JOIN libraries l
                 ON l.library_id = s.library_out WHERE s.run_id = ? ORDER BY 1""",
            run,
        )
        return hashlib.sha256(json.dumps([rows, libraries]).encode()).hexdigest()


_FINISHED: dict[tuple[str, ...], bytes] = {}
"""Databases of runs that are done, by the overrides they were made with."""


async def finished(folder: Path, *overrides: str) -> Project:
    """Return a project whose run under these overrides is done; it is played once per process."""
    project = Project(folder)
    if overrides in _FINISHED:
        project.db.write_bytes(_FINISHED[overrides])
    else:
        await project.practise(*overrides)
        _FINISHED[overrides] = project.db.read_bytes()
    return project


async def restarted(folder: Path) -> Project:
    """Return a run of four steps that was restarted at the third: its line has two segments."""
    project = await finished(folder)
    await project.practise(restart_step=2)
    return project


Hook = Callable[[int, dict[str, Any]], tuple[int, dict[str, Any]] | None]


@dataclass
class Served:
    """The simulated endpoint over HTTP, counting; `hook` may answer in its place."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    queries: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    open: Counter[str] = field(default_factory=Counter)
    """Stage → requests under way."""
    gate: asyncio.Event | None = None
    """Event that every answer waits for."""
    most_open: Counter[str] = field(default_factory=Counter)

    @property
    def by_stage(self) -> dict[str, int]:
        stages = [stage_of(body) for body in self.bodies]
        return {stage: stages.count(stage) for stage in sorted(set(stages))}

    async def asked(self, times: int) -> None:
        """Return once it has been asked so often."""
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.bodies) >= times)

    def override(self) -> str:
        return f"evaluation.agent.model.model_provider.base_url={self.url}"


@asynccontextmanager
async def served(hook: Hook = lambda n, body: None) -> AsyncIterator[Served]:
    """Serve while the block runs. `hook(n, body)` sees the n-th request, from 1."""
    seen = Served()

    async def reply(request: web.Request) -> web.Response:
        content = await request.read()
        body = json.loads(content)
        async with seen.changed:
            seen.bodies.append(body)
            seen.headers.append({k.lower(): v for k, v in request.headers.items()})
            seen.queries.append(dict(request.query))
            seen.paths.append(request.path)
            seen.changed.notify_all()
            n = len(seen.bodies)
        stage = stage_of(body)
        seen.open[stage] += 1
        seen.most_open |= seen.open
        await asyncio.sleep(0.001)
        if seen.gate is not None:
            await seen.gate.wait()
        seen.open[stage] -= 1
        said = hook(n, body) or respond("POST", "/v1/chat/completions", content)
        return web.json_response(said[1], status=said[0])

    app = web.Application()
    # A gateway serves one model below each path.
    app.router.add_post("/{deployment:.*}/chat/completions", reply)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    seen.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    try:
        yield seen
    finally:
        await runner.cleanup()
