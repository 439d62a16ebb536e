"""Runs in batches that are killed again and again pay for nothing twice."""

import asyncio
from pathlib import Path
from random import Random
from time import sleep

import pytest

from tests.contract.command import process
from tests.contract.endpoint.batches import BatchProcess
from tests.run.project import Project

MODEL = "evaluation.agent.model.model_provider"
KILLS = 20


@pytest.mark.long
def test_20_killed_commands_pay_for_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, alone, chance = Project(tmp_path / "killed"), Project(tmp_path / "alone"), Random(1)
    delays = {"upload_delay_s": 0.3, "create_delay_s": 0.3, "seconds": 0.3}
    monkeypatch.chdir(tmp_path)
    with BatchProcess(delays) as endpoint, BatchProcess() as other:
        words = [f"{MODEL}.base_url={endpoint.url}", f"{MODEL}.model=sim", f"{MODEL}.batch=true"]
        sets = [part for word in words for part in ("--set", word)]
        command = ["practice", "--config", str(project.config), "--db", str(project.db), *sets]
        for _ in range(KILLS):
            running = process(*command)
            # Between an upload and the reply about its batch, while it waits, and while it reads.
            seen, wanted = _seen(endpoint), chance.randint(1, 3)
            while running.poll() is None and _seen(endpoint) < seen + wanted:
                sleep(0.02)
            sleep(chance.uniform(0, 0.3))
            assert running.poll() is None, "it ended before all kills were made"
            running.kill()
            running.communicate()
        last = process(*command)
        last.communicate()
        assert last.returncode == 0
        stats = endpoint.stats()
        asyncio.run(alone.practise(f"{MODEL}.base_url={other.url}", f"{MODEL}.model=sim"))
    twice = [ids for row in stats["paid_twice"] if any(ids := row["custom_ids"])]
    assert twice == []
    assert project.results() == alone.results()
    assert project.wrong == []


def _seen(endpoint: BatchProcess) -> int:
    """Return how many requests were answered, and how many files and batches were made."""
    stats = endpoint.stats()
    return len(stats["requests"]) + len(stats["batches"])
