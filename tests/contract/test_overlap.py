"""`practice.overlap`: groups that are played before the previous step is closed."""

from pathlib import Path

import pytest

from grpo_practice import Workspace
from tests.contract.project import Project, changed_keys, finished

HALF = "practice.overlap=0.5"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "p")


async def test_a_run_that_has_begun_keeps_its_overlap(project: Project) -> None:
    first = await project.practise("practice.epochs=1")
    with pytest.raises(Exception, match="a different configuration") as e:
        await project.practise("practice.epochs=1", HALF)
    assert changed_keys(e.value) == ["practice.overlap"]
    assert (await project.practise("practice.epochs=1")).library == first.library


async def test_early_groups_are_played_with_the_library_of_the_step_before(
    project: Project, tmp_path: Path
) -> None:
    plain = await finished(tmp_path / "plain")
    await project.practise(HALF)
    assert project.results() != plain.results()
    shown = """SELECT r.step, r.slot, r.library_id = s.library_in, r.library_id = before.library_in,
                      s.library_in = before.library_in
                 FROM v_rollouts r JOIN v_steps s USING (run_id, step)
            LEFT JOIN v_steps before ON before.run_id = r.run_id AND before.step = r.step - 1
                WHERE r.run_id = 'toy'"""
    rows = project.query(shown)
    assert {row[0] for row in rows} == {0, 1, 2, 3}
    assert not all(row[4] for row in rows if row[0])
    for step, slot, own, before, _ in rows:
        assert before if step and slot < 3 else own
    results = project.results()
    evaluated = ("practice.do_eval=true", "practice.eval_strategy=steps")
    other = Project(tmp_path / "other")
    sets = (HALF, *evaluated)
    Workspace(other.db).forecast_practice(other.config, sets=sets, env={}, pilot=4)
    await other.practise(*sets)
    assert other.results() == results
    assert project.wrong == other.wrong == []
