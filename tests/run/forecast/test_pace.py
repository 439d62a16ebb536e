"""The time of a run follows from how many replies a server gave per second, not from each wait."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from grpo_practice.core.stages import STAGES
from grpo_practice.llm.reply_bound import ROOM
from grpo_practice.run.forecast.estimate import ASSUMED_SECONDS, Line
from grpo_practice.run.forecast.remaining_calls import forecast
from grpo_practice.store import Store
from grpo_practice.store.queries.pace import pace
from tests.run.forecast.test_estimate import ahead
from tests.run.project import Project

START = datetime(2026, 1, 1, tzinfo=UTC)
Spans = list[tuple[float, float]]
near = partial(pytest.approx, rel=1e-3)  # the ends of calls are stored in milliseconds


def serial(n: int, at_once: int) -> Spans:
    """One after the other, a second each, while as many as that are in flight."""
    return [(max(i + 1 - at_once, 0), i + 1) for i in range(n)]


def together(n: int, at_once: int) -> Spans:
    return [(i // at_once, i // at_once + 1) for i in range(n)]


def took(path: Path, spans: Spans, tokens_out: int = 20) -> None:
    """Let the stored calls have begun and ended then."""
    with closing(sqlite3.connect(path)) as db, db:
        ids = [row[0] for row in db.execute("SELECT call_id FROM calls ORDER BY call_id")]
        for call_id, (start, end) in zip(ids, spans, strict=True):
            at = (START + timedelta(seconds=end)).isoformat(timespec="milliseconds")
            db.execute(
                "UPDATE calls SET seconds = ?, created_at = ?, tokens_out = ? WHERE call_id = ?",
                (end - start, at, tokens_out, call_id),
            )


async def line(tmp_path: Path, spans: Spans, concurrency: int) -> Line:
    """Play 12 rollouts that took so long, and forecast 24 more."""
    project = Project(tmp_path)
    await project.evaluate()
    took(project.db, spans)
    with Store(project.db, "foresee") as store:
        job = project.eval_job(store, "pass_k=3", f"concurrency={concurrency}")
        (found,) = forecast(job).stages
    assert (found.calls, found.history) == ((24, 24), 12)
    return found


@pytest.mark.parametrize(
    ("spans", "concurrency", "low", "high"),
    [
        pytest.param(serial(12, 8), 8, 10, 45, id="serial"),
        pytest.param(serial(12, 8), 1, 10, 250, id="serial-now-one-at-a-time"),
        pytest.param(serial(12, 1), 1, 17.9, 30.1, id="serial-one-at-a-time"),
        pytest.param(serial(12, 1), 8, 2, 30.1, id="serial-and-now-eight-at-once"),
        pytest.param(together(12, 4), 4, 4, 8, id="four-together"),
    ],
)
async def test_the_range_contains_the_time_that_the_server_needs(
    tmp_path: Path, spans: Spans, concurrency: int, low: float, high: float
) -> None:
    found = await line(tmp_path, spans, concurrency)
    truth = 24 / len(spans) * max(end for _, end in spans)
    assert low <= found.seconds.low <= truth <= found.seconds.high <= high, (found.seconds, truth)


async def test_other_requests_to_the_same_server_share_its_time(tmp_path: Path) -> None:
    project = Project(tmp_path)
    await project.evaluate()
    took(project.db, serial(12, 4))
    with Store(project.db, "foresee") as store:
        whole, end = store.read(pace, "sim"), store.read(pace, "sim", 10, 12)
        assert whole is not None
        assert end is not None
        assert (whole.at_once, whole.token_s) == near(((1 + 2 + 3 + 9 * 4) / 12, 42 / 240))
        assert (end.at_once, end.token_s) == near((12 / 6, 12 / 60))
        assert store.read(pace, "another") is None
    with closing(sqlite3.connect(project.db)) as db, db:
        db.execute("UPDATE calls SET name = 'judge' WHERE call_id % 2")
        db.execute("UPDATE calls SET answered_by = 'x@elsewhere' WHERE call_id = 12")
    with Store(project.db, "foresee") as store:
        found = store.read(pace, "judge")
        assert found is not None
        assert found.at_once == near((1 + 2 + 3 + 8 * 4) / 11)


async def test_a_stage_without_calls_takes_the_speed_of_its_model(tmp_path: Path) -> None:
    project = Project(tmp_path)
    await project.evaluate()
    took(project.db, serial(12, 1), tokens_out=10)
    (compare,) = (x for x in ahead(project).stages if x.stage == "compare")
    assert compare.call_s == ASSUMED_SECONDS, "so short replies say nothing of the speed"
    took(project.db, serial(12, 1), tokens_out=20)
    (compare,) = (x for x in ahead(project).stages if x.stage == "compare")
    assert compare.call_s == near(tuple(n / 20 for n in STAGES["compare"].tokens_out))


def test_the_limit_of_a_reply_comes_with_its_source(tmp_path: Path) -> None:
    project = Project(tmp_path)
    teacher = "practice.teacher_model.model_provider.model=sim"
    agent = "evaluation.agent.model.model_settings.max_tokens"
    lines = {x.stage: x for x in ahead(project, teacher, f"{agent}=64").stages}
    play, compare = lines["play"], lines["compare"]
    assert (play.max_tokens, play.limit_key, play.limited_by) == (64, agent, "key")
    key = "practice.teacher_model.model_settings.max_tokens"
    default = ROOM * STAGES["compare"].tokens_out[1]
    assert (compare.max_tokens, compare.limit_key, compare.limited_by) == (default, key, "default")
    assert {x.limited_by for x in ahead(project).stages if x.stage == "play"} == {"nothing"}
