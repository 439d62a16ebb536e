"""A capped run is a clean prefix of the uncapped one: it pauses, goes on, and ends the same."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.endpoint.actions import completion
from tests.contract.project import Project, Said, served

PRICED = "evaluation.prices={sim: {input: 10, output: 20}}"
"""Dollars per million tokens: a request of the toy costs some hundred micro-dollars."""
EVALUATED = ("practice.do_eval=true", "practice.eval_data_truncate=4", PRICED)
SPENT = "SELECT sum(tries), sum(tokens_in + tokens_out), sum(cost_micro) / 1e6 FROM calls"
CAPS = {"max_requests": (30, 75), "max_tokens": (6_000, 16_000), "max_cost": (0.07, 0.18)}
PAUSED = "spent so far"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path / "capped")


def spent(project: Project) -> dict[str, float]:
    """Return what the stored calls took, by the option that caps it."""
    return dict(zip(CAPS, project.query(SPENT)[0], strict=True))


@pytest.mark.long
async def test_a_run_that_paused_twice_ends_as_one_that_never_did(tmp_path: Path) -> None:
    whole = Project(tmp_path / "whole")
    uncapped = await whole.practise(*EVALUATED)
    for name, amounts in CAPS.items():
        project = Project(tmp_path / name)
        for amount in amounts:
            cap: dict[str, Any] = {name: amount}
            with pytest.raises(Exception, match=PAUSED):
                await project.practise(*EVALUATED, **cap)
            assert spent(project)[name] <= amount
            status = project.query("SELECT status FROM runs WHERE run_id = 'toy'")
            assert status == [("paused",)]
            before = project.count("calls")
            assert before > 10
            with pytest.raises(Exception, match=PAUSED):
                await project.practise(*EVALUATED, **cap)
            assert spent(project)[name] <= amount
            # Short requests may still fit into a cap of tokens.
            assert project.count("calls") - before <= (0 if name == "max_requests" else 8)
            code = project.query(
                "SELECT exit_code FROM invocations WHERE run_id = 'toy' ORDER BY invocation_id"
            )[-1][0]
            assert code == 6
        capped = await project.practise(*EVALUATED)
        assert (project.results(), project.count("calls")) == (
            whole.results(),
            whole.count("calls"),
        )
        assert (capped.library, capped.usage) == (uncapped.library, uncapped.usage)

    # What a run cost is told where it is read; restarts and evaluations on the way count.
    (total,) = whole.query("SELECT sum(cost_micro) FROM calls")[0]
    document = uncapped.document()
    assert 0 < document["usage"]["cost_usd"] == total / 1e6
    assert whole.query("SELECT round(sum(usd), 6), sum(unpriced) FROM v_costs") == [
        (total / 1e6, 0)
    ]
    played = whole.query("SELECT sum(cost_micro) FROM calls WHERE stage = 'play'")[0]
    assert whole.query("SELECT sum(cost_micro) FROM rollouts")[0] == played
    assert whole.query("SELECT DISTINCT price FROM calls") == [("config",)]
    assert all(cost > 0 for cost in document["step_cost_usd"].values())
    await whole.practise(*EVALUATED, restart_step=3)
    requests = int(spent(whole)["max_requests"])
    with pytest.raises(Exception, match=f"{requests} requests spent so far"):
        await whole.practise(*EVALUATED, restart_step=0, again=True, max_requests=requests)
    with pytest.raises(Exception, match="5 requests spent so far"):
        await whole.evaluate("exp_id=own", max_requests=5)  # an account of its own


async def test_a_cap_is_never_passed_and_failed_tries_are_requests_too(project: Project) -> None:
    def odd(n: int, body: dict[str, Any]) -> Said | None:
        return (400, {"error": {"message": "odd"}}) if n <= 3 else None

    async with served(odd) as endpoint:
        with pytest.raises(Exception, match=PAUSED):
            await project.practise(endpoint.override(), max_requests=25)
        assert (len(endpoint.bodies), project.count("calls")) == (25, 22)
        with pytest.raises(Exception, match=PAUSED):
            await project.practise(endpoint.override(), max_requests=25)
        assert len(endpoint.bodies) == 25


USAGE = {"prompt_tokens": 30, "completion_tokens": 10}


@pytest.mark.long_after(1)
@pytest.mark.parametrize("usage", [None, USAGE], ids=["without", "with"])
async def test_1_42_an_endpoint_without_usage_pauses_by_estimates(
    project: Project, usage: dict[str, Any] | None
) -> None:
    def hook(n: int, body: dict[str, Any]) -> Said:
        message = {"role": "assistant", "content": r"\boxed{1}"}
        said = {"choices": [{"message": message, "finish_reason": "stop"}]}
        return 200, said | ({"usage": usage} if usage else {})

    async with served(hook) as endpoint:
        if usage:
            await project.practise(endpoint.override(), max_tokens=9_000)
            assert project.query("SELECT sum(tokens_in IS NULL) FROM calls") == [(0,)]
            return
        with pytest.raises(Exception, match=PAUSED):
            await project.practise(endpoint.override(), max_tokens=9_000)
        asked = len(endpoint.bodies)
        assert 2 <= asked <= 4  # each may have come to 2,000 tokens and its prompt
        with pytest.raises(Exception, match=PAUSED):
            await project.practise(endpoint.override(), max_tokens=9_000)
        assert len(endpoint.bodies) == asked
    tokens = project.query("SELECT sum(tokens_in IS NULL), sum(tokens_in = 0) FROM calls")
    assert tokens == [(asked, None)]


def answered(answer: dict[str, Any], n: int, body: dict[str, Any]) -> Said:
    return 200, answer


async def test_1_43_cached_tokens_are_stored_and_priced_as_such(tmp_path: Path) -> None:
    prices = "prices={sim: {input: 10, cached_input: 1, output: 20, reasoning: 30}}"
    cases: list[dict[str, Any]] = [
        {"prompt_tokens_details": {"cached_tokens": 20}},
        {"prompt_cache_hit_tokens": 20},
    ]
    for n, cached in enumerate(cases):
        thought = {"completion_tokens_details": {"reasoning_tokens": 4}}
        answer = completion("1", usage=USAGE | cached | thought)
        hook = partial(answered, answer)
        project = Project(tmp_path / str(n))
        async with served(hook) as endpoint:
            await project.evaluate(endpoint.override().removeprefix("evaluation."), prices)
        assert project.query(
            """SELECT DISTINCT tokens_in, tokens_cached, tokens_out, tokens_reasoning, cost_micro,
                      price FROM calls"""
        ) == [(30, 20, 10, 4, 10 * 10 + 20 * 1 + 6 * 20 + 4 * 30, "config")], cached


async def test_calls_from_before_there_was_a_price_are_priced_now(project: Project) -> None:
    async with served() as endpoint:
        at = endpoint.override()
        await project.practise("practice.epochs=1", at)
        assert project.query("SELECT sum(cost_micro), count(price) FROM calls") == [(None, 0)]
        calls = project.query("SELECT tokens_in, tokens_out FROM calls")
        tokens = sum(i + o for i, o in calls)
        with pytest.raises(Exception, match=PAUSED):
            await project.practise("practice.epochs=2", at, max_tokens=tokens + 200)
        assert project.count("calls") == len(calls)
        usd = sum(10 * i + 20 * o for i, o in calls) / 1e6
        with pytest.raises(Exception, match=PAUSED):
            await project.practise("practice.epochs=2", at, PRICED, max_cost=usd + 1e-5)
        assert project.count("calls") == len(calls)
        with pytest.raises(Exception, match=PAUSED):
            await project.practise("practice.epochs=2", at, PRICED, max_cost=usd + 0.02)
        assert project.count("calls") > len(calls)


async def test_money_is_not_capped_where_a_model_has_no_price(project: Project) -> None:
    reader = {"model": "reads", "base_url": "http://127.0.0.1:9/v1", "api_key": "none"}
    kit = {
        "mode": "builtin",
        "name": "search",
        "config": {"search_url": "http://127.0.0.1:9", "crawl_engine": "local"},
        "config_llm": {"model_provider": reader},
    }
    at = "evaluation.agent.model.model_provider"
    cases = {
        "sim": (f"{at}.base_url=http://127.0.0.1:9/v1", f"{at}.api_key=none"),
        "reads": (f"evaluation.agent.toolkits={json.dumps({'web': kit})}", PRICED),
    }
    for model, sets in cases.items():
        with pytest.raises(Exception, match=f"the price of model '{model}'") as caught:
            await project.practise(*sets, max_cost=0.000001)
        error: Any = caught.value
        assert error.exit_code == 2
        assert f"evaluation.prices: {{'{model}': {{input: 0.27, output: 1.10}}}}" in error.hint
    assert project.count("calls") == project.count("runs") == 0
    assert Workspace(project.db).runs().runs == []
