"""With tools a rollout takes more than one request: how many is counted, and never made up."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.cli.terminal.forecast_view import show_forecast
from grpo_practice.run.forecast.estimate import TURN_TOKENS
from tests.contract.own import ONCE, Programs
from tests.contract.project import served
from tests.rollout.tools.mcp.test_run import calling, overrides, project_of
from tests.run.forecast.test_estimate import ahead, calls, pilot
from tests.run.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return project_of(tmp_path)


def test_before_any_was_played_a_rollout_may_take_all_it_may(project: Project) -> None:
    found = ahead(project, "practice.epochs=1", "evaluation.agent.max_turns=9")
    assert calls(found)["practice play"] == (36, 36 * 10)
    assert found.turns is not None
    assert (found.turns.each, found.turns.rollouts) == ((1, 10), 0)
    assert found.document()["turns"] == {"each": [1, 10], "rollouts": 0}
    none = ahead(project, "practice.epochs=1", "evaluation.agent.toolkits=null")
    assert calls(none)["practice play"] == (36, 36)
    assert none.document()["turns"] is None
    play, plain = found.stages[0], none.stages[0]
    assert play.tokens_in.high == pytest.approx(
        plain.tokens_in.high * 10 + 360 * TURN_TOKENS * 9 / 2, rel=0.01
    )
    assert play.tokens_in.low == plain.tokens_in.low
    assert not (project.folder / "notes").exists()  # no server was started for it


async def test_what_rollouts_of_this_agent_took_is_what_they_will(project: Project) -> None:
    async with served(calling("count", "say")) as endpoint:
        settings = ("practice.epochs=1", *overrides(endpoint))
        found = await pilot(project, 2, *settings)
        assert found.turns is not None
        assert found.turns.rollouts == 6
        assert found.turns.each == pytest.approx((2.25, 3.75))  # three, a quarter about it
        assert calls(found)["practice play"] == (67, 113)  # of the 30 that are left
        # an evaluation of the same agent counts too, another agent does not
        other = ahead(project, *settings, "evaluation.agent.max_turns=9", restart_step=0)
        assert other.turns is not None
        assert other.turns.rollouts == 0


async def test_the_time_of_a_rollout_is_that_of_its_requests(project: Project) -> None:
    found = ahead(project, "practice.epochs=1", "evaluation.agent.max_turns=9")
    play = found.stages[0]
    alone = replace(found, stages=[play], waits=1)
    assert alone.total.seconds.high == play.seconds.high + 10 * play.call_s.high


def test_an_agent_of_the_users_own_is_an_assumption(project: Project) -> None:
    (project.folder / "mine.py").write_text("def play(question, system, context): return 'x'\n")
    own = ("evaluation.agent.toolkits=null", "evaluation.agent.type=python")
    found: Any = ahead(project, *own, "evaluation.agent.function=mine.py:play").turns
    assert (found.each, found.rollouts) == ((1, 50), 0)


class Own(Programs, Project):
    """A project that is played by programs."""


async def test_calls_of_a_program_that_was_edited_since_are_not_of_this_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = Own(tmp_path)
    await own.practise("practice.epochs=1", *own.practising(ONCE))

    def rests_on(text: str, *overrides: str, restart_step: int | None = None) -> list[str]:
        found = ahead(own, *overrides, *own.practising(text), restart_step=restart_step)
        show_forecast(found)
        (row,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("play ")]
        assert found.turns is not None
        return [row.split("  ")[-1].strip(), f"{found.turns.rollouts} rollouts"]

    assert rests_on(ONCE) == ["this run", "36 rollouts"]
    edited = ONCE + "# mended\n"
    assert rests_on(edited, "practice.epochs=1", restart_step=0) == ["other prompts", "0 rollouts"]
