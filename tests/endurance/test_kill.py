"""The kill test in small; `python -m tests.endurance.kill` is the whole of it."""

from pathlib import Path

import pytest

from tests.endurance.kill import UP_TO, torment


@pytest.mark.long
def test_1_61_killed_runs_end_as_one_that_was_left_alone(tmp_path: Path) -> None:
    tally = torment(tmp_path, kills=10, seed=1)
    assert tally.wrong == []
    assert {place: len(tally.costs[place]) for place in UP_TO} == dict.fromkeys(UP_TO, 2)
