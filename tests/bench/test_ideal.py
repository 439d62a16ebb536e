"""The simulated makespan, against cases that can be worked out by hand."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from bench.draws import Draws, Latency
from bench.harness import cli, endpoint, run, write_config, write_tasks
from bench.ideal import Step, Work, makespan, recorded

from grpo_practice.core.hashing import derive_seed


def played(*seconds: float) -> Work:
    return Work(seconds)


def seconds(
    steps: Sequence[Step],
    n: int,
    *,
    overlap: float = 0.0,
    ramp: tuple[int, float] | None = None,
) -> float:
    return makespan(steps, n, overlap=overlap, ramp=ramp).seconds


def test_rollouts_start_in_the_order_of_the_plan_as_soon_as_there_is_room() -> None:
    step = Step([played(3, 1), played(2, 2)])
    assert seconds([step], 1) == 8
    assert seconds([step], 2) == 5  # 3, then 2 beside 1, 2: done at 3, 1, 3 and 5
    assert seconds([step], 4) == 3
    assert makespan([step], 2).in_flight == pytest.approx(8 / 5)


def test_a_group_is_summed_up_at_once_and_then_compared_and_proposed_one_after_the_other() -> None:
    group = Work([1, 1], summaries=[2, 5], after=[10, 20])
    assert seconds([Step([group], merge=[100])], 8) == 1 + 5 + 10 + 20 + 100
    assert seconds([Step([group], merge=[100])], 1) == 2 + 7 + 30 + 100


def test_the_teacher_goes_before_the_student() -> None:
    first = Work([1], summaries=[10])
    step = Step([first, played(3), played(8)])
    assert seconds([step], 2) == 11  # 10 from 1 to 11; 3, then 8 from 3; else 10 from 3 to 13


def test_a_step_begins_when_the_merge_before_it_ended() -> None:
    steps = [Step([played(5), played(1)], merge=[2]), Step([played(4), played(1)])]
    assert seconds(steps, 8) == 5 + 2 + 4


def test_early_groups_start_beside_the_slowest_chains_of_the_step_before() -> None:
    steps = [Step([played(5), played(1)], merge=[2]), Step([played(6), played(1)])]
    assert seconds(steps, 8, overlap=0.5) == 7 + 1  # 6 ran from 0; the other one from 7
    assert seconds(steps, 2, overlap=0.5) == 8  # 6 from 1 to 7; the other one from 7
    assert seconds(steps, 1, overlap=0.5) == 5 + 1 + 2 + 6 + 1


def test_a_rollout_of_the_running_step_goes_before_an_early_one() -> None:
    steps = [Step([played(1, 1, 1, 1)]), Step([played(3)])]
    assert seconds(steps, 2, overlap=1) == 2 + 3


def test_an_early_group_is_distilled_in_its_own_step_and_with_its_library() -> None:
    late = Work([1], summaries=[1], after=[1, 1])
    steps = [Step([played(10)], merge=[5]), Step([late])]
    assert seconds(steps, 8, overlap=1) == 15 + 3


def test_only_the_next_step_runs_ahead() -> None:
    steps = [Step([played(10)]), Step([played(1)]), Step([played(8)])]
    assert seconds(steps, 8, overlap=1) == 10 + 8  # the third starts when the second begins


def test_a_step_whose_every_group_is_there_ends_as_it_begins() -> None:
    steps = [Step([played(10)]), Step([played(1), played(2)]), Step([played(3)])]
    assert seconds(steps, 8, overlap=1) == 13


def test_the_window_doubles_while_somebody_waits() -> None:
    step = Step([played(*[1.0] * 7)])
    assert seconds([step], 4, ramp=(1, 0.5)) == 3  # they start at 0, .5, 1, 1, 1, 1.5 and 2
    assert seconds([step], 4) == 2


@pytest.mark.long
def test_a_recorded_run_gets_the_latencies_that_the_endpoint_draws(tmp_path: Path) -> None:
    with endpoint(right=0.5) as url:
        write_tasks(tmp_path / "tasks.jsonl", 3)
        cli(tmp_path, "data", "upload", "tasks.jsonl", "--name", "tasks")
        practice = {"epochs": 2, "batch_size": 3, "grpo_n": 3}
        data = {"practice_dataset_name": "tasks"}
        write_config(tmp_path / "c.yaml", url, practice=practice, data=data)
        run(tmp_path, "practice", "--config", "c.yaml")
    draws = Draws(7, Latency.read("uniform:1,2"))
    steps = recorded(tmp_path / "grpo-practice.db", draws)
    assert [len(step.groups) for step in steps] == [3, 3]
    with sqlite3.connect(tmp_path / "grpo-practice.db") as db:
        (calls,) = db.execute("SELECT count(*) FROM calls").fetchone()
        (sha,) = db.execute(
            """SELECT lower(hex(sha256)) FROM samples WHERE sample_id =
               (SELECT plan ->> '$[1][0]' FROM steps WHERE step = 1)"""
        ).fetchone()
    seconds = [w.rollouts for s in steps for w in s.groups] + [s.merge for s in steps]
    seconds += [part for s in steps for w in s.groups for part in (w.summaries, w.after)]
    assert sum(map(len, seconds)) == calls
    expected = [draws.latency_s(derive_seed(0, "play", sha, 1, a, 0)) for a in range(3)]
    assert steps[1].groups[1].rollouts == expected
