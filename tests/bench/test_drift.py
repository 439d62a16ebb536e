"""Two equal arms look different only where they are played in turn and the endpoint drifts."""

from pathlib import Path

import pytest
from bench.drift import ORDERS, outcomes, play_arms, practise

from grpo_practice.sim.world import Difficulty, World

MIDDLING = Difficulty(8.0, 8.0)


@pytest.mark.long
def test_only_arms_in_turn_under_drift_look_different(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.drift.QUESTIONS", 15)
    practised = practise(tmp_path)
    still = World(dilution=0.0, difficulty=MIDDLING)
    alike, again = (play_arms(practised, order, still) for order in ORDERS)
    assert alike == again, "who is played when changes nothing"

    drifting = World(dilution=0.0, difficulty=MIDDLING, drift=30.0)  # 120 requests: 3.6 logits
    in_turn, together = (play_arms(practised, order, drifting) for order in ORDERS)
    assert in_turn.false
    assert not together.false
    assert abs(together.difference) < in_turn.difference


@pytest.mark.long
def test_seeds_are_played_in_processes_of_their_own() -> None:
    played = outcomes(2, drift=30.0)
    assert {order: [each.false for each in of] for order, of in played.items()} == {
        "in turn": [True, True],
        "together": [False, False],
    }
