"""A small project against the simulated endpoint, through `Workspace`."""

import asyncio
import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from aiohttp import web

from grpo_practice import Workspace
from tests.contract.endpoint.simulated import respond, stage_of

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
_ROWS = Path(__file__).with_name("questions.jsonl").read_text("utf-8").splitlines()


def questions(n: int) -> list[dict[str, Any]]:
    """Return rows with `question`, `answer` and `source`, which the simulated model can answer."""
    assert n <= len(_ROWS)
    return [json.loads(row) for row in _ROWS[:n]]


@dataclass
class Project:
    """A folder with a database, two uploaded datasets and a config."""

    folder: Path
    events: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.db = self.folder / "p.db"
        self.config = self.folder / "c.yaml"
        self.config.write_text(CONFIG)
        self.fill()

    def fill(self) -> None:
        """Upload twelve questions to practise on and twelve to be tested on."""
        made = questions(24)
        for name, rows in (("train", made[:12]), ("test", made[12:])):
            Workspace(self.db).datasets.upload(name, rows)

    async def practise(self, *overrides: str, **options: Any) -> Any:
        """Practise under a config, the project's by default; `options` are of `Workspace`."""
        return await Workspace(self.db).practise_async(**self._given(overrides, options))

    async def evaluate(self, *overrides: str, **options: Any) -> Any:
        """Evaluate under a config, the project's by default; `options` are of `Workspace`."""
        return await Workspace(self.db).evaluate_async(**self._given(overrides, options))

    def _given(self, overrides: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
        pairs = (override.partition("=") for override in overrides)
        typed = {key: yaml.safe_load(value) for key, _, value in pairs}
        given = {"config": self.config, "env": {}, "on_event": self.events.append}
        return {**given, "overrides": typed, **options}

    @property
    def notices(self) -> list[str]:
        """Texts of the notices so far."""
        return [event.text for event in self.of_kind("Notice")]

    def of_kind(self, name: str) -> list[Any]:
        """Return the events of a kind so far."""
        return [event for event in self.events if type(event).__name__ == name]

    def count(self, table: str) -> int:
        """Return how many rows a table has."""
        return int(self.query(f"SELECT count(*) FROM {table}")[0][0])

    @property
    def wrong(self) -> list[str]:
        """What `db check` finds wrong."""
        return [text for found in Workspace(self.db).check().checks for text in found.wrong]

    def change(self, sql: str, *values: object) -> None:
        """Change the database, as another program could."""
        with closing(sqlite3.connect(self.db)) as db, db:
            db.execute(sql, values)

    def query(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a query on the project's database."""
        with closing(sqlite3.connect(self.db)) as db:
            return db.execute(sql, values).fetchall()

    def results(self, run: str = "toy") -> str:
        """Return a hash of each (step, slot, attempt, response, reward) and of every library."""
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


AnyProject = TypeVar("AnyProject", bound=Project)
_FINISHED: dict[tuple[object, ...], bytes] = {}
"""Databases of finished runs, by class of project and overrides."""


async def finished_by(kind: type[AnyProject], folder: Path, *overrides: str) -> AnyProject:
    """Return a project whose run under these overrides is done; it is played once per process."""
    project = kind(folder)
    if (kind, *overrides) in _FINISHED:
        project.db.write_bytes(_FINISHED[kind, *overrides])
    else:
        await project.practise(*overrides)
        _FINISHED[kind, *overrides] = project.db.read_bytes()
        project.events.clear()
    return project


finished = partial(finished_by, Project)


async def evaluated(folder: Path, *overrides: str) -> Project:
    """Return a project whose run and its evaluations are done; they are played once a process."""
    every = ("practice.do_eval=true", *overrides)
    project = await finished(folder, *every)
    if (*every, "eval") not in _FINISHED:
        await project.evaluate()
        _FINISHED[*every, "eval"] = project.db.read_bytes()
    project.db.write_bytes(_FINISHED[*every, "eval"])
    return project


async def cut_off(work: Coroutine[Any, Any, object], endpoint: "Served", after: int) -> None:
    """Cancel the work once the endpoint has been asked `after` times."""
    task = asyncio.create_task(work)
    await endpoint.asked(after)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@asynccontextmanager
async def running(
    begin: Callable[[Callable[[Any], None]], Coroutine[Any, Any, None]],
) -> AsyncIterator[Any]:
    """Run a server for the block and give what it passes to its `on_ready`, the argument."""
    ready = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(begin(ready.set_result))
    both: list[asyncio.Future[Any]] = [task, ready]
    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        await task
    try:
        yield ready.result()
    finally:
        task.cancel()
        await asyncio.wait([task])


def changed_keys(refusal: Any) -> list[str]:
    """Return the keys that an error names as changed."""
    return [change.key for change in refusal.diff]


DB = "grpo-practice.db"
"""The database of the current folder."""


def change(sql: str) -> None:
    """Change the database of the current folder, as another program could."""
    with closing(sqlite3.connect(DB)) as db, db:
        db.execute(sql)


Said = tuple[int, dict[str, Any]]
"""Status and body of an answer."""
Hook = Callable[[int, dict[str, Any]], Said | None]


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
        said = hook(n, body) or respond("/v1/chat/completions", content)
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
