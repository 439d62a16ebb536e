"""A run that ends for a reason of its own waits for the answers that are under way."""

from pathlib import Path

import pytest

from grpo_practice.core.errors import EndpointRefusedError, RunFailedError
from grpo_practice.llm import admission
from tests.contract.endpoint.actions import Action, Asked, error, late, simulated, stall
from tests.contract.endpoint.server import FaultServer
from tests.run.project import Project

FAILED = "SELECT kind, http_status, maybe_paid FROM failures ORDER BY failure_id"
CALLS = "SELECT count(*) FROM calls"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


KEY = "agent.model.model_provider.api_key=one-that-was-revoked"


def at(server: FaultServer, key: str = "agent") -> str:
    return f"{key}.model.model_provider.base_url={server.url}"


async def test_1_13_a_refusal_does_not_cost_the_answers_under_way(project: Project) -> None:
    def revoked(asked: Asked) -> Action:
        return error(401, "revoked") if asked.n == 8 else late(0.5, simulated())

    async with FaultServer(revoked) as server:
        with pytest.raises(EndpointRefusedError, match="refused the API key"):
            await project.evaluate("concurrency=8", at(server), KEY)
    assert len(server.asked) == 8
    assert project.query(CALLS) == [(7,)]
    assert project.query(FAILED) == [("endpoint", 401, 0)]


async def test_too_many_failures_do_not_cost_the_answers_under_way(project: Project) -> None:
    def bad(asked: Asked) -> Action:
        return error(400, "no") if asked.n <= 8 else late(0.5, simulated())

    async with FaultServer(bad) as server:
        with pytest.raises(RunFailedError, match="max_failed_share"):
            await project.practise(
                "practice.rollout_concurrency=16", at(server, "evaluation.agent")
            )
    good = len(server.asked) - 8
    assert good >= 8
    assert project.query(CALLS) == [(good,)]


async def test_a_judge_that_refuses_does_not_cost_the_answers_under_way(project: Project) -> None:
    def judged(asked: Asked) -> Action:
        if asked.stage == "judge":
            return error(402, "no credit left")
        return simulated() if asked.n == 1 else late(0.5, simulated())

    async with FaultServer(judged) as server:
        with pytest.raises(EndpointRefusedError, match="no credit"):
            await project.evaluate("concurrency=6", "verify=judge", at(server))
    played = sum(asked.stage == "play" for asked in server.asked)
    assert played >= 6
    assert project.query(f"{CALLS} WHERE stage = 'play'") == [(played,)]


async def test_what_never_answers_is_not_waited_for_long(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "GRACE_S", 0.2)

    def silent(asked: Asked) -> Action:
        return error(401, "revoked") if asked.n == 3 else stall()

    async with FaultServer(silent) as server:
        with pytest.raises(EndpointRefusedError):
            await project.evaluate("concurrency=3", at(server))
    assert sorted(project.query(FAILED), key=str) == [
        ("cancelled", None, 1),
        ("cancelled", None, 1),
        ("endpoint", 401, 0),
    ]
