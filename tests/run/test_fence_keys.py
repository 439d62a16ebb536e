"""The secret of a run's fences: made once, kept with the run, and nothing is paid twice for it."""

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import ConfigError, PausedError
from grpo_practice.core.fences import Fences
from grpo_practice.run import player
from grpo_practice.run.evaluation_run import run_eval
from grpo_practice.store import Store
from tests.run.project import Project

JUDGED = ("evaluation.verify=judge", "practice.epochs=1")
CALLS = (
    "SELECT step, slot, attempt, stage, hex(request_hash), nth FROM calls ORDER BY 1, 2, 3, 4, 5"
)


def keys(project: Project) -> list[tuple[str, bytes]]:
    return project.query("SELECT run_id, fence_key FROM branches ORDER BY branch_id")


async def test_a_run_has_a_key_of_its_own_and_goes_on_with_it(tmp_path: Path) -> None:
    project = Project(tmp_path, max_requests=75)
    with pytest.raises(PausedError):
        await project.practise(*JUDGED)
    made, before = keys(project), project.query(CALLS)
    with Store(project.db) as store:
        store._write(lambda db: db.execute("DELETE FROM verdicts WHERE rollout_id > 20").rowcount)
    project.max_requests = None
    report = await project.practise(*JUDGED)
    assert (report.requests.new, keys(project)) == (2, made)
    assert set(before) < set(project.query(CALLS))
    await project.evaluate("verify=judge")
    both = [key for _, key in keys(project)]
    assert len(set(both)) == 2
    assert {len(key) for key in both} == {32}


async def test_who_scores_a_run_again_asks_the_judge_what_the_run_has_asked(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path)
    with Store(project.db) as store:
        report = await run_eval(project.eval_job(store, "verify=judge"))
        store._write(lambda db: db.execute("DELETE FROM verdicts").rowcount)
        asked = {"verify": "judge", "run": report.run, "config": None}
        again = await run_eval(project.eval_job(store, rejudge=True, **asked))
    assert (again.requests.new, again.score.scored) == (0, 12)
    assert len({key for _, key in keys(project)}) == 1


async def test_a_restart_keeps_the_key(tmp_path: Path) -> None:
    project = Project(tmp_path)
    once = ("practice.epochs=1",)
    await project.practise(*once)
    await project.practise(*once, restart_step=1)
    (_, first), (_, second) = keys(project)
    assert first == second


async def test_what_tools_bring_from_the_web_has_the_fences_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[Fences]()

    async def opened(toolkit: Any, reader: Any, folder: Path, fences: Fences) -> Any:
        given.append(fences)
        raise ConfigError("seen")

    monkeypatch.setattr(player, "open_toolkit", opened)
    project = Project(tmp_path)
    kit = {
        "mode": "builtin",
        "name": "search",
        "config": {"search_url": "http://127.0.0.1:9", "crawl_engine": "local"},
    }
    with pytest.raises(ConfigError, match="seen"):
        await project.evaluate(f"agent.toolkits={json.dumps({'web': kit})}")
    ((_, key),) = keys(project)
    assert given == [Fences(key)]
