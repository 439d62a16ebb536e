"""Arms are played over the same connections, under one limit and one cap."""

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.app.arms import ArmsRequest, prepare_arms, run_arms
from grpo_practice.app.request import EvalRequest
from grpo_practice.errors import (
    ConfigError,
    FingerprintError,
    LockedError,
    PausedError,
    RunFailedError,
)
from grpo_practice.events import Notice, RolloutFinished
from grpo_practice.llm.budget import Caps
from grpo_practice.llm.sim import respond
from grpo_practice.progress import Tally
from grpo_practice.reports.comparison import ComparisonReport
from grpo_practice.sim import stage_of
from grpo_practice.store import Store, branches
from grpo_practice.types import Experience, Library
from tests.app.project import Project, finished
from tests.contract.project import CONFIG, served

OBJECTIVES = ("practice.agent_objective=Add.", "practice.learning_objective=Be exact.")


async def play(project: Project, *names: str, sets: tuple[str, ...] = (), **more: Any) -> Any:
    with Store(project.db) as store:
        asked = EvalRequest(config=project.config, env={}, sets=sets, **more)
        job = prepare_arms(project.session(store), ArmsRequest(names=names, evaluation=asked))
        return await run_arms(job)


async def test_all_arms_together_have_no_more_in_flight_than_one(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    async with served() as endpoint:
        at = endpoint.override().removeprefix("evaluation.")
        found = await play(
            project,
            *("none", "full", "aa", "filler"),
            sets=(
                at,
                "verify=judge",
                "judge_model.model_provider.model=sim",
                at.replace("agent.model", "judge_model"),
                *("concurrency=6", "judge_concurrency=1"),
            ),
        )
    assert isinstance(found, ComparisonReport)
    assert endpoint.by_stage == {"judge": 4 * 12, "play": 4 * 12}
    # The judge's limit is one for all arms, too.
    assert 1 < endpoint.most_open["play"] <= 6
    assert endpoint.most_open["judge"] == 1


async def test_a_cap_is_one_for_all_arms(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    ((before,),) = project.query("SELECT count(*) FROM calls")
    with pytest.raises(PausedError, match="20 requests spent so far"):
        await play(project, "none", "full", "direct", "filler", caps=Caps(requests=20))
    assert project.query("SELECT count(*) FROM calls") == [(before + 20,)]
    assert isinstance(await play(project, "none", "full", "direct", "filler"), ComparisonReport)
    assert project.query("SELECT count(*) FROM calls WHERE stage = 'direct'") == [(1,)]


async def test_what_each_arm_has_spent_counts(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    await play(project, "none", "full")
    with pytest.raises(PausedError, match="24 requests spent so far"):
        await play(project, "none", "full", "filler", caps=Caps(requests=20))


async def test_an_arm_that_is_held_frees_the_others_and_leaves_nothing(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    runs = project.query("SELECT count(*) FROM runs")
    names = ("none", "full", "aa")
    with Store(project.db) as store:
        asked = EvalRequest(config=project.config, env={})
        job = prepare_arms(project.session(store), ArmsRequest(names=names, evaluation=asked))
        targets = [evaluation.target.name for evaluation in job.evaluations.values()]
        with store.lock(targets[-1]):
            with pytest.raises(LockedError, match="seed=1"):
                await run_arms(job)
            assert not any(store.is_worked_on(name) for name in targets[:-1])
    assert project.query("SELECT count(*) FROM runs") == runs


async def test_a_practice_run_under_way_elsewhere_is_not_written(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    with Store(project.db) as store, store.lock("toy"):
        with pytest.raises(LockedError):
            await play(project, "none", "direct")
        assert isinstance(await play(project, "none", "full"), ComparisonReport)


async def test_a_library_that_is_written_needs_no_lock_on_its_practice_run(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    await play(project, "none", "direct")
    with Store(project.db) as store, store.lock("toy"):
        assert isinstance(await play(project, "none", "direct"), ComparisonReport)


@pytest.mark.parametrize("said", ["no JSON at all", '{"operations": []}', ""])
async def test_a_teacher_that_writes_no_library_is_asked_anew_by_the_next_command(
    tmp_path: Path, said: str
) -> None:
    usable = False

    def hook(_: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if stage_of(body) != "direct" or usable:
            return None
        status, reply = respond("POST", "/v1/chat/completions", json.dumps(body).encode())
        reply["choices"][0]["message"]["content"] = said
        return status, reply

    project = Project(tmp_path / "p")
    async with served(hook) as endpoint:
        await project.practise(*OBJECTIVES, endpoint.override())
        sets = (endpoint.override().removeprefix("evaluation."),)
        for times in (1, 2):
            with pytest.raises(RunFailedError, match="is not there") as failed:
                await play(project, "none", "direct", sets=sets)
            assert "type the command again" in str(failed.value.hint)
            assert endpoint.by_stage["direct"] == times * 3
        usable = True
        assert isinstance(await play(project, "none", "direct", sets=sets), ComparisonReport)
        assert endpoint.by_stage["direct"] == 7
        await play(project, "none", "direct", sets=sets)
        assert endpoint.by_stage["direct"] == 7
    seeds = [body["seed"] for body in endpoint.bodies if stage_of(body) == "direct"]
    assert len(set(seeds)) == 7


async def test_what_the_arms_cost_before_counts_once(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    calls = "SELECT count(*) FROM calls"
    await play(project, "none", "full")
    # 12 that `full` has, one of the teacher, and 12 to play.
    await play(project, "full", "direct", caps=Caps(requests=25))
    ((before,),) = project.query(calls)
    with pytest.raises(PausedError, match="24 requests spent so far"):
        await play(project, "none", "direct", sets=("pass_k=2",), caps=Caps(requests=24))
    assert project.query(calls) == [(before,)]


def agent_of(folder: Path, model: str, url: str = "http://127.0.0.1:9/v1") -> str:
    """Write an agent's file with a model of its own, and return its name."""
    file = folder / f"{model}.yaml"
    provider = f"{{model: {model}, base_url: '{url}', api_key: nothing-secret}}"
    agent = "agent: {name: other, instructions: Be brief.}"
    file.write_text(f"type: simple\nmodel: {{model_provider: {provider}}}\n{agent}\n")
    return str(file)


async def refused(project: Project, *names: str, model: str = "sim", **more: Any) -> str:
    """Return why arms are refused, before anything is asked or stored."""
    counts = "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM libraries)"
    before = project.query(counts)
    async with served() as endpoint:
        provider = f"{{model: {model}, base_url: '{endpoint.url}', api_key: nothing-secret}}"
        project.config.write_text(CONFIG.replace("{model: sim}", provider))
        named = [agent_of(project.folder, n, endpoint.url) if n == "m" else n for n in names]
        with pytest.raises(ConfigError) as error:
            await play(project, *named, **more)
        assert endpoint.bodies == []
    assert project.query(counts) == before
    return str(error.value)


async def test_a_cap_on_money_asks_for_the_price_of_every_arm(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    prices = ("prices={real: {input: 1, output: 1}}",)
    caps = Caps(cost_micro=10**6)
    why = await refused(project, "none", "m", model="real", sets=prices, caps=caps)
    assert "nobody knows what model 'm' costs" in why


async def test_a_simulated_arm_beside_a_real_one_is_refused_before_it_is_paid(
    tmp_path: Path,
) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    why = await refused(project, "none", "m", "filler")
    assert "toy/eval is simulated, and toy/eval/m is not" in why


async def test_arms_that_other_models_judge_are_refused_before_they_are_paid(
    tmp_path: Path,
) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    why = await refused(project, "none", "m", "filler", model="real", verify="judge")
    assert "verify=judge and toy/eval/m/verify=judge would be judged by real and m" in why
    one = "judge_model={model_provider: {model: x, base_url: 'http://127.0.0.1:9/v1', api_key: k}}"
    with Store(project.db) as store:
        asked = EvalRequest(config=project.config, env={}, sets=(one,), verify="judge")
        names = ("none", agent_of(project.folder, "m"))
        job = prepare_arms(project.session(store), ArmsRequest(names=names, evaluation=asked))
    assert list(job.evaluations) == list(names)


async def test_the_progress_of_all_arms_is_one(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    await play(project, "none", "full", sets=("pass_k=2",))
    tally = Tally()
    for event in project.events:
        tally.see(event)
    assert tally.run is not None
    assert tally.run is tally.part
    assert (tally.run.planned, tally.run.done, tally.beside) == (48, 48, 1)
    assert not tally.inside
    rollouts = [event for event in project.events if isinstance(event, RolloutFinished)]
    assert {event.run for event in rollouts} == {"toy/eval", learnt_run(project)}
    assert tally.run.mean == pytest.approx(sum(e.reward or 0.0 for e in rollouts) / 48)


def learnt_run(project: Project) -> str:
    ((name,),) = project.query("SELECT run_id FROM runs WHERE run_id LIKE 'toy/eval/L%'")
    return str(name)


async def test_an_arm_that_was_begun_otherwise_keeps_the_others_from_beginning(
    tmp_path: Path,
) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    await play(project, "none", "full")
    tables = ("runs", "branches", "invocations", "rollouts")
    before = [project.query(f"SELECT count(*) FROM {table}") for table in tables]
    with pytest.raises(FingerprintError, match="toy/eval was started with another"):
        # The first arms are new; the last one was begun with another temperature.
        hot = ("agent.model.model_settings.temperature=0.9",)
        await play(project, "aa", "filler", "none", sets=hot)
    assert [project.query(f"SELECT count(*) FROM {table}") for table in tables] == before


@pytest.mark.parametrize(("text", "said"), [("Add.", True), ("Add the numbers. " * 6, False)])
async def test_a_filler_that_cannot_be_as_short_is_said_to_be_longer(
    tmp_path: Path, text: str, said: bool
) -> None:
    project = await finished(tmp_path / "p", *OBJECTIVES)
    ((branch_id,),) = project.query("SELECT head_branch FROM runs WHERE run_id = 'toy'")
    with Store(project.db) as store:
        branch = store.read(branches.load, branch_id)
        library = store.put_library(branch, Library((Experience(1, text),), 2))
        asked = EvalRequest(run=f"L{library.id}", env={})
        request = ArmsRequest(names=("none", "filler"), evaluation=asked)
        prepare_arms(project.session(store), request)
    texts = [event.text for event in project.events if isinstance(event, Notice)]
    assert any("longer than the library" in text for text in texts) == said
