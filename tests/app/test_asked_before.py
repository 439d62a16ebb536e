"""An evaluation that asks what another one asked is not paid again, whatever its name."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from grpo_practice.errors import PausedError
from grpo_practice.events import Notice
from grpo_practice.llm.budget import Caps
from grpo_practice.store import Store
from grpo_practice.store.check import check
from grpo_practice.store.migrate import migrate
from tests.app.project import Project
from tests.app.test_before_and_after import evaluation, exported
from tests.contract.project import served


async def test_the_exported_agent_was_evaluated_on_the_way(tmp_path: Path) -> None:
    project = Project(tmp_path)
    practised = await project.practise("practice.do_eval=true")
    assert practised.after is not None
    again = await project.evaluate(
        config=evaluation(tmp_path, "published"), agent=exported(project)
    )
    assert again.requests.new == 0
    assert again.replayed == again.score.planned == 12
    assert again.score == practised.after.score


async def test_a_deleted_run_hands_its_answers_over_to_the_one_that_uses_them(
    tmp_path: Path,
) -> None:
    """Three runs ask the same; the first two, which paid, are deleted one after the other."""
    project = Project(tmp_path)
    await project.evaluate(config=evaluation(tmp_path, "one"))
    await project.evaluate("pass_k=2", config=evaluation(tmp_path, "two"))
    third = await project.evaluate("pass_k=2", config=evaluation(tmp_path, "three"))
    assert (third.requests.new, third.replayed) == (0, 24)
    paid = project.query("SELECT count(*), sum(tokens_out) FROM calls")
    for name in ("one", "two"):
        with Store(project.db) as store:
            assert store.delete_runs([f"{name}/eval"]) == [f"{name}/eval"]
        assert not [finding for finding in check(project.db) if finding.wrong]
        assert project.query("PRAGMA foreign_key_check") == []
        assert project.query("SELECT count(*), sum(tokens_out) FROM calls") == paid
    runs = "SELECT run_id FROM runs"
    owners = "SELECT DISTINCT run_id FROM branches UNION SELECT run_id FROM invocations"
    assert project.query(runs) == project.query(owners) == [("three/eval",)]
    same = await project.evaluate("pass_k=2", config=evaluation(tmp_path, "three"))
    assert (same.score, same.requests.new) == (third.score, 0)
    more = await project.evaluate("pass_k=3", config=evaluation(tmp_path, "three"))
    assert (more.requests.new, more.usage.tokens_out) == (12, tokens_out(project))
    last = await project.evaluate("pass_k=3", config=evaluation(tmp_path, "four"))
    assert last.requests.new == 0
    with Store(project.db) as store:
        gone = store.delete_runs(["three/eval", "four/eval"])
    assert sorted(gone) == ["four/eval", "three/eval"]
    for table in ("calls", "failures", "branches", "invocations", "runs"):
        assert project.query(f"SELECT count(*) FROM {table}") == [(0,)]


def tokens_out(project: Project) -> int:
    (total,) = project.query("SELECT sum(tokens_out) FROM calls")[0]
    return int(total)


async def test_the_exported_agent_keeps_answers_of_a_practice_that_is_deleted(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path)
    await project.practise("practice.do_eval=true")
    published = evaluation(tmp_path, "published")
    first = await project.evaluate(config=published, agent=exported(project))
    with Store(project.db) as store:
        assert "toy" in store.delete_runs(["toy"])
    assert not [finding for finding in check(project.db) if finding.wrong]
    assert project.query("PRAGMA foreign_key_check") == []
    again = await project.evaluate("pass_k=2", config=published, agent=tmp_path / "learnt.yaml")
    assert (again.replayed, again.requests.new) == (0, 12)
    assert again.score.correct >= first.score.correct


async def test_more_rollouts_a_question_pay_for_the_new_ones_alone(tmp_path: Path) -> None:
    project = Project(tmp_path)
    await project.evaluate(config=evaluation(tmp_path, "one"))
    more = await project.evaluate("pass_k=3", config=evaluation(tmp_path, "two"))
    assert (more.replayed, more.requests.new) == (12, 24)


async def test_another_function_scores_the_same_answers(tmp_path: Path) -> None:
    project = Project(tmp_path)
    await project.evaluate(config=evaluation(tmp_path, "one"))
    other = await project.evaluate("verify=contains", config=evaluation(tmp_path, "two"))
    assert other.requests.new == 0


@pytest.mark.parametrize(
    "override",
    [
        "agent.model.model_provider.model=sim:other",
        "agent.model.model_settings.temperature=0.9",
        "agent.agent.instructions=Guess.",
        "data.dataset=train",
        "seed=1",
    ],
)
async def test_what_asks_otherwise_is_asked(tmp_path: Path, override: str) -> None:
    project = Project(tmp_path)
    await project.evaluate(config=evaluation(tmp_path, "one"))
    other = await project.evaluate(override, config=evaluation(tmp_path, "two"))
    assert (other.replayed, other.requests.new) == (0, 12)


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


async def test_another_function_of_the_same_file_is_another_agent(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    project = Project(tmp_path)
    for name, lender in (("one", None), ("two", None), ("one", "one/eval")):
        exp_id = f"{name}-again" if lender else name
        await project.evaluate(
            "agent.type=python",
            f"agent.function=own.py:{name}",
            config=evaluation(tmp_path, exp_id),
        )
        lent = project.query(
            "SELECT run_id FROM branches WHERE branch_id ="
            " (SELECT rebinds FROM branches WHERE run_id = ?)",
            f"{exp_id}/eval",
        )
        assert lent == ([(lender,)] if lender else [])


@pytest.mark.parametrize("from_environment", [False, True])
async def test_another_server_of_a_model_of_the_same_name_is_asked(
    tmp_path: Path, from_environment: bool
) -> None:
    project, at = Project(tmp_path), "agent.model.model_provider."
    async with served() as one, served() as two:
        asked = []
        for name, url in (("one", one.url), ("two", two.url), ("three", two.url)):
            report = await project.evaluate(
                f"{at}model=default",
                f"{at}api_key=k",
                f"{at}base_url={'${oc.env:HERE}' if from_environment else url}",
                config=evaluation(tmp_path, name),
                env={"HERE": url},
            )
            asked.append((report.requests.new, report.replayed))
        assert asked == [(12, 0), (12, 0), (0, 12)]
        assert (len(one.bodies), len(two.bodies)) == (12, 12)


DEPLOYMENTS = {
    "path": "agent.model.model_provider.base_url={url}/{name}/v1",
    "path, from the environment": "agent.model.model_provider.base_url=${{oc.env:HERE}}",
    "query of the URL": "agent.model.model_provider.base_url={url}/v1?model={name}",
    "extra_headers": "agent.model.model_settings.extra_headers={{x-deployment: {name}-model}}",
    "a short header": "agent.model.model_settings.extra_headers={{x-to: {name}}}",
    "extra_query": "agent.model.model_settings.extra_query={{deployment: {name}-model}}",
}
"""Ways in which a gateway is told which model is to answer, as overrides."""


@pytest.mark.parametrize("way", DEPLOYMENTS)
async def test_another_model_behind_the_same_gateway_is_asked(tmp_path: Path, way: str) -> None:
    project = Project(tmp_path)
    async with served() as gateway:
        root, asked = gateway.url.removesuffix("/v1"), []
        for exp_id, name in (("one", "a"), ("two", "b"), ("three", "b")):
            report = await project.evaluate(
                "agent.model.model_provider.model=default",
                "agent.model.model_provider.api_key=k",
                f"agent.model.model_provider.base_url={gateway.url}",
                DEPLOYMENTS[way].format(url=root, name=name),
                config=evaluation(tmp_path, exp_id),
                env={"HERE": f"{root}/{name}/v1"},
            )
            asked.append((report.requests.new, report.replayed))
    assert asked == [(12, 0), (12, 0), (0, 12)]


async def test_the_same_run_says_that_its_answers_are_of_another_address(tmp_path: Path) -> None:
    project, at, said = Project(tmp_path), "agent.model.model_provider.", []
    async with served() as gateway:
        root = gateway.url.removesuffix("/v1")
        for name, restart in (("a", None), ("b", None), ("a", None), ("b", 0), ("b", None)):
            project.events.clear()
            await project.evaluate(
                f"{at}model=default",
                f"{at}api_key=k",
                f"{at}base_url={root}/{name}/v1",
                config=evaluation(tmp_path, "one"),
                restart_step=restart,
            )
            texts = [e.text for e in project.events if isinstance(e, Notice)]
            said.append(any("another address" in text for text in texts))
    assert said == [False, True, False, False, False]


async def test_the_judge_of_a_lender_is_asked_again_unless_it_is_the_same(tmp_path: Path) -> None:
    project = Project(tmp_path)
    async with served() as gateway:
        root, judged = gateway.url.removesuffix("/v1"), []
        for exp_id, name in (("one", "a"), ("two", "b"), ("three", "b")):
            before = gateway.by_stage
            await project.evaluate(
                "verify=judge",
                "judge_model.model_provider.model=default",
                "judge_model.model_provider.api_key=k",
                f"judge_model.model_provider.base_url={root}/{name}/v1",
                config=evaluation(tmp_path, exp_id),
            )
            judged.append(gateway.by_stage.get("judge", 0) - before.get("judge", 0))
        assert judged == [12, 12, 0]
        assert gateway.by_stage == {"judge": 24}


async def test_answers_of_an_address_that_is_not_known_are_not_used(tmp_path: Path) -> None:
    project = Project(tmp_path)
    await project.evaluate(config=evaluation(tmp_path, "one"))
    with closing(sqlite3.connect(project.db)) as db, db:
        db.execute("UPDATE invocations SET student_at = NULL")
    other = await project.evaluate(config=evaluation(tmp_path, "two"))
    assert (other.replayed, other.requests.new) == (0, 12)


async def test_a_run_without_answers_lends_none(tmp_path: Path) -> None:
    project = Project(tmp_path)
    with pytest.raises(PausedError):
        await project.evaluate(config=evaluation(tmp_path, "one"), caps=Caps(requests=0))
    project.events.clear()
    await project.evaluate(config=evaluation(tmp_path, "two"))
    assert not [e for e in project.events if isinstance(e, Notice) and "asked the same" in e.text]


async def test_a_header_is_stored_as_a_salted_hash_alone(tmp_path: Path) -> None:
    project, secret = Project(tmp_path), "tiny-1"
    header = f"agent.model.model_settings.extra_headers={{x-key: {secret}}}"
    for exp_id in ("one", "two"):
        await project.evaluate(header, config=evaluation(tmp_path, exp_id))
        with closing(sqlite3.connect(project.db)) as db, db:  # as if in another database
            db.execute("UPDATE address_salt SET salt = randomblob(16)")
    (one,), (two,) = project.query("SELECT student_at FROM invocations")
    assert len(one) == len(two) == 16
    assert one != two
    assert secret.encode() not in project.db.read_bytes()


def test_each_database_has_a_salt_of_its_own() -> None:
    salts = set()
    for _ in range(2):
        with closing(sqlite3.connect(":memory:")) as db:
            migrate(db)
            salts |= {*db.execute("SELECT salt FROM address_salt")}
    assert len(salts) == 2


async def test_what_was_answered_before_a_pause_is_used(tmp_path: Path) -> None:
    project = Project(tmp_path)
    with pytest.raises(PausedError):
        await project.evaluate(config=evaluation(tmp_path, "one"), caps=Caps(requests=5))
    other = await project.evaluate(config=evaluation(tmp_path, "two"))
    assert (other.replayed, other.requests.new) == (5, 7)


async def test_again_asks_again(tmp_path: Path) -> None:
    project = Project(tmp_path)
    await project.evaluate(config=evaluation(tmp_path, "one"))
    again = await project.evaluate(config=evaluation(tmp_path, "two"), again=True)
    assert again.requests.new == 12


async def test_evaluations_on_the_way_begin_with_the_agent_before_it_has_learnt(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path)
    practised = await project.practise("practice.do_eval=true")
    assert practised.before is not None
    assert practised.before.run == "toy/eval"
    by_hand = await project.evaluate()
    assert (by_hand.run, by_hand.requests.new) == ("toy/eval", 0)
    assert by_hand.score == practised.before.score


async def test_a_baseline_made_by_hand_stays(tmp_path: Path) -> None:
    project = Project(tmp_path)
    by_hand = await project.evaluate("pass_k=2")
    practised = await project.practise("practice.do_eval=true")
    assert practised.before is not None
    assert practised.before.score == by_hand.score
