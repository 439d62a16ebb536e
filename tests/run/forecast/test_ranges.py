"""The ranges of a forecast hold what the run then takes, from the calls most like those to come."""

from pathlib import Path

import pytest

from tests.run.forecast.test_estimate import EVALUATED, PRICED, ahead, pilot
from tests.run.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


async def test_the_prompts_of_other_runs_do_not_narrow_a_forecast(project: Project) -> None:
    await project.practise("exp_id=short", "practice.epochs=1")
    told = "evaluation.agent.agent.instructions=" + "Think about every word of it. " * 12
    wide = ahead(project, told, "practice.epochs=1").stages[0]
    assert (wide.of, wide.history) == ("model", 36)
    assert wide.tokens_out.high == pytest.approx(4 * wide.tokens_out.low, abs=4)  # half to twice
    await project.practise("exp_id=long", told, "practice.epochs=1")
    took = project.query(
        """SELECT sum(tokens_in) FROM calls JOIN branches USING (branch_id)
            WHERE run_id = 'long' AND stage = 'play'"""
    )[0][0]
    assert wide.tokens_in.low <= took <= wide.tokens_in.high
    alike = ahead(project, told, "practice.epochs=1").stages[0]
    (same,) = project.query(
        """SELECT count(*) FROM rollouts JOIN branches USING (branch_id)
            WHERE run_id = 'long' GROUP BY system_sha ORDER BY min(rollout_id) LIMIT 1"""
    )[0]
    assert (alike.of, alike.history) == ("prompt", same)
    assert alike.tokens_in.low > wide.tokens_in.low
    own = await pilot(project, 3, told, "practice.epochs=1")
    assert (own.stages[0].of, own.stages[0].history) == ("run", 9)


async def test_no_range_is_narrower_than_a_quarter_about_the_mean(project: Project) -> None:
    play = (await pilot(project, 6)).stages[0]
    for low, high in (play.tokens_in, play.tokens_out):
        assert high >= low / 0.75 * 1.25 - 2


async def test_what_may_yet_be_learnt_makes_later_prompts_longer(project: Project) -> None:
    forecast = ahead(project, *EVALUATED)
    # 2 lessons of at most 60 % of 24 groups; over 4 steps of 6 groups 0, 7.2, 14.4, 21.6 are shown
    assert forecast.learnable == 29
    one = ahead(project, *EVALUATED, "practice.num_experiences_per_query=1")
    lines, fewer = (
        {f"{x.part} {x.stage}": x.tokens_in for x in found.stages} for found in (forecast, one)
    )
    assert lines["practice play"].high - fewer["practice play"].high == pytest.approx(
        72 * 40 * (10.8 - 5.4), abs=1
    )
    # after each epoch: 14.4 and 28.8
    assert lines["evaluation play"].high - fewer["evaluation play"].high == pytest.approx(
        8 * 40 * (21.6 - 10.8), abs=1
    )
    assert lines["practice merge"].high > fewer["practice merge"].high
    assert lines["practice play"].low == fewer["practice play"].low


@pytest.mark.long_after(1)
@pytest.mark.parametrize("piloted", [False, True])
@pytest.mark.parametrize("summaries", ["auto", "always"])
async def test_what_a_run_of_many_steps_took_lies_inside(
    project: Project, piloted: bool, summaries: str
) -> None:
    settings: tuple[str, ...] = (PRICED, "practice.epochs=4", "practice.do_eval=true")
    settings += ("practice.batch_size=4", f"practice.summaries={summaries}")
    forecast = await pilot(project, 4, *settings) if piloted else ahead(project, *settings)
    mark = project.query("SELECT coalesce(max(call_id), 0) FROM calls")[0][0]
    await project.practise(*settings)
    rows = project.query(
        """SELECT CASE kind WHEN 'eval' THEN 'evaluation' ELSE kind END, stage, count(*),
             sum(tokens_in), sum(tokens_out), sum(cost_micro) / 1e6
             FROM calls JOIN branches USING (branch_id) JOIN runs USING (run_id)
            WHERE call_id > ? GROUP BY 1, 2""",
        mark,
    )
    lines = {(x.part, x.stage): x for x in forecast.stages}
    assert {(part, stage) for part, stage, *_ in rows} <= lines.keys()
    assert len(rows) == (6 if summaries == "always" else 5)
    assert forecast.total.cost_usd is not None
    for part, stage, n, tokens_in, _, _ in rows:
        line = lines[part, stage]
        assert line.calls.low <= n <= line.calls.high, (part, stage)
        assert line.tokens_in.low <= tokens_in <= line.tokens_in.high, (part, stage)
    for what, at in (("calls", 2), ("tokens_in", 3)):
        assert getattr(forecast.total, what).low <= sum(row[at] for row in rows)
        assert sum(row[at] for row in rows) <= getattr(forecast.total, what).high
    assert sum(row[4] for row in rows) <= forecast.total.tokens_out.high
    assert sum(row[5] for row in rows) <= forecast.total.cost_usd.high


def test_groups_that_only_confirm_make_neither_proposals_nor_merges(project: Project) -> None:
    forecast = ahead(project, "practice.epochs=4", "practice.batch_size=12")
    lines = {x.stage: x.calls for x in forecast.stages}
    assert lines["compare"].low >= lines["merge"].high == 4
    assert (lines["propose"].low, lines["merge"].low) == (0, 0)


async def test_history_makes_it_narrow_and_the_truth_lies_inside(project: Project) -> None:
    await project.practise("exp_id=before", PRICED)
    forecast = ahead(project, PRICED, "practice.seed=3", "practice.epochs=1")
    before = project.query("SELECT coalesce(max(call_id), 0) FROM calls")[0][0]
    report = await project.practise(PRICED, "practice.seed=3", "practice.epochs=1")
    rows = project.query(
        """SELECT stage, count(*), sum(tokens_in), sum(tokens_out) FROM calls
            WHERE call_id > ? GROUP BY stage""",
        before,
    )
    lines = {line.stage: line for line in forecast.stages}
    assert {stage for stage, *_ in rows} <= lines.keys()
    for stage, n, tokens_in, tokens_out in rows:
        line = lines[stage]
        assert line.history > 0
        assert line.calls.low <= n <= line.calls.high, stage
        if stage == "play":
            assert line.tokens_in.low <= tokens_in <= line.tokens_in.high
            assert line.tokens_out.low <= tokens_out <= line.tokens_out.high
    assert forecast.total.cost_usd is not None
    assert (
        forecast.total.cost_usd.low
        <= (report.usage.cost_micro or 0) / 1e6
        <= forecast.total.cost_usd.high
    )
