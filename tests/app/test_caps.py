"""A capped run is a clean prefix of the uncapped one: it pauses, goes on, and ends the same."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.app.caps import admission
from grpo_practice.config import load_eval, load_practice, read_environment
from grpo_practice.errors import ConfigError, PausedError
from grpo_practice.llm.budget import NO_CAPS, Amount, Caps
from grpo_practice.store import Store
from tests.app.project import Project
from tests.contract.project import Hook, served

PRICED = "evaluation.prices={sim: {input: 10, output: 20}}"
"""Dollars per million tokens: a request of the toy costs some hundred micro-dollars."""
EVALUATED = ("practice.do_eval=true", "practice.eval_data_truncate=4", PRICED)


@dataclass
class Capped(Project):
    """A project whose commands are capped."""

    run: str = "toy"

    def account(self, store: Store, *overrides: str) -> Any:
        env = read_environment({}, self.folder)
        if self.run != "toy":
            eval_overrides = [o.removeprefix("evaluation.") for o in overrides]
            config: Any = load_eval(self.config, eval_overrides, env).config
        else:
            config = load_practice(self.config, overrides, env).config
        return admission(store, [self.run], [config], self.caps, f"test --max-requests {self.caps}")

    def spent(self) -> Amount:
        """As the database has it."""
        with Store(self.db) as store:
            given, self.caps = self.caps, Caps(10**9, 10**9, 10**15)
            found: Amount = self.account(store, PRICED).account.spent
            self.caps = given
        return found

    def calls(self) -> int:
        return int(self.query("SELECT count(*) FROM calls")[0][0])


FITTED = {True: 8, False: 0}
"""How many requests the same cap lets through again: of tokens, short ones that still fit."""


@pytest.fixture
def whole(tmp_path: Path) -> Project:
    return Project(tmp_path / "whole")


@pytest.fixture
def project(tmp_path: Path) -> Capped:
    return Capped(tmp_path / "capped")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Caps(requests=30), Caps(requests=75)),
        (Caps(tokens=6_000), Caps(tokens=16_000)),
        (Caps(cost_micro=70_000), Caps(cost_micro=180_000)),
    ],
    ids=["requests", "tokens", "cost"],
)
async def test_a_run_that_paused_twice_ends_as_one_that_never_did(
    whole: Project, project: Capped, first: Caps, second: Caps
) -> None:
    uncapped = await whole.practise(*EVALUATED)
    for caps in (first, second):
        project.caps = caps
        with pytest.raises(PausedError):
            await project.practise(*EVALUATED)
        assert caps.exceeded(project.spent()) is None
        assert project.query("SELECT DISTINCT status FROM runs WHERE run_id = 'toy'") == [
            ("paused",)
        ]
        before = project.calls()
        assert before > 10
        with pytest.raises(PausedError):
            await project.practise(*EVALUATED)
        assert caps.exceeded(project.spent()) is None
        assert project.calls() - before <= FITTED[caps.requests is None]
        code = project.query(
            "SELECT exit_code FROM invocations WHERE run_id = 'toy' ORDER BY invocation_id"
        )[-1][0]
        assert code == 6
    project.caps = NO_CAPS
    capped = await project.practise(*EVALUATED)
    assert project.results() == whole.results()
    assert capped.library == uncapped.library
    assert project.calls() == whole.query("SELECT count(*) FROM calls")[0][0]
    assert capped.usage == uncapped.usage


async def test_the_evaluations_on_the_way_and_earlier_branches_count(project: Capped) -> None:
    await project.practise(*EVALUATED)
    await project.practise(*EVALUATED, restart_step=3)
    of_all = project.query(
        "SELECT sum(tries), sum(tokens_in + tokens_out), sum(cost_micro) FROM calls"
    )[0]
    assert project.spent() == Amount(*of_all)
    children = project.query("SELECT count(*) FROM runs WHERE parent_run_id = 'toy'")[0][0]
    assert children > 0
    project.caps = Caps(requests=of_all[0])
    with pytest.raises(PausedError, match=rf"{of_all[0]} requests spent so far"):
        await project.practise(*EVALUATED, restart_step=0, again=True)


async def test_a_cap_is_never_passed_and_what_was_paid_is_stored(project: Capped) -> None:
    project.caps = Caps(requests=25)
    async with served() as endpoint:
        with pytest.raises(PausedError):
            await project.practise(endpoint.override())
        assert len(endpoint.bodies) == 25
        assert project.calls() == 25


async def test_failed_tries_are_requests_too(project: Capped) -> None:
    def busy(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (400, {"error": {"message": "odd"}}) if n <= 3 else None

    project.caps = Caps(requests=10)
    async with served(busy) as endpoint:
        with pytest.raises(PausedError):
            await project.practise(endpoint.override())
        assert (len(endpoint.bodies), project.calls()) == (10, 7)
        with pytest.raises(PausedError):
            await project.practise(endpoint.override())
        assert len(endpoint.bodies) == 10


def without_usage(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
    message = {"role": "assistant", "content": r"\boxed{1}"}
    return 200, {"choices": [{"message": message, "finish_reason": "stop"}]}


def with_usage(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
    status, said = without_usage(n, body) or (200, {})
    return status, said | {"usage": {"prompt_tokens": 30, "completion_tokens": 10}}


@pytest.mark.parametrize("hook", [without_usage, with_usage], ids=["without", "with"])
async def test_1_42_an_endpoint_without_usage_pauses_by_estimates(
    project: Capped, hook: Hook
) -> None:
    project.caps = Caps(tokens=9_000)
    async with served(hook) as endpoint:
        try:
            await project.practise(endpoint.override())
            paused = False
        except PausedError:
            paused = True
        asked = len(endpoint.bodies)
        assert paused is (hook is without_usage)
        if paused:
            assert 2 <= asked <= 4  # each may have come to 2,000 tokens and its prompt
            with pytest.raises(PausedError):
                await project.practise(endpoint.override())
            assert len(endpoint.bodies) == asked
    tokens = project.query("SELECT sum(tokens_in IS NULL), sum(tokens_in = 0) FROM calls")[0]
    assert tokens == ((asked, None) if paused else (0, 0))


@pytest.mark.parametrize(
    "cached",
    [{"prompt_tokens_details": {"cached_tokens": 20}}, {"prompt_cache_hit_tokens": 20}],
    ids=["openai", "deepseek"],
)
async def test_1_43_cached_tokens_are_stored_and_priced_as_such(
    project: Capped, cached: dict[str, Any]
) -> None:
    def hook(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        status, said = with_usage(n, body) or (200, {})
        thought = {"completion_tokens_details": {"reasoning_tokens": 4}}
        return status, said | {"usage": said["usage"] | cached | thought}

    prices = "prices={sim: {input: 10, cached_input: 1, output: 20, reasoning: 30}}"
    async with served(hook) as endpoint:
        await project.evaluate(endpoint.override().removeprefix("evaluation."), prices)
    assert project.query(
        """SELECT DISTINCT tokens_in, tokens_cached, tokens_out, tokens_reasoning, cost_micro, price
             FROM calls"""
    ) == [(30, 20, 10, 4, 10 * 10 + 20 * 1 + 6 * 20 + 4 * 30, "config")]


async def test_an_evaluation_has_its_own_account(project: Capped) -> None:
    await project.practise(PRICED)
    project.run, project.caps = "toy/eval", Caps(requests=5)
    with pytest.raises(PausedError):
        await project.evaluate(PRICED.removeprefix("evaluation."))
    (n,) = project.query(
        "SELECT count(*) FROM calls JOIN invocations USING (invocation_id)"
        " WHERE run_id = 'toy/eval'"
    )[0]
    assert n == 5


async def test_calls_from_before_there_was_a_price_are_priced_now(project: Capped) -> None:
    async with served() as endpoint:
        await project.practise("practice.epochs=1", endpoint.override())
    assert project.query("SELECT sum(cost_micro), count(price) FROM calls") == [(None, 0)]
    calls = project.query("SELECT tokens_in, tokens_out FROM calls")
    assert abs(project.spent().cost_micro - sum(10 * i + 20 * o for i, o in calls)) <= len(calls)


async def test_the_longest_reply_is_known_to_the_next_command(project: Capped) -> None:
    await project.practise("practice.epochs=1", PRICED)
    project.caps = Caps(tokens=10**9)
    with Store(project.db) as store:
        largest = project.account(store).account.largest
    (most,) = project.query("SELECT max(tokens_out) FROM calls")[0]
    assert largest == {"sim": most}


async def test_money_is_not_capped_where_a_model_has_no_price(project: Capped) -> None:
    env = read_environment({}, project.folder)
    url = "evaluation.agent.model.model_provider.base_url=http://127.0.0.1:9/v1"
    config = load_practice(project.config, [url], env).config
    with Store(project.db) as store:
        with pytest.raises(ConfigError, match=r"nobody knows what model 'sim' costs") as caught:
            admission(store, ["toy"], [config], Caps(cost_micro=1), "test")
        assert caught.value.exit_code == 2
        assert "evaluation.prices: {'sim': {input: 0.27, output: 1.10}}" in (
            caught.value.hint or ""
        )
        admission(store, ["toy"], [config], Caps(requests=1, tokens=1), "test")


async def test_money_is_not_capped_where_the_model_that_reads_pages_has_no_price(
    project: Capped,
) -> None:
    reader = {"model": "reads", "base_url": "http://127.0.0.1:9/v1", "api_key": "none"}
    kit = {
        "mode": "builtin",
        "name": "search",
        "config": {"search_url": "http://127.0.0.1:9", "crawl_engine": "local"},
        "config_llm": {"model_provider": reader},
    }
    toolkits = f"evaluation.agent.toolkits={json.dumps({'web': kit})}"
    env = read_environment({}, project.folder)
    config = load_practice(project.config, [toolkits, PRICED], env).config
    said = pytest.raises(ConfigError, match="nobody knows what model 'reads' costs")
    with Store(project.db) as store, said:
        admission(store, ["toy"], [config], Caps(cost_micro=1), "test")


async def test_costs_go_where_they_are_read(project: Capped) -> None:
    report = await project.practise(*EVALUATED)
    (total,) = project.query("SELECT sum(cost_micro) FROM calls")[0]
    document = report.document()
    assert total > 0
    assert document["cost_usd"] == total / 1e6
    assert project.query("SELECT round(sum(usd), 6), sum(unpriced) FROM v_costs") == [
        (total / 1e6, 0)
    ]
    played = project.query("SELECT sum(cost_micro) FROM calls WHERE stage = 'play'")[0]
    assert project.query("SELECT sum(cost_micro) FROM rollouts")[0] == played
    assert {p for (p,) in project.query("SELECT DISTINCT price FROM calls")} == {"config"}
    assert all(step["cost_usd"] > 0 for step in document["steps"])
