"""Groups that are left out, and groups that are played early."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.project import Project, Said, changed_keys, cut_off, finished, questions, served

SKIPS = (
    "practice.group_policy=skip_uniform",
    "practice.epochs=3",
    "practice.seed=1",
    "practice.summaries=always",
)
ONE = "practice.rollout_concurrency=1"
HALF = "practice.overlap=0.5"
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


def drawn(project: Project) -> dict[int, list[int]]:
    """Step → what is to be left out of it, by the draw of each question."""
    shas = dict(project.query("SELECT sample_id, lower(hex(sha256)) FROM samples"))
    might, found = doubtful(project), dict[int, list[int]]()
    for step, epoch, plan in project.query(
        "SELECT step, epoch, plan FROM v_steps WHERE run_id = 'toy'"
    ):
        texts = [f"1|skip|{shas[i]}|{epoch}|0|0" for i, _ in json.loads(plan)]
        heads = [hashlib.sha256(text.encode()).digest()[0] for text in texts]
        found[step] = [slot for slot in sorted(might[step]) if heads[slot] >= 128]
    return found


def weighed(project: Project, step: int) -> tuple[float, int]:
    """Return the mean reward of a step and its rollouts: doubtful groups count twice."""
    might = doubtful(project)[step]
    rewards = project.query("SELECT slot, reward FROM v_rollouts WHERE step = ?", step)
    pairs = [(1 + (slot in might), reward) for slot, reward in rewards]
    return sum(w * r for w, r in pairs) / sum(w for w, _ in pairs), len(pairs)


async def test_half_of_what_was_uniform_is_left_out(whole: Project) -> None:
    plans = whole.query("SELECT step, epoch, plan FROM v_steps WHERE run_id = 'toy' ORDER BY step")
    might, out = doubtful(whole), left_out(whole)
    assert out == drawn(whole)
    assert out[0] == out[1] == []
    assert 0 < sum(map(len, out.values())) < sum(map(len, might.values()))
    played = {(step, slot) for step, slot, *_ in whole.query(GROUPS)}
    kept = {(s, slot) for s, _, plan in plans for slot in range(6) if slot not in out[s]}
    assert played == kept == set(whole.query("SELECT DISTINCT step, slot FROM v_rollouts"))

    # A group that was played stands for those that were left out.
    document = (await whole.practise(*SKIPS)).document()
    means = list[float]()
    for row in document["steps"]:
        mean, n = weighed(whole, row["step"])
        assert row["stats"]["mean_reward"] == pytest.approx(mean)
        assert row["rollouts"] == row["stats"]["planned"] == row["stats"]["scored"] == n
        assert row["groups"] == 6 - len(out[row["step"]])
        assert row["left_out"] == sorted(out[row["step"]])
        assert row["stats"]["mean_reward_over"] == "weighted"
        means.append(mean)
    plain = dict(whole.query("SELECT step, avg(reward) FROM v_rollouts GROUP BY step"))
    assert means[:FIRST_EPOCH] == [plain[0], plain[1]]
    assert means[FIRST_EPOCH:] != [pytest.approx(plain[step]) for step in range(FIRST_EPOCH, 6)]
    groups = whole.query("SELECT mean_reward FROM groups ORDER BY step, slot")
    assert groups == whole.query("SELECT avg(reward) FROM v_rollouts GROUP BY step, slot")

    with pytest.raises(Exception, match="toy has left out questions"):
        await whole.evaluate(config=None, rejudge=True, run="toy", verify="contains")


async def test_what_was_decided_stays_so(whole: Project, project: Project) -> None:
    """Also should a later version draw in another way."""
    fewer = left_out(whole)[2][:-1]
    async with served() as endpoint:
        await cut_off(project.practise(*SKIPS, ONE, endpoint.override()), endpoint, 60)
    assert list(left_out(project)) == [0, 1, 2]
    decided = left_out(project)
    there = project.query("SELECT count(*) FROM v_rollouts WHERE step = 2 AND reward IS NOT NULL")
    left = 18 - 3 * len(decided[2]) - there[0][0]
    later = plays(project)
    assert later.high == left + 54
    assert left < later.low < later.high
    project.change("UPDATE steps SET left_out = ? WHERE step = 2", json.dumps(fewer))
    await project.practise(*SKIPS)
    assert left_out(project)[2] == fewer != left_out(whole)[2]
    assert project.wrong == []
    assert ahead(project) == []


def ahead(project: Project) -> list[Any]:
    """Return the lines of a forecast."""
    forecast = Workspace(project.db).forecast_practice(project.config, sets=SKIPS, env={})
    return list(forecast.stages)


def plays(project: Project) -> Any:
    (found,) = [line.calls for line in ahead(project) if line.stage == "play"]
    return found


async def test_a_forecast_knows_what_may_be_left_out(whole: Project, project: Project) -> None:
    first = plays(project)
    played = whole.query("SELECT count(*) FROM v_rollouts")[0][0]
    assert first == (108 - 3 * 17, 108)  # of 24 groups twelve, and two standard errors
    assert first.low <= played < first.high


async def test_a_restart_looks_at_its_own_line(whole: Project) -> None:
    """Not at groups of the branch it left: other instructions make other ones uniform."""
    before = doubtful(whole)
    changed = "evaluation.agent.agent.instructions=Another way."
    await whole.practise(*SKIPS, changed, "practice.grpo_n=2", restart_step=2)
    might = doubtful(whole)
    assert [might[step] for step in (4, 5)] != [before[step] for step in (4, 5)]
    assert left_out(whole) == drawn(whole)
    document = (await whole.practise(*SKIPS, changed, "practice.grpo_n=2")).document()
    for row in document["steps"][2:]:
        assert row["stats"]["mean_reward"] == pytest.approx(weighed(whole, row["step"])[0])


async def test_a_step_of_which_all_is_left_out_is_closed(project: Project) -> None:
    small = (*SKIPS, "practice.batch_size=1", "practice.epochs=2")
    report = await project.practise(*small)
    empty = [step for step, slots in left_out(project).items() if slots]
    assert empty
    called = {step for (step,) in project.query("SELECT DISTINCT step FROM calls")}
    for row in report.document()["steps"]:
        if row["step"] in empty:
            assert row["status"] == "closed"
            assert row["stats"]["mean_reward"] is None
            assert row["rollouts"] == row["groups"] == 0
            assert row["step"] not in called
    assert project.wrong == []
    again = await project.practise(*small)
    assert again.requests.new == 0


async def test_what_failed_is_played_again(project: Project) -> None:
    """Of three groups all attempts but one fail in the first epoch: nobody knows them."""

    def odd(n: int, body: dict[str, Any]) -> Said | None:
        return (400, {"error": {"message": f"odd {n}"}}) if n in (1, 2, 4, 5, 7, 8) else None

    few = (*SKIPS, ONE, "practice.max_failed_share=0.5", "practice.epochs=2")
    async with served(odd) as endpoint:
        await project.practise(*few, endpoint.override())
    failed = {sample for step, _, sample, status in project.query(GROUPS) if status == "too_few"}
    assert len(failed) == 3
    assert failed <= {sample for step, _, sample, _ in project.query(GROUPS) if step >= FIRST_EPOCH}
    assert any(left_out(project).values())
    assert project.wrong == []


async def test_failures_are_held_against_what_is_left(whole: Project, project: Project) -> None:
    planned = 3 * (6 - len(left_out(whole)[2]))
    before = whole.query("SELECT count(*) FROM calls WHERE step < 2")[0][0]

    def odd(n: int, body: dict[str, Any]) -> Said | None:
        return (400, {"error": {"message": f"odd {n}"}}) if n > before else None

    assert planned < 18
    async with served(odd) as endpoint:
        with pytest.raises(Exception, match=f"of the {planned} rollouts of step 2 failed"):
            await project.practise(*SKIPS, ONE, endpoint.override())


async def test_a_question_that_is_there_twice_looks_at_its_last_group(project: Project) -> None:
    few = questions(6)
    Workspace(project.db).datasets.upload("train", [*few, *few], if_exists="replace")
    await project.practise(*SKIPS, "practice.grpo_n=2")
    assert any(left_out(project).values())
    assert left_out(project) == drawn(project)
    met = dict[int, set[str]]()
    for step, _, sample, status in project.query(GROUPS):
        met.setdefault(sample, set()).update({status} if step < FIRST_EPOCH else ())
    assert any(len(statuses) > 1 for statuses in met.values())
    assert project.wrong == []


async def test_a_pilot_is_kept_and_nothing_is_paid_twice(whole: Project, project: Project) -> None:
    await project.practise(*SKIPS[:1], "practice.epochs=1", *SKIPS[2:])
    Workspace(project.db).forecast_practice(project.config, sets=SKIPS, env={}, pilot=2)
    assert left_out(project)[2] == left_out(whole)[2]
    slots = [s for (s,) in project.query("SELECT DISTINCT slot FROM v_rollouts WHERE step = 2")]
    assert sorted(slots) == [s for s in range(6) if s not in left_out(whole)[2]][:2]
    await project.practise(*SKIPS)
    assert (project.results(), left_out(project)) == (whole.results(), left_out(whole))
    assert project.count("calls") == whole.count("calls")


async def test_settings_that_do_not_go_together_or_change_nothing(project: Project) -> None:
    with pytest.raises(Exception, match=r"overlap = 0\.5: must be 0 with .* skip_uniform"):
        await project.practise(*SKIPS, HALF)
    first = await project.practise("practice.epochs=1")
    assert project.query("SELECT DISTINCT left_out FROM steps") == [(None,)]
    assert project.count("groups") == 12
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
