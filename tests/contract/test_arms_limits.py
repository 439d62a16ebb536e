"""Arms are played over the same connections, under one limit and one cap."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from grpo_practice import Workspace
from tests.contract.endpoint.actions import completion
from tests.contract.endpoint.simulated import stage_of
from tests.contract.project import CONFIG, Project, Said, finished, served

OBJECTIVES = ("practice.agent_objective=Add.", "practice.learning_objective=Be exact.")


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    return await finished(tmp_path / "p", *OBJECTIVES)


async def play(project: Project, *names: str, sets: tuple[str, ...] = (), **more: Any) -> Any:
    given: dict[str, Any] = {"config": project.config, "env": {}, "on_event": project.events.append}
    return await Workspace(project.db).evaluate_arms_async(names, sets=sets, **(given | more))


@pytest.mark.long
async def test_all_arms_together_have_no_more_in_flight_than_one(project: Project) -> None:
    async with served() as endpoint:
        at = endpoint.override().removeprefix("evaluation.")
        judge = ("judge_model.model_provider.model=sim", at.replace("agent.model", "judge_model"))
        limits = ("concurrency=6", "judge_concurrency=1")
        sets = (at, "verify=judge", *judge, *limits)
        await play(project, "none", "full", "aa", "filler", sets=sets)
    assert endpoint.by_stage == {"judge": 4 * 12, "play": 4 * 12}
    # The judge's limit is one for all arms, too.
    assert 1 < endpoint.most_open["play"] <= 6
    assert endpoint.most_open["judge"] == 1


@pytest.mark.long
async def test_a_cap_is_one_for_all_arms_and_what_each_has_spent_counts(project: Project) -> None:
    before = project.count("calls")
    with pytest.raises(Exception, match="20 requests spent so far"):
        await play(project, "none", "full", "direct", "filler", max_requests=20)
    assert project.count("calls") == before + 20
    await play(project, "none", "full", "direct", "filler")
    assert project.query("SELECT count(*) FROM calls WHERE stage = 'direct'") == [(1,)]
    with pytest.raises(Exception, match="24 requests spent so far"):
        await play(project, "none", "full", "aa", max_requests=20)


async def test_what_the_arms_cost_before_counts_once(project: Project) -> None:
    await play(project, "none", "full")
    # 12 that `full` has, one of the teacher, and 12 to play.
    await play(project, "full", "direct", max_requests=25)
    before = project.count("calls")
    with pytest.raises(Exception, match="24 requests spent so far"):
        await play(project, "none", "direct", sets=("pass_k=2",), max_requests=24)
    assert project.count("calls") == before


@pytest.mark.long
async def test_a_teacher_that_writes_no_library_is_asked_anew_by_the_next_command(
    tmp_path: Path,
) -> None:
    unusable: list[str] = ["no JSON at all", '{"operations": []}', ""]
    said = [*unusable]

    def hook(_: int, body: dict[str, Any]) -> Said | None:
        return (200, completion(said[0])) if said and stage_of(body) == "direct" else None

    project = Project(tmp_path / "p")
    async with served(hook) as endpoint:
        await project.practise(*OBJECTIVES, endpoint.override())
        sets = (endpoint.override().removeprefix("evaluation."),)
        for times in range(1, len(unusable) + 1):
            with pytest.raises(Exception, match="could not be written") as failed:
                await play(project, "none", "direct", sets=sets)
            error: Any = failed.value
            assert "repeat the command" in error.hint
            assert endpoint.by_stage["direct"] == times * 3
            said.pop(0)
        for _ in range(2):
            await play(project, "none", "direct", sets=sets)
            assert endpoint.by_stage["direct"] == len(unusable) * 3 + 1
    seeds = [body["seed"] for body in endpoint.bodies if stage_of(body) == "direct"]
    assert len(set(seeds)) == len(seeds)


def agent_of(folder: Path, url: str) -> str:
    """Write an agent's file with a model of its own, and return its name."""
    file = folder / "m.yaml"
    provider = {"model": "m", "base_url": url, "api_key": "nothing-secret"}
    agent = {"name": "other", "instructions": "Be brief."}
    file.write_text(yaml.safe_dump({"type": "simple", "model": {"model_provider": provider},
                                    "agent": agent}))  # fmt: skip
    return str(file)


async def test_what_cannot_be_compared_is_refused_before_it_is_paid(project: Project) -> None:
    counts = "SELECT (SELECT count(*) FROM runs), (SELECT count(*) FROM libraries)"
    before = project.query(counts)
    by_judge = {"verify": "judge"}
    cases: list[tuple[str, dict[str, Any], str]] = [
        (
            "real",
            {"sets": ("prices={real: {input: 1, output: 1}}",), "max_cost": 1.0},
            "the price of model 'm' at",
        ),
        ("sim", {}, "toy/eval is simulated, and toy/eval/m is not"),
        (
            "real",
            by_judge,
            "verify=judge and toy/eval/m/verify=judge would be judged by real and m",
        ),
    ]
    async with served() as endpoint:
        agent = agent_of(project.folder, endpoint.url)
        for model, more, why in cases:
            provider = f"{{model: {model}, base_url: '{endpoint.url}', api_key: nothing-secret}}"
            project.config.write_text(CONFIG.replace("{model: sim}", provider))
            with pytest.raises(Exception, match=why):
                await play(project, "none", agent, "filler", **more)
        assert endpoint.bodies == []
        one = (
            f"judge_model={{model_provider: {{model: x, base_url: '{endpoint.url}', api_key: k}}}}"
        )
        forecast = Workspace(project.db).forecast_arms(
            ("none", agent), project.config, env={}, sets=(one,), verify="judge"
        )
        assert {line.part for line in forecast.stages} == {"none", agent}
        assert endpoint.bodies == []
    assert project.query(counts) == before


async def test_an_arm_that_was_begun_otherwise_keeps_the_others_from_beginning(
    project: Project,
) -> None:
    await play(project, "none", "full")
    tables = ("runs", "branches", "invocations", "rollouts")
    before = [project.count(table) for table in tables]
    with pytest.raises(Exception, match="toy/eval was started with a different configuration"):
        # The first arms are new; the last one was begun with another temperature.
        hot = ("agent.model.model_settings.temperature=0.9",)
        await play(project, "aa", "filler", "none", sets=hot)
    assert [project.count(table) for table in tables] == before


async def test_direct_without_objectives_is_refused(tmp_path: Path) -> None:
    project = await finished(tmp_path / "p")
    with pytest.raises(Exception, match="toy has no objectives that `direct` could be"):
        await play(project, "none", "direct", "filler")
    assert project.query("SELECT count(*) FROM libraries WHERE cause = 'import'") == [(0,)]


async def test_a_filler_that_cannot_be_as_short_is_said_to_be_longer(project: Project) -> None:
    for text, said in (("Add.", True), ("Add the numbers. " * 6, False)):
        file = project.folder / f"hand{said}.yaml"
        file.write_text(f"- '{text}'\n")
        project.events.clear()
        await play(project, str(file), "filler", "none")
        assert any("longer than the library" in t for t in project.notices) == said
