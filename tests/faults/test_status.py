"""What an HTTP status, and the headers beside it, lead to."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from tests.contract.endpoint.actions import Action, Asked, always, error, in_turn, late, ok
from tests.contract.endpoint.server import FaultServer, serving
from tests.fakes import FakeSleep
from tests.faults.conftest import (
    ASK,
    GOOD,
    KEY,
    Evaluate,
    each_then_good,
    of_first_question,
    question,
)
from tests.processes import HANG_S


def busy(**headers: str) -> Action:
    """A 429 with these headers, `_` in their names for `-`."""
    return error(429, "slow down", {k.replace("_", "-"): v for k, v in headers.items()})


def test_1_01_a_429_is_waited_for_and_the_row_shows_two_tries(
    evaluate: Evaluate, waits: FakeSleep
) -> None:
    with serving(in_turn(busy(Retry_After="2"), GOOD)) as server:
        seen = evaluate(server)
    assert seen.outcomes == {"ok": 5}
    assert seen.tries == [2, 1, 1, 1, 1]
    assert 1.9 < waits.slept[0] < 2.3  # what is left of the two seconds, and a little spread
    assert seen.failures == []


def test_1_02_milliseconds_are_read(evaluate: Evaluate, waits: FakeSleep) -> None:
    with serving(in_turn(busy(Retry_After_ms="300", Retry_After="9"), GOOD)) as server:
        seen = evaluate(server)
    assert seen.tries == [2, 1, 1, 1, 1]
    assert 0.2 < waits.slept[0] < 0.4


async def test_1_02_the_server_is_left_alone_for_the_milliseconds_it_asked_for() -> None:
    async with (
        FaultServer(in_turn(busy(Retry_After_ms="300"), GOOD)) as server,
        Client(Endpoint(server.url), Limit(4), notice=lambda _: None) as client,
    ):
        await client.send(ASK)
    first, second = server.asked
    assert second.at_s - first.at_s >= 0.3


@pytest.mark.parametrize(("ahead_s", "least", "most"), [(21, 18, 24), (-60, 0, 2)])
def test_1_03_a_date_ahead_is_waited_for_and_one_in_the_past_is_not(
    evaluate: Evaluate, waits: FakeSleep, ahead_s: int, least: float, most: float
) -> None:
    def script(asked: Asked) -> Action:
        if asked.n > 1:
            return GOOD
        when = datetime.now(UTC) + timedelta(seconds=ahead_s)
        return busy(Retry_After=format_datetime(when, usegmt=True))

    with serving(script) as server:
        seen = evaluate(server)
    assert seen.outcomes == {"ok": 5}
    assert least <= waits.slept[0] <= most


NONSENSE = ["-10", "0", "inf", "nan", "", "9" * 35, "Thu, 01 Jan 100000 00:00:00 GMT"]


def test_1_04_nonsense_in_retry_after_leads_to_the_normal_backoff(
    evaluate: Evaluate, waits: FakeSleep
) -> None:
    with serving(each_then_good(*(busy(Retry_After=text) for text in NONSENSE))) as server:
        seen = evaluate(server, "-k", "2")
    assert seen.outcomes == {"ok": 10}
    assert seen.tries == [2] * 7 + [1] * 3
    assert [0 <= s <= 2 for s in waits.slept] == [True] * 7  # and nobody else waits


def test_1_05_nobody_sleeps_for_a_day(evaluate: Evaluate, waits: FakeSleep) -> None:
    with serving(of_first_question(busy(Retry_After="86400"))) as server:
        seen = evaluate(server, json=False)
    assert seen.code == 0
    assert seen.first["reward"] is None
    assert "the server asks us to wait 24 h" in seen.first["error"]
    assert "the server asks us to wait 24 h" in seen.ran.out
    assert waits.slept == []
    with serving(always(busy(Retry_After="86400"))) as server:
        seen = evaluate(server, "--exp-id", "all", "--set", "seed=1", "--concurrency", "5")
    assert seen.code == 3
    assert "the server asks us to wait 24 h" in seen.told["message"]
    assert "24 h" in seen.told["hint"]
    assert waits.slept == []


def test_1_06_of_the_reset_headers_the_larger_counts(evaluate: Evaluate, waits: FakeSleep) -> None:
    headers = {"x_ratelimit_reset_tokens": "1m30s", "x_ratelimit_reset_requests": "500ms"}
    with serving(in_turn(busy(**headers), GOOD)) as server:
        assert evaluate(server).outcomes == {"ok": 5}
    assert 89.5 < waits.slept[0] < 100


CODES = (
    "insufficient_quota",
    "credit_balance_exhausted",
    "project_spend_limit_exceeded",
    "budget_exceeded",
)


@pytest.mark.long_after(1)
@pytest.mark.parametrize("code", CODES)
def test_1_07_no_quota_left_stops_the_run_at_once_and_keeps_what_is_there(
    evaluate: Evaluate, code: str
) -> None:
    with serving(in_turn(GOOD, GOOD, error(429, "no more", code=code))) as server:
        seen = evaluate(server)
    assert (seen.code, len(seen.asked)) == (3, 3)
    assert "no credit or quota left" in seen.told["message"]
    assert "run the same command again" in seen.told["hint"]
    assert seen.query("SELECT count(*) FROM verdicts WHERE reward = 1") == [(2,)]
    with serving(always(GOOD)) as server:
        again = evaluate(server)
    assert (again.outcomes, len(again.asked)) == ({"ok": 5}, 3)


def test_1_07_all_requests_in_flight_are_the_most_that_an_empty_account_costs(
    evaluate: Evaluate,
) -> None:
    with serving(always(late(0.05, error(429, "no", code="insufficient_quota")))) as server:
        seen = evaluate(server, "--concurrency", "2", "-k", "20")
    assert seen.code == 3
    assert len(seen.asked) <= 2


def test_1_08_payment_required_stops_the_run_unless_it_says_when_to_come_back(
    evaluate: Evaluate, waits: FakeSleep
) -> None:
    with serving(always(error(402, "Insufficient Balance"))) as server:
        seen = evaluate(server)
    assert (seen.code, len(seen.asked)) == (3, 1)
    with serving(in_turn(error(402, "in flight", {"Retry-After": "1"}), GOOD)) as server:
        seen = evaluate(server)
    assert seen.outcomes == {"ok": 5}
    assert 0.9 < waits.slept[0] < 1.2


async def test_1_09_a_hundred_429s_at_once_cost_a_hundred_requests_and_no_storm() -> None:
    busy_for_all = asyncio.Event()

    def script(asked: Asked) -> Action:
        return GOOD if busy_for_all.is_set() else busy(Retry_After_ms="20")

    async with FaultServer(script) as server:
        endpoint = Endpoint(server.url, max_tries=8)
        client = Client(endpoint, Limit(100), notice=lambda _: None)
        async with client, asyncio.timeout(HANG_S), asyncio.TaskGroup() as tasks:
            for _ in range(100):
                tasks.create_task(client.send(ASK))
            await server.was_asked(10)
            busy_for_all.set()
    assert len(server.asked) <= 150
    refused = [a for a in server.asked if a.said == "429"]
    assert len(server.asked) == 100 + len(refused)


def test_1_10_a_server_that_fails_twice_is_asked_a_third_time(evaluate: Evaluate) -> None:
    twice = [error(code, "oops") for code in (500, 502, 503, 504, 529) for _ in range(2)]
    turns = [action for i, e in enumerate(twice) for action in ((e, GOOD) if i % 2 else (e,))]
    with serving(in_turn(*turns)) as server:
        seen = evaluate(server)
    assert (seen.outcomes, seen.tries) == ({"ok": 5}, [3] * 5)


def test_1_11_one_question_that_always_fails_is_missing_and_not_wrong(evaluate: Evaluate) -> None:
    with serving(of_first_question(error(503, "overloaded"))) as server:
        seen = evaluate(server)
    assert seen.outcomes == {"ok": 4, "error.provider": 1}
    assert seen.told["score"]["mean"] == 1.0
    assert seen.told["score"]["coverage"] == 0.8
    assert seen.told["requests"] == {"new": 4, "failed": 1}
    assert seen.failures == [("provider", 503, 5, 0)]
    assert (seen.first["outcome"], seen.first["reward"]) == ("error", None)


def test_1_12_a_bad_key_costs_the_requests_of_the_ramp_and_is_not_printed(
    evaluate: Evaluate,
) -> None:
    said = error(401, f"Incorrect API key provided: {KEY}", code="invalid_api_key")
    with serving(always(late(0.02, said))) as server:
        seen = evaluate(server, "--concurrency", "64", "-k", "40")
    assert seen.code == 3
    assert len(seen.asked) <= 16
    assert "OPENAI_API_KEY" in seen.told["hint"]
    assert KEY not in seen.ran.out + seen.ran.err
    assert {a.headers["authorization"] for a in seen.asked} == {f"Bearer {KEY}"}


def test_1_13_a_key_revoked_in_the_middle_keeps_what_is_finished(evaluate: Evaluate) -> None:
    with serving(in_turn(GOOD, GOOD, GOOD, error(401, "revoked"))) as server:
        seen = evaluate(server)
    assert (seen.code, len(seen.asked)) == (3, 4)
    assert seen.query("SELECT count(*) FROM verdicts WHERE reward = 1") == [(3,)]
    with serving(always(GOOD)) as server:
        again = evaluate(server)
    assert (again.outcomes, len(again.asked)) == ({"ok": 5}, 2)


def test_1_14_a_moderated_question_is_the_filters_doing(evaluate: Evaluate) -> None:
    said = error(403, "flagged", metadata={"reasons": ["violence"], "flagged_input": "…"})
    with serving(of_first_question(said)) as server:
        seen = evaluate(server)
    assert seen.outcomes == {"ok": 4, "content_filter": 1}
    assert seen.first["reward"] == 0
    assert len(seen.asked) == 5


@pytest.mark.parametrize("body", ["The model `m-1` does not exist", "model m-1 not found"])
def test_1_15_an_unknown_model_stops_the_run(evaluate: Evaluate, body: str) -> None:
    with serving(always(error(404, body, code="model_not_found"))) as server:
        seen = evaluate(server)
    assert (seen.code, len(seen.asked)) == (3, 1)
    assert "'m-1'" in seen.told["message"]
    assert "GET /models" in seen.told["hint"]


def test_1_16_conflicts_and_timeouts_of_the_server_are_tried_again(evaluate: Evaluate) -> None:
    with serving(each_then_good(*(error(code, "again") for code in (408, 409, 425)))) as server:
        seen = evaluate(server)
    assert (seen.outcomes, seen.tries) == ({"ok": 5}, [2, 2, 2, 1, 1])


def test_1_17_the_server_may_say_itself_whether_to_try_again(evaluate: Evaluate) -> None:
    final = error(500, "no use", {"x-should-retry": "false"})
    with serving(of_first_question(final)) as server:
        seen = evaluate(server)
    assert (seen.outcomes, len(seen.asked)) == ({"ok": 4, "error.provider": 1}, 5)
    with serving(of_first_question(error(400, "odd", {"x-should-retry": "true"}), GOOD)) as server:
        seen = evaluate(server)
    assert (seen.outcomes, len(seen.asked)) == ({"ok": 5}, 2)


def test_the_cause_is_named_also_if_a_request_failed(evaluate: Evaluate) -> None:
    def script(asked: Asked) -> Action:
        return error(400, "odd") if question(asked) == 0 else ok("")

    with serving(script) as server:
        seen = evaluate(server, json=False)
    assert seen.code == 1
    out = " ".join(seen.ran.out.split())
    assert "no rollout gave an answer, so the rewards are meaningless: 4 of 5 are empty" in out
    assert "retries only the 1 rollout that failed" in out
