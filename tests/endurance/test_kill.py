"""The kill test in small; `python -m tests.endurance.kill` is the whole of it."""

from pathlib import Path

import pytest

from tests.endurance.cases import CASES, UP_TO
from tests.endurance.kill import torment


@pytest.mark.long
def test_1_61_killed_runs_end_as_one_that_was_left_alone(tmp_path: Path) -> None:
    tally = torment(tmp_path, kills=10, seed=1)
    assert tally.wrong == []
    assert {place: len(tally.costs[place]) for place in UP_TO} == dict.fromkeys(UP_TO, 2)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in CASES if name != "practice"])
def test_killed_commands_end_as_those_that_were_left_alone(tmp_path: Path, name: str) -> None:
    tally = torment(tmp_path, kills=3, seed=1, case=CASES[name])
    assert (tally.kills, tally.wrong) == (3, [])
