"""Groups that are left out: half of those whose question taught nothing when last played."""

import json
import sqlite3
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.canonical import derive_seed
from grpo_practice.errors import ConfigError, PausedError, RunFailedError
from grpo_practice.events import StepFinished, StepStarted
from grpo_practice.llm.budget import Caps
from grpo_practice.progress import Tally
from grpo_practice.sim.questions import questions
from grpo_practice.store import Store
from grpo_practice.store.check import check
from tests.app.project import Project, finished
from tests.app.test_caps import Capped
from tests.app.test_practice_run import cut_off
from tests.contract.project import served
from tests.forecast.test_estimate import ahead, calls, pilot

SKIPS = (
    "practice.group_policy=skip_uniform",
    "practice.epochs=3",
    "practice.seed=1",
    "practice.summaries=always",
)
ONE = "practice.rollout_concurrency=1"
MANY = "practice.rollout_concurrency=64"
FIRST_EPOCH = 2
"""Steps of it."""
GROUPS = """SELECT step, slot, sample_id, g.status
              FROM groups g JOIN v_steps USING (branch_id, step)
             WHERE run_id = 'toy' ORDER BY step, slot"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "p")


@pytest.fixture
async def whole(tmp_path: Path) -> Project:
    """A run that nothing happened to."""
    return await finished(tmp_path / "whole", *SKIPS)


def left_out(project: Project) -> dict[int, list[int]]:
    """Step → the slots that are left out, of the steps that were begun."""
    rows = project.query(
        "SELECT step, left_out FROM v_steps WHERE run_id = 'toy' AND status <> 'planned'"
    )
    return {step: json.loads(text) for step, text in rows}


def doubtful(project: Project) -> dict[int, set[int]]:
    """Step → the slots that might have been left out, from the groups of earlier epochs."""
    statuses = {(step, slot): status for step, slot, _, status in project.query(GROUPS)}
    last, met = dict[int, str](), dict[int, set[int]]()
    rows = project.query("SELECT step, epoch, plan FROM v_steps WHERE run_id = 'toy' ORDER BY step")
    for epoch in range(3):
        steps = [(step, json.loads(plan)) for step, at, plan in rows if at == epoch]
        for step, plan in steps:
            met[step] = {slot for slot, (i, _) in enumerate(plan) if last.get(i) == "uniform"}
        for step, plan in steps:
            for slot, (i, _) in enumerate(plan):
                last[i] = statuses.get((step, slot), last.get(i, ""))
    return met


def wrong(project: Project) -> list[str]:
    return [text for look in check(project.db) for text in look.wrong]


def drawn(project: Project) -> dict[int, list[int]]:
    """What is to be left out of each step, by the draw of each question."""
    shas = dict(project.query("SELECT sample_id, lower(hex(sha256)) FROM samples"))
    plans = project.query("SELECT step, epoch, plan FROM v_steps WHERE run_id = 'toy'")
    might, found = doubtful(project), dict[int, list[int]]()
    for step, epoch, plan in plans:
        seeds = [derive_seed(1, "skip", shas[i], epoch, 0, 0) for i, _ in json.loads(plan)]
        found[step] = [slot for slot in sorted(might[step]) if seeds[slot] >= 2**30]
    return found


async def test_half_of_what_was_uniform_is_left_out(whole: Project) -> None:
    plans = whole.query("SELECT step, epoch, plan FROM v_steps WHERE run_id = 'toy' ORDER BY step")
    might, out = doubtful(whole), left_out(whole)
    assert out == drawn(whole)
    assert out[0] == out[1] == []
    n = sum(map(len, out.values()))
    assert 0 < n < sum(map(len, might.values()))
    played = {(step, slot) for step, slot, *_ in whole.query(GROUPS)}
    kept = {(s, slot) for s, _, plan in plans for slot in range(6) if slot not in out[s]}
    assert played == kept == set(whole.query("SELECT DISTINCT step, slot FROM v_rollouts"))
    assert wrong(whole) == []


async def test_a_group_that_was_played_stands_for_those_that_were_left_out(whole: Project) -> None:
    document = (await whole.practise(*SKIPS)).document()
    might, out = doubtful(whole), left_out(whole)
    rewards = whole.query("SELECT step, slot, reward FROM v_rollouts ORDER BY step, slot")
    plain = dict(whole.query("SELECT step, avg(reward) FROM v_rollouts GROUP BY step"))
    means = list[float]()
    for row in document["steps"]:
        step = row["step"]
        weighed = [(1 + (slot in might[step]), r) for at, slot, r in rewards if at == step]
        mean = sum(w * r for w, r in weighed) / sum(w for w, _ in weighed)
        assert row["mean_reward"] == pytest.approx(mean)
        assert row["rollouts"]["planned"] == row["rollouts"]["scored"] == len(weighed)
        assert row["groups"]["planned"] == 6 - len(out[step])
        assert row["groups"]["left_out"] == len(out[step])
        over = "all rollouts, twice those of groups that might have been left out"
        assert row["mean_reward_over"] == over
        means.append(mean)
    assert means[:FIRST_EPOCH] == [plain[0], plain[1]]
    assert means[FIRST_EPOCH:] != [pytest.approx(plain[step]) for step in range(FIRST_EPOCH, 6)]
    groups = whole.query("SELECT mean_reward FROM groups ORDER BY step, slot")
    assert groups == whole.query("SELECT avg(reward) FROM v_rollouts GROUP BY step, slot")


def test_the_weights_put_a_mean_where_it_would_be_with_all_groups() -> None:
    """Over all draws, by the number of groups that are never left out and that may be."""
    sure, might = [1.0, 0.0, 0.5], [1.0, 1.0, 0.0, 1.0]
    expected = sum(sure) + sum(might), len(sure) + len(might)
    rewards = weights = 0.0
    for draw in range(2 ** len(might)):
        played = [r for i, r in enumerate(might) if draw >> i & 1]
        rewards += (sum(sure) + 2 * sum(played)) / 2 ** len(might)
        weights += (len(sure) + 2 * len(played)) / 2 ** len(might)
    assert (rewards, weights) == pytest.approx(expected)


async def test_the_result_does_not_depend_on_concurrency(whole: Project, project: Project) -> None:
    await project.practise(*SKIPS, ONE)
    assert (project.results(), left_out(project)) == (whole.results(), left_out(whole))
    other = Project(project.folder / "other")
    await other.practise(*SKIPS, MANY)
    assert other.results() == whole.results()


@pytest.mark.parametrize("after", [1, 45, 52, 58, 75])
async def test_a_run_cut_off_anywhere_ends_as_if_it_had_not_been(
    whole: Project, project: Project, after: int
) -> None:
    async with served() as endpoint:
        await cut_off(project.practise(*SKIPS, endpoint.override()), endpoint, after)
        await project.practise(*SKIPS, endpoint.override())
        asked = len(endpoint.bodies)
    assert (project.results(), left_out(project)) == (whole.results(), left_out(whole))
    assert asked - whole.query("SELECT count(*) FROM calls")[0][0] <= 8  # what was in flight


@pytest.mark.parametrize("cap", [55, 62])
async def test_a_run_that_paused_ends_as_one_that_did_not(
    whole: Project, tmp_path: Path, cap: int
) -> None:
    project = Capped(tmp_path / "capped", caps=Caps(requests=cap))
    with pytest.raises(PausedError):
        await project.practise(*SKIPS)
    project.caps = Caps(requests=10**6)
    await project.practise(*SKIPS)
    assert (project.results(), left_out(project)) == (whole.results(), left_out(whole))
    assert project.calls() == whole.query("SELECT count(*) FROM calls")[0][0]


async def test_what_was_decided_stays_so(whole: Project, project: Project) -> None:
    """Also should a later version draw in another way."""
    fewer = left_out(whole)[2][:-1]
    async with served() as endpoint:
        await cut_off(project.practise(*SKIPS, ONE, endpoint.override()), endpoint, 60)
    assert list(left_out(project)) == [0, 1, 2]

    def other(db: sqlite3.Connection) -> None:
        db.execute("UPDATE steps SET left_out = ? WHERE step = 2", (json.dumps(fewer),))

    with Store(project.db) as store:
        store._writer.submit(other).result()
    await project.practise(*SKIPS)
    assert left_out(project)[2] == fewer != left_out(whole)[2]
    assert wrong(project) == []


@pytest.mark.parametrize("step", [1, 3, 5])
async def test_a_restart_leaves_out_the_same(whole: Project, step: int) -> None:
    before = whole.results(), left_out(whole)
    await whole.practise(*SKIPS, restart_step=step)
    assert (whole.results(), left_out(whole)) == before


async def test_a_restart_looks_at_its_own_line(whole: Project) -> None:
    """Not at groups of the branch it left: other instructions make other ones uniform."""
    before = doubtful(whole)
    changed = "evaluation.agent.agent.instructions=Another way."
    await whole.practise(*SKIPS, changed, "practice.grpo_n=2", restart_step=2)
    might = doubtful(whole)
    assert [might[step] for step in (4, 5)] != [before[step] for step in (4, 5)]
    assert left_out(whole) == drawn(whole)
    document = (await whole.practise(*SKIPS, changed, "practice.grpo_n=2")).document()
    rewards = whole.query("SELECT step, slot, reward FROM v_rollouts")
    for row in document["steps"][2:]:
        weighed = [(1 + (s in might[row["step"]]), r) for at, s, r in rewards if at == row["step"]]
        mean = sum(w * r for w, r in weighed) / sum(w for w, _ in weighed)
        assert row["mean_reward"] == pytest.approx(mean)


async def test_a_step_of_which_all_is_left_out_is_closed(project: Project) -> None:
    small = (*SKIPS, "practice.batch_size=1", "practice.epochs=2")
    report = await project.practise(*small)
    empty = [step for step, slots in left_out(project).items() if slots]
    assert empty
    called = {step for (step,) in project.query("SELECT DISTINCT step FROM calls")}
    for row in report.document()["steps"]:
        if row["step"] in empty:
            assert row["status"] == "closed"
            assert row["mean_reward"] is None
            assert row["rollouts"]["planned"] == row["groups"]["planned"] == 0
            assert row["step"] not in called
    assert wrong(project) == []
    again = await project.practise(*small)
    assert again.requests.new == 0


async def test_what_failed_is_played_again(project: Project) -> None:
    """Of three groups all attempts but one fail in the first epoch: nobody knows them."""

    def odd(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (400, {"error": {"message": f"odd {n}"}}) if n in (1, 2, 4, 5, 7, 8) else None

    few = (*SKIPS, ONE, "practice.max_failed_share=0.5", "practice.epochs=2")
    async with served(odd) as endpoint:
        await project.practise(*few, endpoint.override())
    failed = {sample for step, _, sample, status in project.query(GROUPS) if status == "too_few"}
    assert len(failed) == 3
    assert failed <= {sample for step, _, sample, _ in project.query(GROUPS) if step >= FIRST_EPOCH}
    assert any(left_out(project).values())
    assert wrong(project) == []


async def test_failures_are_held_against_what_is_left(whole: Project, project: Project) -> None:
    planned = 3 * (6 - len(left_out(whole)[2]))
    before = whole.query("SELECT count(*) FROM calls WHERE step < 2")[0][0]

    def odd(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (400, {"error": {"message": f"odd {n}"}}) if n > before else None

    assert planned < 18
    async with served(odd) as endpoint:
        with pytest.raises(RunFailedError, match=f"of the {planned} rollouts of step 2 failed"):
            await project.practise(*SKIPS, ONE, endpoint.override())


async def test_early_groups_cannot_know_what_to_leave_out(project: Project) -> None:
    with pytest.raises(ConfigError, match=r"overlap = 0\.5: has to be 0 with .* skip_uniform"):
        await project.practise(*SKIPS, "practice.overlap=0.5")


async def test_a_question_that_is_there_twice_looks_at_its_last_group(tmp_path: Path) -> None:
    project = Project(tmp_path / "twice")
    few = questions(24, 0)[:6]
    with Store(project.db) as store:
        store.add_dataset("train", [*few, *few], origin="sim", replace=True)
    await project.practise(*SKIPS, "practice.grpo_n=2")
    assert any(left_out(project).values())
    assert left_out(project) == drawn(project)
    by_sample = defaultdict[int, set[str]](set)
    for step, _, sample, status in project.query(GROUPS):
        by_sample[sample] |= {status} if step < FIRST_EPOCH else set()
    assert any(len(statuses) > 1 for statuses in by_sample.values())
    assert wrong(project) == []


async def test_a_pilot_is_kept_and_nothing_is_paid_twice(whole: Project, project: Project) -> None:
    await project.practise(*SKIPS[:1], "practice.epochs=1", *SKIPS[2:])
    await pilot(project, 2, *SKIPS)
    assert left_out(project)[2] == left_out(whole)[2]
    slots = [s for (s,) in project.query("SELECT DISTINCT slot FROM v_rollouts WHERE step = 2")]
    assert sorted(slots) == [s for s in range(6) if s not in left_out(whole)[2]][:2]
    await project.practise(*SKIPS)
    assert (project.results(), left_out(project)) == (whole.results(), left_out(whole))
    made = [p.query("SELECT count(*) FROM calls")[0][0] for p in (project, whole)]
    assert made[0] == made[1]


async def test_a_forecast_knows_what_may_be_left_out(whole: Project, project: Project) -> None:
    first = calls(ahead(project, *SKIPS))["practice play"]
    played = whole.query("SELECT count(*) FROM v_rollouts")[0][0]
    assert first == (108 - 3 * 17, 108)  # of 24 groups twelve, and two standard errors
    assert first.low <= played < first.high
    async with served() as endpoint:
        await cut_off(project.practise(*SKIPS, ONE, endpoint.override()), endpoint, 60)
    decided = left_out(project)
    assert list(decided) == [0, 1, 2]
    there = project.query("SELECT count(*) FROM v_rollouts WHERE step = 2 AND reward IS NOT NULL")
    left = 18 - 3 * len(decided[2]) - there[0][0]
    later = calls(ahead(project, *SKIPS))["practice play"]
    assert later.high == left + 54
    assert left < later.low < later.high
    await project.practise(*SKIPS)
    assert calls(ahead(project, *SKIPS)) == {}


@pytest.mark.parametrize("after", [None, 50, 60])
async def test_a_display_ends_with_all_played(project: Project, after: int | None) -> None:
    async with served() as endpoint:
        if after:
            await cut_off(project.practise(*SKIPS, endpoint.override()), endpoint, after)
            project.events.clear()
        report = await project.practise(*SKIPS, endpoint.override())
    tally, shown, started = Tally(), dict[int, float | None](), dict[int, StepStarted]()
    for event in project.events:
        tally.see(event)
        if tally.run and tally.part:
            assert tally.part.done <= tally.part.planned
            assert tally.run.done <= tally.run.planned
        if isinstance(event, StepStarted):
            started[event.step] = event
        if isinstance(event, StepFinished) and tally.part:
            assert tally.part.done == tally.part.planned
            shown[event.step] = tally.part.mean
    assert tally.run is not None
    assert tally.run.done == tally.run.planned
    stats = {row.plan.step: row.stats or {} for row in report.steps}
    assert shown == {step: pytest.approx(stats[step]["mean_reward"]) for step in shown}
    for step, event in started.items():
        assert event.groups == 6 - len(left_out(project)[step])
        assert event.rollouts == 3 * event.groups


async def test_its_rollouts_are_not_scored_again_since_that_would_be_no_score(
    whole: Project,
) -> None:
    with Store(whole.db) as store, pytest.raises(ConfigError, match="toy has left out groups"):
        whole.eval_job(store, config=None, rejudge=True, run="toy", verify="contains")


async def test_a_run_of_fixed_groups_leaves_nothing_out(project: Project) -> None:
    await project.practise("practice.epochs=3")
    assert project.query("SELECT DISTINCT left_out FROM steps") == [(None,)]
    assert project.query("SELECT count(*) FROM groups") == [(36,)]
