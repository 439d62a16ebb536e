"""Steps that overlap: some groups are played with the library of the step before, whenever."""

import json
from pathlib import Path

import pytest

from grpo_practice.errors import FingerprintError, PausedError
from grpo_practice.llm.budget import Caps
from grpo_practice.progress import Tally
from grpo_practice.store.check import check
from tests.app.project import Project, finished
from tests.app.test_caps import Capped
from tests.app.test_practice_run import cut_off
from tests.contract.project import served
from tests.forecast.test_estimate import pilot

HALF = "practice.overlap=0.5"
ONE = "practice.rollout_concurrency=1"
MANY = "practice.rollout_concurrency=64"
SHOWN = """SELECT r.step, r.slot, r.library_id = s.library_in, r.library_id = before.library_in,
             s.library_in = before.library_in, instr(t.body, 'Experience') > 0
             FROM v_rollouts r JOIN v_steps s USING (run_id, step)
             LEFT JOIN v_steps before ON before.run_id = r.run_id AND before.step = r.step - 1
             JOIN texts t ON t.sha256 = r.system_sha WHERE r.run_id = 'toy'"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "p")


@pytest.fixture
async def whole(tmp_path: Path) -> Project:
    """A run that nothing happened to."""
    return await finished(tmp_path / "whole", HALF)


async def test_early_groups_are_played_with_the_library_of_the_step_before(whole: Project) -> None:
    rows = whole.query(SHOWN)
    assert {row[0] for row in rows} == {0, 1, 2, 3}
    assert not all(row[4] for row in rows if row[0])
    for step, slot, own, before, _, _ in rows:
        assert before if step and slot < 3 else own
    assert [text for look in check(whole.db) for text in look.wrong] == []


async def test_it_changes_what_is_learnt(whole: Project, project: Project) -> None:
    report = await project.practise(ONE)
    assert report.steps
    assert project.results() != whole.results()


async def test_the_result_does_not_depend_on_concurrency(whole: Project, project: Project) -> None:
    await project.practise(HALF, ONE)
    assert project.results() == whole.results()
    other = Project(project.folder / "other")
    await other.practise(HALF, MANY)
    assert other.results() == whole.results()


@pytest.mark.parametrize("after", [1, 18, 26, 40, 80])
async def test_a_run_cut_off_anywhere_ends_as_if_it_had_not_been(
    whole: Project, project: Project, after: int
) -> None:
    async with served() as endpoint:
        await cut_off(project.practise(HALF, endpoint.override()), endpoint, after)
        await project.practise(HALF, endpoint.override())
        asked = len(endpoint.bodies)
    assert project.results() == whole.results()
    assert asked - whole.query("SELECT count(*) FROM calls")[0][0] <= 8  # what was in flight


@pytest.mark.parametrize("cap", [15, 25, 45])
async def test_a_run_that_paused_ends_as_one_that_did_not(
    whole: Project, tmp_path: Path, cap: int
) -> None:
    project = Capped(tmp_path / "capped", caps=Caps(requests=cap))
    with pytest.raises(PausedError):
        await project.practise(HALF)
    project.caps = Caps(requests=10**6)
    await project.practise(HALF)
    assert project.results() == whole.results()
    assert project.calls() == whole.query("SELECT count(*) FROM calls")[0][0]


@pytest.mark.parametrize("step", [0, 1, 3])
async def test_a_restart_plays_the_same_with_the_same(whole: Project, step: int) -> None:
    before, rows = whole.results(), sorted(whole.query(SHOWN))
    await whole.practise(HALF, restart_step=step)
    assert whole.results() == before
    assert sorted(whole.query(SHOWN)) == rows


async def test_a_pilot_and_evaluations_on_the_way_change_nothing(
    whole: Project, project: Project
) -> None:
    evaluated = ("practice.do_eval=true", "practice.eval_strategy=steps")
    await pilot(project, 4, HALF, *evaluated)
    await project.practise(HALF, *evaluated)
    assert project.results() == whole.results()
    assert [text for look in check(project.db) for text in look.wrong] == []


async def test_a_display_counts_early_rollouts_once(project: Project) -> None:
    tally = Tally()
    await project.practise(HALF)
    for event in project.events:
        tally.see(event)
        if tally.run and tally.part:
            assert tally.part.done <= tally.part.planned
            assert tally.run.done <= tally.run.planned
    assert tally.run
    assert tally.run.done == tally.run.planned


async def test_a_run_from_before_there_was_overlap_goes_on_without_it(project: Project) -> None:
    first = await project.practise("practice.epochs=1")
    (text,) = project.query("SELECT identity FROM branches")[0]
    assert json.loads(text)["practice.overlap"] == 0.0
    with pytest.raises(FingerprintError) as e:
        await project.practise("practice.epochs=1", HALF)
    assert [(c.key, c.was, c.now) for c in e.value.diff] == [("practice.overlap", 0.0, 0.5)]
    assert (await project.practise("practice.epochs=1")).library == first.library
