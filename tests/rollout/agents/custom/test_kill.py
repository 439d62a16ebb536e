"""Runs with an agent of the user's own that are killed, capped, and gone on with."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.contract.own import AGENT
from tests.endurance.kill import Endpoint, Run, endpoint
from tests.processes import HANG_S, program, until

CONFIG = """
exp_id: own
practice: {epochs: 1, batch_size: 2, grpo_n: 4, rollout_concurrency: 8, rollout_data_truncate: 4}
data: {practice_dataset_name: train}
evaluation:
  verify: math
  data: {dataset: train}
  agent:
    AGENT
    model: {model_provider: {model: sim}}
    agent: {name: solver, instructions: "Solve it. Put the answer in \\\\boxed{}."}
"""
KINDS = {
    "python": "{type: python, function: agent.py:solve}",
    "command": "{type: command, command: [PYTHON, agent.py]}".replace("PYTHON", sys.executable),
}


def run(folder: Path, server: Endpoint, kind: str) -> Run:
    made = Run(folder, server)
    chosen = KINDS[kind].strip("{}").replace(", ", "\n    ", 1)
    (folder / "c.yaml").write_text(CONFIG.replace("AGENT", chosen), "utf-8")
    (folder / "agent.py").write_text(AGENT, "utf-8")
    return made


def log(run: Run) -> str:
    return (run.folder / "log").read_text("utf-8")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """Requests and results of a run that nobody kills."""
    with endpoint() as server:
        made = run(tmp_path_factory.mktemp("whole") / "run", server, "python")
        assert made.practise() == 0, log(made)
        return server.get("stats"), made.results()


@pytest.mark.long
@pytest.mark.parametrize(("kind", "places"), [("python", (5, 16, 40)), ("command", (16,))])
def test_1_61_a_kill_in_the_middle_costs_what_was_on_its_way(
    kind: str, places: tuple[int, ...], whole: tuple[dict[str, Any], str], tmp_path: Path
) -> None:
    asked, expected = whole
    assert asked["received"] == asked["different"]
    assert asked["stages"]["play"] == 4 * 4 * 3
    with endpoint() as server:
        killed, lost = run(tmp_path / "killed", server, kind), 0
        for n in places:
            before = lost
            assert killed.practise("rollouts", n) == -9, log(killed)
            _, lost = killed.lost()
            assert lost - before <= 8  # requests that were under way
        assert killed.practise() == 0, log(killed)
        now = server.get("stats")
    assert killed.results() == expected
    assert now["different"] == asked["different"]
    twice = now["received"] - now["different"]
    sys.stdout.write(
        f"{kind}: {len(places)} kills, {lost} replies lost, {twice} requests paid twice\n"
    )
    assert twice <= lost
    assert not killed.wrong()
    assert "could not be used" not in log(killed)


@pytest.mark.long
def test_a_cap_pauses_a_run_with_an_agent_of_ones_own(tmp_path: Path) -> None:
    with endpoint() as server:
        mine = run(tmp_path / "run", server, "python")
        base = f"evaluation.agent.model.model_provider.base_url={server.root}/v1"
        # A process of its own: a thread of the agent's that is cut off leaves its socket open.
        words = ["-m", "grpo_practice", "eval", "--config", "c.yaml", "--set", base]
        assert mine.type(*words, "--max-requests", "20") == 6, log(mine)
        assert server.get("stats")["received"] == 20
        assert mine.type(*words) == 0, log(mine)
        assert server.get("stats") == server.get("stats") | {"received": 54, "different": 54}
    outcomes = mine.query("SELECT outcome, count(*) FROM rollouts GROUP BY 1")
    assert outcomes == [("ok", 18)]


LINGERS = """
import os, sys, time
from pathlib import Path
from typing import Any
Path(f"pid-{os.getpid()}").touch()
time.sleep(1000)
"""


@pytest.mark.long
def test_1_62_ctrl_c_leaves_no_process_behind(tmp_path: Path) -> None:
    with endpoint() as server:
        mine = run(tmp_path / "run", server, "command")
        (mine.folder / "agent.py").write_text(LINGERS, "utf-8")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("UTU_", "OPENAI_"))}
        with subprocess.Popen(
            program("eval", "--config", "c.yaml", "--set", "evaluation.agent.concurrency=8"),
            cwd=mine.folder,
            env=env | {"PYTHONPATH": str(Path("src").resolve())},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            until(lambda: len(list(mine.folder.glob("pid-*"))) >= 8, process)
            process.send_signal(signal.SIGINT)
            _, told = process.communicate(timeout=HANG_S)
        assert process.returncode == 130, told.decode()
    for path in mine.folder.glob("pid-*"):
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.name.removeprefix("pid-")), 0)
