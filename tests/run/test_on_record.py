"""What is on record of requests that ended without an answer, whatever ended them."""

import asyncio
from pathlib import Path

import pytest

from grpo_practice.core.errors import EndpointRefusedError
from tests.contract.endpoint.actions import Action, Asked, error, simulated, stall
from tests.contract.endpoint.server import FaultServer
from tests.run.project import Project

FAILURES = "SELECT kind, http_status, tries, maybe_paid, message FROM failures"
CALLS = "SELECT count(*) FROM calls"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


KEY = "agent.model.model_provider.api_key=one-that-was-revoked"


def at(server: FaultServer) -> str:
    return f"agent.model.model_provider.base_url={server.url}"


async def test_1_13_every_refused_request_is_on_record_and_what_was_answered_too(
    project: Project,
) -> None:
    def revoked(asked: Asked) -> Action:
        return simulated() if asked.n <= 5 else error(401, "revoked")

    async with FaultServer(revoked) as server:
        with pytest.raises(EndpointRefusedError):
            await project.evaluate("concurrency=4", at(server), KEY)
    answered, failed = project.query(CALLS)[0][0], project.query(FAILURES)
    assert answered + sum(tries for _, _, tries, _, _ in failed) == len(server.asked)
    refused = [row for row in failed if row[0] == "endpoint"]
    assert refused
    assert all((status, paid) == (401, 0) for _, status, _, paid, _ in refused)
    assert all("refused the API key" in message for *_, message in refused)


async def test_requests_that_a_cancellation_ends_are_on_record_and_do_not_delay_it(
    project: Project,
) -> None:
    def slow(asked: Asked) -> Action:
        return simulated() if asked.n <= 4 else stall()

    async with FaultServer(slow) as server:
        task = asyncio.create_task(project.evaluate("concurrency=3", at(server)))
        await server.was_asked(7)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert project.query(CALLS) == [(4,)]
    assert project.query(FAILURES) == [("cancelled", None, 1, 1, "it was cancelled")] * 3


async def test_those_that_were_never_sent_are_not_on_record(project: Project) -> None:
    async with FaultServer(lambda _: error(401, "no")) as server:
        with pytest.raises(EndpointRefusedError):
            await project.evaluate("concurrency=2", at(server))
    assert len(project.query(FAILURES)) == len(server.asked) <= 2
