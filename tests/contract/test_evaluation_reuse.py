"""An evaluation that asks what another one asked is not paid for again, whatever its name."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from grpo_practice import Workspace
from tests.contract.project import CONFIG, Project, questions, served

AT = "agent.model.model_provider."


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def named(project: Project, exp_id: str) -> dict[str, Any]:
    """Return options with the project's evaluation in a file, as the published configs have it."""
    path = project.folder / f"{exp_id}.yaml"
    config = yaml.safe_load(CONFIG)["evaluation"]
    path.write_text(yaml.safe_dump({"exp_id": exp_id, **config}, sort_keys=False), "utf-8")
    return {"config": path}


def exported(project: Project) -> Path:
    path = project.folder / "learnt.yaml"
    Workspace(project.db).export("toy", output=path, force=True)
    return path


@pytest.mark.long
async def test_evaluations_of_another_experiment_are_before_and_after(project: Project) -> None:
    published = named(project, "published")
    before = await project.evaluate(**published)
    assert (await project.practise()).after is None
    after = await project.evaluate(**published, agent=exported(project))
    report = await project.practise()
    assert (report.before.run, report.before.score) == ("published/eval", before.score)
    assert (report.after.run, report.after.score) == ("published/eval/learnt", after.score)
    workspace = Workspace(project.db)
    assert workspace.run("toy").scores == {before.run: before.score, after.run: after.score}
    agent = workspace.export("toy").agent.provenance
    assert agent.before is not None
    assert agent.after is not None
    assert (agent.before.run, agent.after.run) == (before.run, after.run)


OTHER = {
    "another model": (f"{AT}model=sim:other",),
    "another temperature": ("agent.model.model_settings.temperature=0.9",),
    "other instructions": ("agent.agent.instructions=Guess.",),
    "another dataset": ("data.dataset=train",),
    "another seed": ("data.dataset=train", "seed=1"),
}


@pytest.mark.long
async def test_what_asks_otherwise_is_asked_and_counts_for_nothing(project: Project) -> None:
    await project.practise()
    agent = exported(project)
    await project.evaluate(**named(project, "whole"), limit=3)  # a part of the test set
    with pytest.raises(Exception, match="spent so far"):  # not complete
        await project.evaluate("seed=2", **named(project, "capped"), max_requests=5)
    for why, sets in OTHER.items():
        other = named(project, why.replace(" ", "-"))
        report = await project.evaluate(*sets, **other)
        assert (report.replayed, report.requests.new) == (0, 12), why
        await project.evaluate(*sets, **other, agent=agent)
        found = await project.practise()
        assert (found.before, found.after) == (None, None), why
    await project.evaluate("verify=contains", **named(project, "contains"))
    assert (await project.practise()).before is None
    await project.evaluate(**named(project, "now"))
    assert (await project.practise()).before is not None
    Workspace(project.db).datasets.upload("test", questions(8), if_exists="replace")
    assert (await project.practise()).before is None, "the test set has changed since"


@pytest.mark.long
async def test_a_deleted_run_hands_its_answers_over_to_the_one_that_uses_them(
    project: Project,
) -> None:
    """Three runs ask the same; the first two, which paid, are deleted one after the other."""
    workspace = Workspace(project.db)
    await project.evaluate(**named(project, "one"))
    two = await project.evaluate("pass_k=2", **named(project, "two"))
    assert (two.replayed, two.requests.new) == (12, 12)
    third = await project.evaluate("pass_k=2", **named(project, "three"))
    assert (third.requests.new, third.replayed) == (0, 24)
    paid = project.query("SELECT count(*), sum(tokens_out) FROM calls")
    for name in ("one", "two"):
        assert list(workspace.delete_run(f"{name}/eval").runs) == [f"{name}/eval"]
        assert (project.wrong, project.query("PRAGMA foreign_key_check")) == ([], [])
        assert project.query("SELECT count(*), sum(tokens_out) FROM calls") == paid
    owners = "SELECT DISTINCT run_id FROM branches UNION SELECT run_id FROM invocations"
    assert project.query("SELECT run_id FROM runs") == project.query(owners) == [("three/eval",)]
    same = await project.evaluate("pass_k=2", **named(project, "three"))
    assert (same.score, same.requests.new) == (third.score, 0)
    more = await project.evaluate("pass_k=3", **named(project, "three"))
    ((total,),) = project.query("SELECT sum(tokens_out) FROM calls")
    assert (more.requests.new, more.usage.tokens_out) == (12, total)
    last = await project.evaluate("pass_k=3", **named(project, "four"))
    assert last.requests.new == 0
    other = await project.evaluate("pass_k=3", "verify=contains", **named(project, "five"))
    assert other.requests.new == 0, "another function scores the same answers"
    again = await project.evaluate("pass_k=3", **named(project, "six"), again=True)
    assert again.requests.new == 36
    gone = workspace.delete_run(*(f"{name}/eval" for name in ("three", "four", "five", "six")))
    assert len(gone.runs) == 4
    for table in ("calls", "failures", "branches", "invocations", "runs"):
        assert project.count(table) == 0, table


@pytest.mark.long
async def test_the_exported_agent_was_evaluated_on_the_way_and_outlives_its_practice(
    project: Project,
) -> None:
    practised = await project.practise("practice.do_eval=true")
    published = named(project, "published")
    first = await project.evaluate(**published, agent=exported(project))
    assert first.requests.new == 0
    assert first.replayed == first.score.planned == 12
    assert first.score == practised.after.score
    Workspace(project.db).delete_run("toy", with_dependants=True)
    assert (project.wrong, project.query("PRAGMA foreign_key_check")) == ([], [])
    again = await project.evaluate("pass_k=2", **published, agent=project.folder / "learnt.yaml")
    assert (again.replayed, again.requests.new) == (0, 12)
    assert again.score.correct >= first.score.correct


OWN = """
import json
import urllib.request

def ask(question, context):
    messages = [{"role": "user", "content": question}]
    body = json.dumps({"model": context.model, "messages": messages}).encode()
    headers = {"Authorization": f"Bearer {context.api_key}", "Content-Type": "application/json"}
    url = f"{context.base_url}/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as reply:
        return json.load(reply)["choices"][0]["message"]["content"]

def one(question, system, context):
    return ask(question, context)

def two(question, system, context):
    return ask(question + "!", context)
"""


async def test_another_function_of_the_same_file_is_another_agent(project: Project) -> None:
    (project.folder / "own.py").write_text(OWN)
    for name, lender in (("one", None), ("two", None), ("one", "one/eval")):
        exp_id = f"{name}-again" if lender else name
        await project.evaluate(
            "agent.type=python", f"agent.function=own.py:{name}", **named(project, exp_id)
        )
        lent = project.query(
            "SELECT run_id FROM branches WHERE branch_id ="
            " (SELECT rebinds FROM branches WHERE run_id = ?)",
            f"{exp_id}/eval",
        )
        assert lent == ([(lender,)] if lender else [])


async def test_a_python_function_has_a_score_before_and_after(project: Project) -> None:
    wanted = {row["question"]: row["answer"] for row in questions(24)}

    def solve(question: str, system: str, context: Any) -> str:
        """Answer right now and then, and more often once it has learnt."""
        right = context.attempt % 2 == 0 or "[E1]" in system
        return f"\\boxed{{{wanted[question] if right else 0}}}"

    before = await project.evaluate(agent=solve)
    assert (await project.practise(agent=solve)).library.experiences
    after = await project.evaluate(agent=solve, library="toy")
    report = await project.practise(agent=solve)
    assert (report.before.run, report.before.score) == (before.run, before.score)
    assert (report.after.run, report.after.score) == (after.run, after.score)
    assert before.run != after.run


ADDRESSES = {
    "another server": "{at}base_url={other}",
    "path": "{at}base_url={root}/{name}/v1",
    "path, from the environment": "{at}base_url=${{oc.env:HERE}}",
    "query of the URL": "{at}base_url={root}/v1?model={name}",
    "extra_headers": "agent.model.model_settings.extra_headers={{x-deployment: {name}-model}}",
    "a short header": "agent.model.model_settings.extra_headers={{x-to: {name}}}",
    "extra_query": "agent.model.model_settings.extra_query={{deployment: {name}-model}}",
}
"""Ways in which it is decided which model of a name is to answer, as overrides."""


@pytest.mark.long
async def test_another_model_of_the_same_name_is_asked(tmp_path: Path) -> None:
    wrong = {}
    async with served() as gateway, served() as second:
        root = gateway.url.removesuffix("/v1")
        for way, override in ADDRESSES.items():
            project, asked = Project(tmp_path / way), []
            for exp_id, name in (("one", "a"), ("two", "b"), ("three", "b")):
                other = gateway.url if name == "a" else second.url
                report = await project.evaluate(
                    f"{AT}model=default",
                    f"{AT}api_key=k",
                    f"{AT}base_url={gateway.url}",
                    override.format(at=AT, root=root, name=name, other=other),
                    **named(project, exp_id),
                    env={"HERE": f"{root}/{name}/v1"},
                )
                asked.append((report.requests.new, report.replayed))
            if asked != [(12, 0), (12, 0), (0, 12)]:
                wrong[way] = asked
        assert len(second.bodies) == 12
    assert wrong == {}


async def test_the_same_run_says_that_its_answers_are_of_another_address(project: Project) -> None:
    said = []
    async with served() as gateway:
        root = gateway.url.removesuffix("/v1")
        for name, restart in (("a", None), ("b", None), ("a", None), ("b", 0), ("b", None)):
            project.events.clear()
            await project.evaluate(
                f"{AT}model=default",
                f"{AT}api_key=k",
                f"{AT}base_url={root}/{name}/v1",
                **named(project, "one"),
                restart_step=restart,
            )
            said.append(any("another address" in text for text in project.notices))
    assert said == [False, True, False, False, False]


@pytest.mark.long
async def test_the_judge_of_a_lender_is_asked_again_unless_it_is_the_same(
    project: Project,
) -> None:
    async with served() as gateway:
        root, judged = gateway.url.removesuffix("/v1"), []
        for exp_id, name in (("one", "a"), ("two", "b"), ("three", "b")):
            before = gateway.by_stage
            await project.evaluate(
                "verify=judge",
                "judge_model.model_provider.model=default",
                "judge_model.model_provider.api_key=k",
                f"judge_model.model_provider.base_url={root}/{name}/v1",
                **named(project, exp_id),
            )
            judged.append(gateway.by_stage.get("judge", 0) - before.get("judge", 0))
        assert judged == [12, 12, 0]
        assert gateway.by_stage == {"judge": 24}


async def test_answers_before_a_pause_are_used_and_none_of_an_unknown_address(
    project: Project,
) -> None:
    with pytest.raises(Exception, match="spent so far"):
        await project.evaluate(**named(project, "none"), max_requests=0)
    with pytest.raises(Exception, match="spent so far"):
        await project.evaluate(**named(project, "one"), max_requests=5)
    assert not [text for text in project.notices if "made the same requests" in text]
    other = await project.evaluate(**named(project, "two"))
    assert (other.replayed, other.requests.new) == (5, 7)
    project.change("UPDATE invocations SET student_at = NULL")
    other = await project.evaluate(**named(project, "three"))
    assert (other.replayed, other.requests.new) == (0, 12)


async def test_a_header_is_stored_as_a_salted_hash_alone(project: Project) -> None:
    secret = "tiny-1"
    header = f"agent.model.model_settings.extra_headers={{x-key: {secret}}}"
    for exp_id in ("one", "two"):
        await project.evaluate(header, **named(project, exp_id))
        project.change("UPDATE address_salt SET salt = randomblob(16)")  # as in another database
    (one,), (two,) = project.query("SELECT student_at FROM invocations")
    assert len(one) == len(two) == 16
    assert one != two
    assert secret.encode() not in project.db.read_bytes()
