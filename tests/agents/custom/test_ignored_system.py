"""An agent that drops its system prompt cannot use what is learnt, and a person is told so."""

from pathlib import Path

import pytest

from grpo_practice.errors import PausedError
from grpo_practice.events import StepStarted
from tests.agents.custom.test_run import ONCE, Own
from tests.contract.project import served

DEAF = """
async def solve(question, system, context):
    return (await ask(context, user(question)))["content"]
"""
WRAPPED = """
import textwrap

async def solve(question, system, context):
    told = "\\n".join(textwrap.wrap(system, 30, initial_indent="> ", subsequent_indent="  "))
    return (await ask(context, user(told + question)))["content"]
"""
IGNORED = "no request of the first 3 rollouts with experiences contained any of them"


@pytest.fixture
def project(tmp_path: Path) -> Own:
    return Own(tmp_path)


async def test_practice_pauses_and_goes_on_if_the_agent_may_do_so(project: Own) -> None:
    deaf = (*project.practising(DEAF), "practice.rollout_concurrency=1")
    async with served() as endpoint:
        with pytest.raises(PausedError, match=IGNORED) as paused:
            await project.practise(endpoint.override(), *deaf)
        assert "agent.ignores_system: true" in str(paused.value.hint)
        # The first step that is played with experiences, and three of its 18 rollouts.
        first = next(e.step for e in project.events if isinstance(e, StepStarted) if e.experiences)
        assert endpoint.by_stage["play"] == first * 18 + 3
        allowed = "evaluation.agent.ignores_system=true"
        report = await project.practise(endpoint.override(), *deaf, allowed)
        assert endpoint.by_stage["play"] == 4 * 18
    assert report.library.experiences


async def test_a_mended_agent_goes_on_with_the_command_of_the_hint(project: Own) -> None:
    deaf = (*project.practising(DEAF), "practice.rollout_concurrency=1")
    async with served() as endpoint:
        with pytest.raises(PausedError, match=IGNORED) as paused:
            await project.practise(endpoint.override(), *deaf)
        first = next(e.step for e in project.events if isinstance(e, StepStarted) if e.experiences)
        assert f"--restart-step {first}, where a file of the agent has changed" in str(
            paused.value.hint
        )
        mended = (*project.practising(WRAPPED), "practice.rollout_concurrency=1")
        await project.practise(endpoint.override(), *mended, restart_step=first)
        assert endpoint.by_stage["play"] == 4 * 18 + 3


async def test_an_evaluation_says_it_once(project: Own) -> None:
    await project.practise()
    await project.evaluate(*project.agent(DEAF), library="toy")
    assert sum(IGNORED in text for text in project.notices) == 1
    project.events.clear()
    await project.evaluate(*project.agent(DEAF), "exp_id=none")
    allowed = "agent.ignores_system=true"
    await project.evaluate(*project.agent(DEAF), allowed, "exp_id=allowed", library="toy")
    assert not any(IGNORED in text for text in project.notices)


@pytest.mark.parametrize("program", [ONCE, WRAPPED])
async def test_an_agent_that_sends_it_in_any_form_is_left_alone(project: Own, program: str) -> None:
    await project.practise()
    await project.evaluate(*project.agent(program), library="toy")
    assert not any(IGNORED in text for text in project.notices)
