"""The same rollouts make the same update: on one rank or two, with idle groups or without."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.train.real import RealProject, environment

pytest.importorskip("trl")
pytestmark = [pytest.mark.slow]
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> RealProject:
    return RealProject(tmp_path_factory.mktemp("equal"))


def weights(project: RealProject, *sets: str, ranks: int = 1) -> dict[str, Any]:
    """The adapter after three steps of made-up answers."""
    from safetensors.numpy import load_file

    start = [sys.executable]
    if ranks > 1:
        start += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    done = subprocess.run(
        [*start, "-m", "tests.train.driver", str(project.folder), *sets],
        cwd=ROOT,
        env={**environment(), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = Path(done.stdout.strip().splitlines()[-1])
    return dict(load_file(made / "adapter_model.safetensors"))


def apart(one: dict[str, Any], two: dict[str, Any]) -> float:
    """The largest difference of two adapters, relative to the largest weight."""
    assert one.keys() == two.keys()
    most = max(abs(value).max() for value in one.values())
    return float(max(abs(one[key] - two[key]).max() for key in one) / most)


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo"])
def test_two_ranks_come_to_the_weights_of_one(project: RealProject, loss: str) -> None:
    sets = (f"train.loss={loss}",)
    assert apart(weights(project, *sets), weights(project, *sets, ranks=2)) < 1e-4


@pytest.mark.parametrize("loss", ["grpo", "dr_grpo", "dapo", "cispo"])
def test_groups_without_a_lesson_change_nothing_when_they_are_left_out(
    project: RealProject, loss: str
) -> None:
    sets = (f"train.loss={loss}", "train.clip=[0.2, 5.0]", "train.memory=low")
    idle = weights(project, *sets)  # in batches of one, so that many are left out
    assert apart(idle, weights(project, *sets, "train.skip_uniform=false")) < 1e-4


@pytest.mark.parametrize("loss", ["dapo", "bnpo"])
@pytest.mark.parametrize("other", ["train.memory=low", "train.skip_uniform=false"])
def test_what_only_saves_memory_or_time_changes_no_weights(
    project: RealProject, loss: str, other: str
) -> None:
    sets = (f"train.loss={loss}",)
    assert apart(weights(project, *sets), weights(project, *sets, other)) < 1e-4


def test_other_rewards_make_other_weights(project: RealProject) -> None:
    other = "train.scale_rewards=none"
    assert apart(weights(project), weights(project, other)) > 1e-3
