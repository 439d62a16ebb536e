"""An evaluation that asks what another one asked is not paid again, whatever its name."""

from pathlib import Path

import pytest

from grpo_practice.errors import ConfigError, PausedError
from grpo_practice.llm.budget import Caps
from grpo_practice.store import Store
from tests.app.project import Project, served
from tests.app.test_before_and_after import evaluation, exported


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
    with Store(project.db) as store, pytest.raises(ConfigError, match="has its answers from it"):
        store.delete_run("toy")


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


async def test_another_function_of_the_same_file_is_another_agent(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def one(q, s, c): return '1'\n\ndef two(q, s, c): return '2'\n"
    )
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
