"""A run as Python asks for it: a config in any form, typed overrides, functions as objects."""

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import yaml

from grpo_practice.config import load_practice
from grpo_practice.core.errors import ConfigError, FingerprintError, StoppedError
from grpo_practice.core.events import silent
from grpo_practice.run.evaluation_run import prepare_eval, run_eval
from grpo_practice.run.requests.runs import EvalRequest, PracticeRequest
from grpo_practice.run.session import Session
from grpo_practice.run.waiting import run_until_stopped
from grpo_practice.store import Store
from tests.contract.project import CONFIG
from tests.run.project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def half(sample: Any) -> dict[str, Any]:
    return {"reward": 0.5}


async def judged(sample: Any, llm: Any) -> dict[str, Any]:
    return {"reward": 1.0, "reasoning": await llm.query_one(messages=sample.question)}


async def solve(question: str, system: str, context: Any) -> str:
    return "\\boxed{0}"


def test_a_config_in_any_form_is_the_same_run(project: Project) -> None:
    typed = load_practice(project.config, [], {}).config
    forms: list[Any] = [project.config, str(project.config), CONFIG, yaml.safe_load(CONFIG), typed]
    found = []
    for form in forms:
        with Store(project.db) as store:
            job = project.practice_job(store, config=form)
            found.append((job.config, job.dataset.id))
    assert [config for config, _ in found] == [typed] * len(forms)


def test_a_typed_config_may_be_made_by_hand_and_loads_with_tools(project: Project) -> None:
    text = "{python_executor: {mode: builtin, config: {backend: subprocess}}}"
    settings = (f"evaluation.agent.toolkits={text}", "evaluation.verify=judge")
    typed = load_practice(project.config, settings, {}).config
    with Store(project.db) as store:
        assert project.practice_job(store, config=typed).config == typed
        tested = prepare_eval(project.session(store), EvalRequest(config=typed, env={}))
    assert tested.config == typed.evaluation


def test_typed_values_are_taken_as_they_are(project: Project) -> None:
    values = {"practice.epochs": 7, "exp_id": "007", "practice.agent_objective": "[not: yaml"}
    with Store(project.db) as store:
        config = project.practice_job(store, "practice.epochs=2", overrides=values).config
        assert (config.practice.epochs, config.exp_id) == (7, "007")
        assert config.practice.agent_objective == "[not: yaml"
        with pytest.raises(ConfigError, match=r"practice\.epochs = '7'"):
            project.practice_job(store, overrides={"practice.epochs": "7"})


async def test_a_verify_function_may_be_a_python_function(project: Project) -> None:
    report = await project.evaluate(verify=half)
    assert (report.score.mean, report.score.scored) == (0.5, 12)
    assert report.run == "toy/eval/verify=half"
    rejudged = await project.evaluate(verify=judged, rejudge=True, run=report.run, config=None)
    assert (rejudged.score.mean, rejudged.requests.new) == (1.0, 12)


async def test_an_agent_may_be_a_python_function_and_its_source_is_its_identity(
    project: Project,
) -> None:
    first = await project.practise("practice.epochs=1", agent=solve, verify=half)
    assert first.requests.new == 0
    assert [row.status for row in first.steps] == ["closed", "closed"]
    assert (await project.practise("practice.epochs=1", agent=solve, verify=half)).replayed == 0
    played = project.query("SELECT DISTINCT response FROM rollout_bodies")
    assert played == [("\\boxed{0}",)]

    async def other(question: str, system: str, context: Any) -> str:
        return "\\boxed{1}"

    other.__qualname__ = "solve"
    with pytest.raises(FingerprintError) as e:
        await project.practise("practice.epochs=1", agent=other, verify=half)
    assert [change.key for change in e.value.diff] == ["agent.sha256"]


async def test_an_evaluation_may_take_a_library(project: Project) -> None:
    learnt = (await project.practise()).library
    by_name = await project.evaluate(library="toy:last")
    assert by_name.requests.new == 12
    assert (await project.evaluate(library=learnt)).requests.new == 0
    assert (await project.evaluate()).run == "toy/eval" != by_name.run


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"agent": eval}, "agent.function: file.py:function"),
        ({"agent": half}, "called as function"),
        ({"verify": solve}, "cannot be called with a sample"),
    ],
)
def test_a_function_that_cannot_be_used_is_refused_with_the_way_out(
    project: Project, given: dict[str, Any], said: str
) -> None:
    with Store(project.db) as store, pytest.raises(ConfigError) as e:
        project.practice_job(store, **given)
    assert said in f"{e.value} {e.value.hint}"


def test_a_request_is_only_what_it_says() -> None:
    assert PracticeRequest().changes == []
    asked = PracticeRequest(sets=["a=1"], epochs=3, overrides={"a": 2})
    assert asked.changes == ["a=1", ("a", 2), ("practice.epochs", 3)]


def test_a_notebook_whose_loop_runs_may_call_what_is_not_async(project: Project) -> None:
    async def cell() -> int:
        with Store(project.db) as store:
            job = project.eval_job(store)
            return run_until_stopped(job.session, run_eval(job)).score.scored

    assert asyncio.run(cell()) == 12


def test_outside_the_main_thread_no_signal_is_touched(project: Project) -> None:
    before, scored = signal.getsignal(signal.SIGINT), list[int]()

    def work() -> None:
        with Store(project.db) as store:
            job = project.eval_job(store)
            scored.append(run_until_stopped(job.session, run_eval(job)).score.scored)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert scored == [12]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_signal_ends_in_order_what_a_notebook_waits_for(project: Project) -> None:
    async def press() -> None:
        os.kill(os.getpid(), signal.SIGINT)  # it reaches the main thread, which is waiting
        await asyncio.Event().wait()

    async def cell() -> None:
        with Store(project.db) as store:
            run_until_stopped(Session(store, silent, "x"), press())

    with pytest.raises(StoppedError):
        asyncio.run(cell())


async def test_a_run_of_a_program_s_function_is_gone_on_with_from_that_program(
    project: Project,
) -> None:
    def play(question: str, system: str, context: Any) -> str:
        return "\\boxed{0}"

    play.__module__ = "__main__"
    await project.evaluate(agent=play)
    with Store(project.db) as store, pytest.raises(ConfigError) as e:
        project.eval_job(store, config=None)
    assert "resume from that program" in str(e.value.hint)
    assert (await project.evaluate(agent=play, config=None)).requests.new == 0
