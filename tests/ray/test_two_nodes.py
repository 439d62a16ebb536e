"""`executor: ray` on two machines: both play, and one that vanishes costs its rollouts only."""

import asyncio
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from grpo_practice.core.errors import ConfigError, RunFailedError
from tests.contract.certificates import certificate
from tests.contract.own import AGENT, FUNCTION, THREADS, keys
from tests.contract.own import asking as project
from tests.contract.project import Project, served
from tests.processes import until
from tests.ray.__main__ import DRIVER, OTHER

HEAD = f"{DRIVER}:6399"
RAY = str(Path(sys.executable).parent / "ray")
INSIDE = ["nsenter", "-n", "-t", os.environ.get("RAY_SPACE", "")]
NOTES = """
import ray.util
from pathlib import Path
_play = solve
def solve(question, system, context):
    Path("FOLDER", ray.util.get_node_ip_address()).touch()
    return _play(question, system, context)
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A head node here and one in the other namespace, two cores each, until the tests end."""
    folder = tmp_path_factory.mktemp("cluster")
    common = ["--block", "--num-cpus=2", "--disable-usage-stats"]
    head = ["start", "--head", f"--node-ip-address={DRIVER}", "--port=6399"]
    other = ["start", f"--address={HEAD}", f"--node-ip-address={OTHER}"]
    with (folder / "log").open("w") as log:
        first = subprocess.Popen(
            [RAY, *head, "--include-dashboard=false", *common], stdout=log, stderr=log
        )
        until(lambda: alive() >= 1, first)
        second = subprocess.Popen([*INSIDE, RAY, *other, *common], stdout=log, stderr=log)
        until(lambda: alive() >= 2, second)
        try:
            yield folder
        finally:
            for node in (second, first):
                node.terminate()
                node.wait()


def alive() -> int:
    """How many nodes the cluster has, asked from a process of its own."""
    code = (
        f"import ray; ray.init('{HEAD}', log_to_driver=False, logging_level='ERROR');"
        "print(sum(node['Alive'] for node in ray.nodes()))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    return int(ran.stdout.split()[-1]) if ran.returncode == 0 and ran.stdout.strip() else 0


def noting(made: Project) -> None:
    text = AGENT.partition("if __name__")[0] + NOTES.replace("FOLDER", str(made.folder))
    (made.folder / "mine.py").write_text(text, "utf-8")


def there(folder: Path) -> list[str]:
    """The configuration of an agent that plays on the cluster, and asks by TLS."""
    made = certificate(folder, DRIVER)
    trusted = f"{{env_vars: {{SSL_CERT_FILE: '{made.authority}'}}}}"
    return [
        *FUNCTION,
        "executor=ray",
        f"ray.address={HEAD}",
        f"ray.runtime_env={trusted}",
        f"proxy.host={DRIVER}",
        f"proxy.tls_cert={made.cert}",
        f"proxy.tls_key={made.key}",
    ]


async def test_both_nodes_play_and_the_results_are_those_of_threads(
    cluster: Path, tmp_path: Path
) -> None:
    here, far = project(tmp_path / "here"), project(tmp_path / "far")
    await here.practise(*keys(THREADS))
    noting(far)
    await far.practise(*keys(tuple(there(tmp_path))))
    assert far.results() == here.results()
    assert (far.folder / DRIVER).is_file()
    assert (far.folder / OTHER).is_file()


async def test_an_address_that_a_node_does_not_reach_is_said_before_anything_is_played(
    cluster: Path, tmp_path: Path
) -> None:
    made = project(tmp_path / "p")
    way = (*FUNCTION, "executor=ray", f"ray.address={HEAD}")
    with pytest.raises(ConfigError, match=rf"node {OTHER} cannot play: it does not reach http"):
        await made.practise(*keys(way))
    assert made.query("SELECT count(*) FROM calls") == [(0,)]


async def test_another_version_of_ray_is_said_with_that_of_the_cluster(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    of_cluster, made = ray.__version__, project(tmp_path / "p")
    way = keys((*FUNCTION, "executor=ray", f"ray.address={HEAD}"))
    for odd in ("2.0.1", "2.0.2"):  # twice in one process: the first leaves nothing behind
        monkeypatch.setattr(ray, "__version__", odd)
        with pytest.raises(ConfigError) as found:
            await made.practise(*way)
        said = str(found.value)
        assert f"Ray: {of_cluster}" in said
        assert f"Ray: {odd}" in said
        assert said.count(f"Python: {platform.python_version()}") == 2
    assert made.query("SELECT count(*) FROM calls") == [(0,)]


@contextmanager
def vanished() -> Iterator[None]:
    """Take the other machine off the network for the block."""
    link = [*INSIDE, "ip", "link", "set", "there"]
    subprocess.run([*link, "down"], check=True)
    try:
        yield
    finally:
        subprocess.run([*link, "up"], check=True)


WAITS = """
import time
_ask = ask
def ask(*given):
    answer = _ask(*given)
    Path("FOLDER", "asked").touch()
    while not Path("FOLDER", "go-on").exists():
        time.sleep(0.05)
    return answer
"""


async def test_a_node_that_vanishes_costs_its_rollouts_and_nothing_is_paid_twice(
    cluster: Path, tmp_path: Path
) -> None:
    made = project(tmp_path / "p")
    noting(made)
    path = made.folder / "mine.py"
    path.write_text(path.read_text() + WAITS.replace("FOLDER", str(made.folder)), "utf-8")
    words = [*keys(tuple(there(tmp_path))), "practice.task_timeout=20"]
    words += ["practice.max_failed_share=0.9", "practice.rollout_data_truncate=6"]
    async with served() as endpoint:
        key = endpoint.override()
        running = asyncio.create_task(made.practise(*words, key))
        await asyncio.to_thread(
            until, lambda: (made.folder / "asked").exists() and (made.folder / OTHER).is_file()
        )
        await asyncio.sleep(1)  # those that asked have their first reply
        with vanished():
            (made.folder / "go-on").touch()
            with suppress(RunFailedError):
                await running
            lost = made.query("SELECT count(*) FROM rollouts WHERE outcome <> 'ok'")
            assert lost[0][0] > 0
        await asyncio.to_thread(until, lambda: alive() == 2)
        await made.practise(*words, key)
    asked = [str(body) for body in endpoint.bodies]
    assert len(asked) - len(set(asked)) <= 2  # at most what was on its way on two cores
