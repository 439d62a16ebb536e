"""Adaptive groups: two rollouts of each first, the others only where these teach nothing."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.build.configs import EvalFlags, rejudge_target
from grpo_practice.cli.tally import Tally
from grpo_practice.config import load_practice, read_environment
from grpo_practice.errors import ConfigError, PausedError, RunFailedError
from grpo_practice.events import GroupDistilled, RolloutFinished, StepNarrowed
from grpo_practice.llm.budget import Caps
from grpo_practice.sim import stage_of
from grpo_practice.store import Store
from grpo_practice.store.check import check
from tests.build.project import Project, served
from tests.build.test_budget import Capped
from tests.build.test_forecast import ahead, calls, pilot
from tests.build.test_practice_run import cut_off

ADAPTIVE = ("practice.group_policy=adaptive", "practice.grpo_n=5", "practice.seed=3")
ONE = "practice.rollout_concurrency=1"
MANY = "practice.rollout_concurrency=64"
PLAYED = """SELECT step, slot, group_concat(attempt), group_concat(wave), min(reward) <> max(reward)
              FROM (SELECT * FROM v_rollouts WHERE run_id = 'toy' ORDER BY step, slot, attempt)
             GROUP BY step, slot ORDER BY step, slot"""
FIRST = """SELECT step, slot, min(reward) <> max(reward), avg(reward) FROM v_rollouts
            WHERE run_id = 'toy' AND attempt < 2 GROUP BY step, slot ORDER BY step, slot"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "p")


@pytest.fixture
async def whole(tmp_path: Path) -> Project:
    """A run that nothing happened to."""
    made = Project(tmp_path / "whole")
    await made.practise(*ADAPTIVE)
    return made


def decisions(project: Project) -> list[Any]:
    return [
        (step, text and json.loads(text))
        for step, text in project.query("SELECT step, going_on FROM steps ORDER BY branch_id, step")
    ]


async def test_only_groups_whose_first_two_do_not_differ_go_on(whole: Project) -> None:
    mixed = {(step, slot): bool(m) for step, slot, m, _ in whole.query(FIRST)}
    assert 0 < sum(mixed.values()) < len(mixed)
    for step, slot, attempts, waves, _ in whole.query(PLAYED):
        expected = ("0,1", "0,0") if mixed[step, slot] else ("0,1,2,3,4", "0,0,1,1,1")
        assert (attempts, waves) == expected
    going_on = {
        step: [s for (at, s), m in mixed.items() if at == step and not m] for step in range(4)
    }
    assert decisions(whole) == list(going_on.items())
    assert [text for look in check(whole.db) for text in look.wrong] == []


async def test_what_is_played_is_counted_and_only_the_first_wave_makes_scores(
    whole: Project,
) -> None:
    report = await whole.practise(*ADAPTIVE)
    first = whole.query(FIRST)
    played = Counter(row[0] for row in whole.query("SELECT step FROM v_rollouts"))
    for row in report.document()["steps"]:
        rollouts, mean = row["rollouts"], row["mean_reward"]
        assert rollouts["planned"] == rollouts["scored"] == played[row["step"]]
        assert rollouts["outcomes"] == {"ok": played[row["step"]]}
        means = [m for step, *_, m in first if step == row["step"]]
        assert mean == pytest.approx(sum(means) / len(means))
        assert row["mean_reward_over"] == "the first 2 rollouts of each group"
    groups = whole.query("SELECT mean_reward, planned - scored FROM groups ORDER BY step, slot")
    assert groups == [(mean, 0) for *_, mean in first]
    every = whole.query("SELECT avg(reward) FROM v_rollouts")[0][0]
    assert every != pytest.approx(sum(m for *_, m in first) / len(first))
    assert report.document()["outcomes"] == {"ok": sum(played.values())}


async def test_the_result_does_not_depend_on_concurrency(whole: Project, project: Project) -> None:
    await project.practise(*ADAPTIVE, ONE)
    assert (project.results(), decisions(project)) == (whole.results(), decisions(whole))
    other = Project(project.folder / "other")
    await other.practise(*ADAPTIVE, MANY)
    assert other.results() == whole.results()


@pytest.mark.parametrize("after", [1, 8, 14, 20, 27, 34, 50, 80])
async def test_a_run_cut_off_anywhere_ends_as_if_it_had_not_been(
    whole: Project, project: Project, after: int
) -> None:
    async with served() as endpoint:
        await cut_off(project.practise(*ADAPTIVE, endpoint.override()), endpoint, after)
        await project.practise(*ADAPTIVE, endpoint.override())
        asked = len(endpoint.bodies)
    assert (project.results(), decisions(project)) == (whole.results(), decisions(whole))
    assert asked - whole.query("SELECT count(*) FROM calls")[0][0] <= 8  # what was in flight


@pytest.mark.parametrize("cap", [9, 12, 15, 40])
async def test_a_budget_may_end_between_the_waves(whole: Project, tmp_path: Path, cap: int) -> None:
    project = Capped(tmp_path / "capped", caps=Caps(requests=cap))
    with pytest.raises(PausedError):
        await project.practise(*ADAPTIVE)
    assert project.calls() == cap
    project.caps = Caps(requests=10**6)
    await project.practise(*ADAPTIVE)
    assert (project.results(), decisions(project)) == (whole.results(), decisions(whole))


async def test_its_rollouts_are_not_scored_again_since_that_would_be_no_score(
    whole: Project,
) -> None:
    with Store(whole.db) as store, pytest.raises(ConfigError, match="toy has adaptive groups"):
        env = read_environment({}, whole.folder)
        rejudge_target(store, None, "toy", EvalFlags(verify="contains"), (), env)


async def test_a_restart_decides_anew_and_keeps_the_steps_before(whole: Project) -> None:
    before = whole.results()
    report = await whole.practise(*ADAPTIVE, restart_step=2)
    assert [row.branch_id == report.branch.id for row in report.steps] == [0, 0, 1, 1]
    assert whole.results() == before
    assert [step for step, _ in decisions(whole)] == [0, 1, 2, 3, 2, 3]


async def test_a_group_that_differs_is_distilled_before_the_others_have_been_played(
    project: Project,
) -> None:
    await project.practise(*ADAPTIVE, ONE)
    for step in range(4):
        ends = [e for e in project.events if getattr(e, "step", None) == step]
        taught = next((i for i, e in enumerate(ends) if isinstance(e, GroupDistilled)), None)
        narrowed = next(i for i, e in enumerate(ends) if isinstance(e, StepNarrowed))
        if taught is not None and taught < narrowed:
            return
    pytest.fail("nothing was distilled before it was decided which groups go on")


def odd(times: int) -> tuple[int, dict[str, Any]]:
    return 400, {"error": {"message": f"odd {times}"}}


async def test_what_was_decided_stays_so_when_an_error_is_mended(project: Project) -> None:
    """Its group goes on, also where the mended attempt makes the first wave differ."""
    failed, second = set[int](), 0

    def some(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        """The second attempt of every group fails; of the second wave all but the first four."""
        nonlocal second
        if stage_of(body) != "play":
            return None
        seen = [b["messages"] == body["messages"] for b in endpoint.bodies if stage_of(b) == "play"]
        if sum(seen) == 2:
            failed.add(n)
            return odd(n)
        second += sum(seen) > 2
        return odd(n) if second > 4 else None  # then everything fails, and the run with it

    share = "practice.max_failed_share=0.5"
    async with served(some) as endpoint:
        with pytest.raises(RunFailedError):
            await project.practise(*ADAPTIVE, ONE, share, endpoint.override())
    assert len(failed) == 6
    decided = decisions(project)
    assert decided[0] == (0, [0, 1, 2, 3, 4, 5])
    await project.practise(*ADAPTIVE, ONE, share)
    assert decisions(project)[0] == decided[0]
    mixed = [slot for step, slot, m, _ in project.query(FIRST) if step == 0 and m]
    assert mixed
    played = {row[1]: row[2] for row in project.query(PLAYED) if row[0] == 0}
    assert set(played.values()) == {"0,1,2,3,4"}
    assert [text for look in check(project.db) for text in look.wrong] == []


async def test_failures_are_held_against_what_is_planned_by_then(project: Project) -> None:
    """Of twelve in the first wave a fifth is two; of thirty it would be six."""

    def some(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return odd(n) if n <= 3 else None

    async with served(some) as endpoint:
        with pytest.raises(RunFailedError, match="3 of the 12 rollouts of step 0 failed"):
            await project.practise(*ADAPTIVE, ONE, endpoint.override())


async def test_a_pilot_is_kept_and_nothing_is_paid_twice(whole: Project, project: Project) -> None:
    forecast = await pilot(project, 3, *ADAPTIVE)
    paid = project.query("SELECT count(*) FROM calls")[0][0]
    played = {row[1]: row[2] for row in project.query(PLAYED)}
    assert set(played) == {0, 1, 2}
    assert "0,1,2,3,4" in played.values()
    assert decisions(project)[0] == (0, None)
    assert forecast.piloted is not None
    first = [m for step, slot, _, m in project.query(FIRST)]
    assert forecast.piloted.reward == pytest.approx(sum(first) / 3)
    report = await project.practise(*ADAPTIVE)
    assert paid + report.requests.new == whole.query("SELECT count(*) FROM calls")[0][0]
    assert (project.results(), decisions(project)) == (whole.results(), decisions(whole))


async def test_what_a_pilot_played_of_a_second_wave_is_used(project: Project) -> None:
    """Also where an error of the first was mended since, and the group would stop by now."""

    def one(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return odd(n) if n in wrong else None

    taught = Project(project.folder / "taught")
    await taught.practise(*ADAPTIVE)
    slot = next(slot for step, slot, m, _ in taught.query(FIRST) if step == 0 and m)
    wrong = {2 * slot + 1}  # the first attempt of a group that stops
    async with served(one) as endpoint:
        await pilot(
            project, slot + 1, *ADAPTIVE, ONE, "practice.max_failed_share=1", endpoint.override()
        )
    assert {row[1]: row[2] for row in project.query(PLAYED)}[slot] == "0,1,2,3,4"
    await project.practise(*ADAPTIVE)
    going_on = decisions(project)[0][1]
    assert slot in going_on
    assert {slot for slot in range(6) if slot not in going_on} < set(range(6))


async def test_a_forecast_lies_between_two_and_all_of_each_group(project: Project) -> None:
    before = ahead(project, *ADAPTIVE)
    assert calls(before)["practice play"] == (48, 120)
    taught = (0.1 * 24, 0.6 * 24)
    assert calls(before)["practice summarise"] == (int(2 * taught[0]), 5 * taught[1])
    await project.practise(*ADAPTIVE, "practice.epochs=1")
    n = project.query("SELECT count(*) FROM calls WHERE stage = 'play'")[0][0]
    assert 24 < n < 60
    assert calls(ahead(project, *ADAPTIVE))["practice play"] == (24, 60)


async def test_a_forecast_counts_what_is_decided(project: Project) -> None:
    async with served() as endpoint:
        await cut_off(project.practise(*ADAPTIVE, ONE, endpoint.override()), endpoint, 30)
    (_, going_on), *_ = decisions(project)
    assert going_on is not None
    there = project.query("SELECT count(*) FROM v_rollouts WHERE step = 0 AND reward IS NOT NULL")
    left = 12 + 3 * len(going_on) - there[0][0]
    assert calls(ahead(project, *ADAPTIVE))["practice play"] == (left + 3 * 12, left + 3 * 30)


async def test_without_ground_truth_answers_decide(project: Project) -> None:
    await project.practise(*ADAPTIVE, "practice.given_ground_truth=false")
    (_, going_on), *_ = decisions(project)
    answers = project.query(
        "SELECT slot, extracted FROM v_rollouts WHERE step = 0 AND attempt < 2 ORDER BY slot"
    )
    differ = {slot for slot, said in answers if (slot, said) != answers[2 * slot]}
    assert differ
    assert set(going_on) == set(range(6)) - differ


async def test_a_display_ends_with_all_played_and_never_shows_less_than_none_left(
    project: Project,
) -> None:
    tally = Tally()
    await project.practise(*ADAPTIVE)
    steps = []
    for event in project.events:
        tally.see(event)
        if tally.run and tally.part:
            assert tally.part.done <= tally.part.planned
            assert tally.run.done <= tally.run.planned
        if isinstance(event, StepNarrowed) and tally.part:
            steps.append(tally.part)
    assert tally.run is not None
    assert tally.run.done == tally.run.planned
    assert [part.done for part in steps] == [part.planned for part in steps]
    waves = {e.wave for e in project.events if isinstance(e, RolloutFinished)}
    assert waves == {0, 1}
    report = await project.practise(*ADAPTIVE)
    assert [part.mean for part in steps] == [
        pytest.approx((row.stats or {})["mean_reward"]) for row in report.steps
    ]


def test_two_rollouts_cannot_be_played_in_waves(project: Project) -> None:
    with pytest.raises(ConfigError, match="grpo_n has to be more than that; it is 2"):
        load_practice(
            project.config, (ADAPTIVE[0], "practice.grpo_n=2"), read_environment({}, project.folder)
        )


async def test_a_run_of_fixed_groups_decides_nothing(project: Project) -> None:
    report = await project.practise("practice.epochs=1")
    assert decisions(project) == [(0, None), (1, None)]
    assert project.query("SELECT DISTINCT wave FROM rollouts") == [(0,)]
    assert {row["mean_reward_over"] for row in report.document()["steps"]} == {"all rollouts"}
    with Store(project.db) as store:
        assert all(row.rollouts == 18 for row in store.steps(report.branch))
