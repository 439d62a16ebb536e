"""The soak test, short: every rollout is accounted for on a bad day."""

from pathlib import Path

import pytest

from tests.endurance.soak import soak


@pytest.mark.long
def test_a_short_soak_adds_up(tmp_path: Path) -> None:
    done = soak(tmp_path, rollouts=80, concurrency=64, seed=1, timeout_s=0.5)
    assert done.problems() == []
    assert done.stats["requests"] > 80
    assert len(done.stats["by_answer"]) > 2
