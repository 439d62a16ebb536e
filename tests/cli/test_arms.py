"""`eval --arms` that is killed."""

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.cli.test_run_commands import SERVER, Shell, shell
from tests.contract.test_arms import results
from tests.processes import until

__all__ = ["shell"]


@pytest.fixture
def url() -> Iterator[str]:
    """The simulated endpoint, as a process of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        server.kill()


@pytest.mark.long
def test_killed_arms_ask_only_what_was_under_way(shell: Shell, url: str) -> None:
    endpoint = f"evaluation.agent.model.model_provider.base_url={url}"
    shell.type("practice", "--config", "math.yaml", "--set", endpoint)
    words = ["eval", "--arms", "none,full,aa,filler", "-k", "4"]
    calls = (
        "SELECT count(*) FROM calls JOIN branches USING (branch_id) WHERE run_id LIKE 'toy/eval%'"
    )
    with shell.start(*words, "--set", "concurrency=4") as process:
        sql = "SELECT count(*) >= 60 FROM rollouts JOIN branches USING (branch_id)"
        until(lambda: shell.query(f"{sql} WHERE run_id LIKE 'toy/eval%'")[0][0], process)
        process.send_signal(signal.SIGKILL)
    ((answered,),) = shell.query(calls)
    ahead = shell.json(*words, "--dry-run")["total"]["calls"][0]
    done = shell.json(*words)
    ((in_all,),) = shell.query(calls)
    assert 60 <= answered < in_all == 4 * 12 * 4
    assert in_all - answered <= ahead <= in_all - answered + 4
    assert results(done) == results(shell.json(*words, "--again"))
