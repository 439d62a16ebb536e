"""The soak test, short: every rollout is accounted for on a bad day."""

from pathlib import Path

import pytest

from tests.contract.endpoint.scripts import FAULTS
from tests.endurance.soak import soak


@pytest.mark.long
def test_a_short_soak_adds_up(tmp_path: Path) -> None:
    done = soak(tmp_path, rollouts=800, concurrency=64, seed=1)
    assert done.problems() == []
    assert done.stats["by_answer"].keys() == {"ok", *FAULTS}
