"""A practice run on a bad day comes to what it would have come to on a good one."""

from pathlib import Path
from random import Random

import pytest

from tests.contract.endpoint.actions import Action, Asked, simulated
from tests.contract.endpoint.scripts import FAULTS
from tests.contract.endpoint.server import FaultServer
from tests.fakes import FakeSleep
from tests.run.project import Project

OTHER = ("gzip bomb", "1 MB", "empty")
"""Faults that change what a rollout comes to."""
LOST = [action for kind, actions in FAULTS.items() if kind not in OTHER for action in actions]
"""Faults that say nothing, or nothing else than the answer."""
SHORT = "evaluation.agent.model.model_settings.extra_args.timeout=1.5"


@pytest.mark.long
async def test_faults_that_are_retried_away_change_no_result(
    tmp_path: Path, waits: FakeSleep
) -> None:
    draw = Random(0)

    def script(_: Asked) -> Action:
        return draw.choice(LOST) if draw.random() < 0.2 else simulated()

    calm, stormy = Project(tmp_path / "calm"), Project(tmp_path / "stormy")
    await calm.practise()
    async with FaultServer(script) as server:
        url = f"evaluation.agent.model.model_provider.base_url={server.url}"
        report = await stormy.practise(url, SHORT)
    assert stormy.results() == calm.results()
    assert report.merge_failed == []
    assert stormy.query("SELECT count(*) FROM failures") == [(0,)]
    ((calls, tries),) = stormy.query("SELECT count(*), sum(tries) FROM calls")
    assert calls == calm.query("SELECT count(*) FROM calls")[0][0]
    assert tries == len(server.asked) > calls
