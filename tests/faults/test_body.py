"""What becomes of a rollout when the body of a 200 is at fault, and what of it is stored."""

import json
import re
import shlex
import zlib
from typing import Any

import pytest

from tests.cli.conftest import Gp
from tests.contract.endpoint.actions import (
    Action,
    always,
    completion,
    error,
    html,
    in_turn,
    late,
    ok,
    status,
)
from tests.contract.endpoint.server import serving
from tests.fakes import FakeSleep
from tests.faults.conftest import GOOD, Evaluate, Seen, each_then_good, of_first_question, question

NULL = {"role": "assistant", "content": None}


def thought(content: str | None, **more: Any) -> dict[str, Any]:
    return NULL | {"content": content, "reasoning_content": "hm " * 500, **more}


def changed(**keys: Any) -> Action:
    """A good completion with other top-level keys; None takes one away."""
    return status(200, {k: v for k, v in (completion("24") | keys).items() if v is not None})


def messages(seen: Seen) -> list[dict[str, Any]]:
    """The assistant messages as they are stored, in the order they were answered."""
    rows = seen.query("SELECT reply, codec FROM call_bodies ORDER BY call_id")
    return [json.loads(zlib.decompress(blob) if codec else blob) for blob, codec in rows]


def test_1_30_a_login_page_is_asked_once_more_and_then_stops_the_run(
    evaluate: Evaluate, waits: FakeSleep
) -> None:
    page = "<!DOCTYPE html>\x1b]0;owned\x07<p>Please log in</p>" + "x" * 5_000
    with serving(always(html(page))) as server:
        seen = evaluate(server)
    assert (seen.code, len(seen.asked), len(waits.slept)) == (3, 2, 1)
    said = seen.told["message"]
    assert "not an OpenAI-compatible response" in said
    assert r"\x1b]0;owned\x07<p>Please log in</p>" in said
    assert len(said) < 400
    assert ("base_url" in seen.told["hint"], "\x1b" in seen.ran.err) == (True, False)


def test_pages_after_an_answer_are_asked_again_and_cost_no_more_than_their_rollout(
    evaluate: Evaluate,
) -> None:
    with serving(in_turn(GOOD, html(), html(), GOOD)) as server:
        seen = evaluate(server)
    assert (seen.code, seen.tries, seen.told["score"]["mean"]) == (0, [1, 3, 1, 1, 1], 1.0)


GOOD_BYTES = json.dumps(completion("24")).encode()
UNREADABLE = [
    GOOD_BYTES[:60],
    b"\xef\xbb\xbf" + GOOD_BYTES,
    GOOD_BYTES.replace(b"24", b"\xff\xfe"),
    GOOD_BYTES.decode().encode("utf-16"),
    b"",
    b"[" * 200_000,
    b'{"choices": ' + b"9" * 100_000 + b"}",
    GOOD_BYTES * 2,
    b"ok",
]


def test_1_31_a_body_that_cannot_be_read_is_asked_for_again(evaluate: Evaluate) -> None:
    with serving(each_then_good(*(status(200, raw) for raw in UNREADABLE))) as server:
        seen = evaluate(server, "-k", "2")
    assert (seen.outcomes, seen.tries) == ({"ok": 10}, [2] * len(UNREADABLE) + [1])


def test_1_32_an_error_inside_a_200_is_an_error(evaluate: Evaluate) -> None:
    inside = [
        {"code": 502, "message": "bad gateway"},
        {"code": "rate_limit_exceeded"},
        {"type": "server_error"},
        "overloaded",
    ]
    with serving(each_then_good(*(status(200, {"error": e}) for e in inside))) as server:
        seen = evaluate(server)
    assert (seen.outcomes, seen.tries) == ({"ok": 5}, [2, 2, 2, 2, 1])


def test_1_32_no_credit_inside_a_200_stops_the_run(evaluate: Evaluate) -> None:
    with serving(always(status(200, {"error": {"code": "insufficient_quota"}}))) as server:
        seen = evaluate(server)
    assert (seen.code, len(seen.asked)) == (3, 1)


WITHOUT_MESSAGE: list[Any] = [
    {"choices": []},
    {"id": "c-1"},
    {"choices": None},
    {"choices": [{"index": 0, "message": None, "finish_reason": "stop"}]},
    {"choices": ["24"]},
    [],
    24,
    "24",
    None,
]


def test_1_33_an_answer_without_a_message_is_asked_for_again(evaluate: Evaluate) -> None:
    faults = [status(200, json.dumps(body)) for body in WITHOUT_MESSAGE]
    with serving(each_then_good(*faults)) as server:
        seen = evaluate(server, "-k", "2")
    assert (seen.outcomes, seen.tries) == ({"ok": 10}, [2] * len(faults) + [1])


def test_1_33_an_answer_without_a_message_fails_after_all_tries(evaluate: Evaluate) -> None:
    with serving(of_first_question(status(200, {"choices": []}))) as server:
        seen = evaluate(server)
    assert seen.outcomes == {"ok": 4, "error.provider": 1}
    assert seen.failures == [("provider", None, 5, 1)]
    assert seen.first["reward"] is None


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_1_34_an_empty_answer_is_asked_for_once_more_and_is_then_the_answer(
    evaluate: Evaluate, content: str | None
) -> None:
    nothing = ok({"role": "assistant", "content": content})
    with serving(of_first_question(nothing)) as server:
        seen = evaluate(server)
    assert seen.outcomes == {"ok": 4, "empty": 1}
    assert (seen.first["reward"], seen.first["turns"], seen.tries) == (0, 2, [1] * 6)
    seeds = {a.seed for a in seen.asked if question(a) == 0}
    assert len(seeds) == 2
    with serving(of_first_question(nothing, GOOD)) as server:
        again = evaluate(server, "--exp-id", "again", "--set", "seed=2")
    assert again.outcomes == {"ok": 5}


def test_1_35_an_answer_whose_thinking_took_all_tokens_is_truncated(evaluate: Evaluate) -> None:
    cut = ok(
        thought(""),
        finish="length",
        usage={
            "prompt_tokens": 9,
            "completion_tokens": 500,
            "completion_tokens_details": {"reasoning_tokens": 500},
        },
    )
    with serving(of_first_question(cut)) as server:
        seen = evaluate(server, json=False)
    assert len(seen.asked) == 5
    assert (seen.first["outcome"], seen.first["reward"]) == ("truncated", 0)
    assert "1 truncated" in seen.ran.out
    assert "hint: raise agent.model.model_settings.max_tokens" in seen.ran.out
    assert messages(seen)[0] == thought("")
    assert seen.query("SELECT tokens_out, tokens_reasoning, finish FROM calls LIMIT 1") == [
        (500, 500, "length")
    ]


def test_1_37_thinking_is_kept_in_storage_and_left_out_of_the_answer(evaluate: Evaluate) -> None:
    said = "<think>23? no, 25</think>\n24"
    with serving(always(ok(said))) as server:
        seen = evaluate(server)
    assert seen.told["score"]["mean"] == 1.0
    assert (seen.first["response"], messages(seen)[0]["content"]) == ("24", said)
    with serving(always(ok("<think>24"))) as server:
        seen = evaluate(server, "--exp-id", "unclosed", "--set", "seed=2")
    assert seen.outcomes == {"truncated": 5}
    assert seen.told["score"]["correct"] == 0


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ok(""), "5 of 5 are empty hint: raise agent.model.model_settings.max_tokens"),
        (ok({**NULL, "refusal": "I cannot help."}), "5 of 5 are refusals hint: reword the agent's"),
        (ok("24 and th", finish="content_filter"), "5 of 5 were withheld by a content filter"),
        (error(400, "no", code="context_length_exceeded"), "5 of 5 did not fit into the model's"),
        (ok("2", finish="length"), "5 of 5 ran out of tokens hint: raise agent.model."),
    ],
)
def test_an_evaluation_without_any_answer_names_the_cause_and_is_exit_1(
    gp: Gp, evaluate: Evaluate, fault: Action, said: str
) -> None:
    with serving(always(fault)) as server:
        seen = evaluate(server, json=False)
        out = " ".join(seen.ran.out.split())
        assert seen.code == 1
        assert f"no rollout gave an answer, so the rewards are meaningless: {said}" in out
        told = evaluate(server)
    assert (told.code, told.told["exit"], told.asked) == (1, 1, [])
    (command,) = re.findall("next: grpo-practice (rollouts show .*)", seen.ran.out)
    shown = gp(*shlex.split(command))
    assert shown.code == 0
    assert "Which number is 0?" in shown.out


def test_1_38_a_refusal_is_the_models_own_failure(evaluate: Evaluate) -> None:
    with serving(of_first_question(ok({**NULL, "refusal": "I cannot help."}))) as server:
        seen = evaluate(server)
    assert seen.outcomes == {"ok": 4, "refused": 1}
    assert (seen.first["reward"], seen.first["error"]) == (0, "I cannot help.")
    assert len(seen.asked) == 5


def test_1_39_a_filtered_answer_is_kept_as_far_as_it_came(evaluate: Evaluate) -> None:
    with serving(of_first_question(ok("24 and th", finish="content_filter"))) as server:
        seen = evaluate(server)
    assert seen.outcomes == {"ok": 4, "content_filter": 1}
    assert (seen.first["reward"], seen.first["response"]) == (0, "24 and th")
    assert messages(seen)[0]["content"] == "24 and th"


OVERFLOWS = [
    error(400, "too long", code="context_length_exceeded"),
    error(400, "This model's maximum context length is 4096 tokens, you requested 9000"),
    error(400, "max_tokens must be at least 1, got -186."),
    error(413, "Request Entity Too Large"),
    status(413, b"<html>413 Request Entity Too Large</html>"),
]


def test_1_40_a_question_too_long_for_the_model_is_not_sent_again(evaluate: Evaluate) -> None:
    with serving(lambda asked: OVERFLOWS[question(asked)]) as server:
        seen = evaluate(server)
    assert (seen.outcomes, len(seen.asked)) == ({"context_overflow": 5}, 5)
    assert (seen.told["score"]["mean"], seen.told["score"]["coverage"]) == (0, 1)
    assert {(kind, tries) for kind, _, tries, _ in seen.failures} == {("context_overflow", 1)}


LIMIT = ("--set", "agent.model.model_provider.max_reply_mib=1")


def test_a_reply_that_is_too_large_is_the_endpoints_and_is_asked_for_once(
    evaluate: Evaluate,
) -> None:
    large = ok({"role": "assistant", "content": "24", "reasoning_content": "hm " * 500_000})
    with serving(of_first_question(large)) as server:
        seen = evaluate(server, *LIMIT)
    assert (seen.outcomes, len(seen.asked)) == ({"ok": 4, "error.provider": 1}, 5)
    assert (
        "larger than 1 MiB; to read it, raise model_provider.max_reply_mib" in seen.first["error"]
    )
    assert seen.failures == [("reply_too_large", None, 1, 1)]
    with serving(of_first_question(large)) as server:
        again = evaluate(server)
    assert (again.outcomes, len(again.asked)) == ({"ok": 5}, 1)


SETTINGS = ("--set", "agent.model.model_settings={max_tokens: 64, temperature: 0.5}")
REFUSED = {
    "max_tokens": "Use 'max_completion_tokens' instead: 'max_tokens' is not supported",
    "temperature": "Unsupported value: 'temperature' does not support 0.5",
    "seed": "Unsupported parameter: seed",
}


@pytest.mark.parametrize("name", REFUSED)
def test_1_41_a_setting_the_endpoint_does_not_take_is_adapted_once_and_said_once(
    evaluate: Evaluate, name: str
) -> None:
    said = error(400, REFUSED[name], param=name, code="unsupported_parameter")
    with serving(lambda a: said if name in a.body else GOOD) as server:
        seen = evaluate(server, *SETTINGS)
    assert (seen.outcomes, len(seen.asked), seen.failures) == ({"ok": 5}, 6, [])
    assert seen.ran.err.count(f"does not accept `{name}`") == 1
    assert all(name not in a.body for a in seen.asked[1:])
    if name == "max_tokens":
        assert {a.body["max_completion_tokens"] for a in seen.asked[1:]} == {64}
    if name == "seed":
        assert seen.query("SELECT DISTINCT seeded FROM calls") == [(0,)]


def test_1_41_requests_that_are_refused_together_are_adapted_together(evaluate: Evaluate) -> None:
    said = late(0.05, error(400, REFUSED["temperature"], param="temperature"))
    with serving(lambda a: said if "temperature" in a.body else GOOD) as server:
        seen = evaluate(server, *SETTINGS, "--concurrency", "5")
    assert (seen.outcomes, len(seen.asked)) == ({"ok": 5}, 10)
    assert seen.ran.err.count("does not accept `temperature`") == 1


def test_1_41_a_setting_that_cannot_be_adapted_stops_the_run_with_the_servers_words(
    evaluate: Evaluate,
) -> None:
    said = error(400, "Unsupported parameter: 'verbosity' is not for this model", param="verbosity")
    with serving(always(said)) as server:
        seen = evaluate(server, "--set", "agent.model.model_settings.verbosity=low")
    assert (seen.code, len(seen.asked)) == (3, 1)
    assert "'verbosity' is not for this model" in seen.told["message"]


NO_USAGE: list[Any] = [
    None,
    {"prompt_tokens": "11", "completion_tokens": "7"},
    {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    "much",
    {"prompt_tokens": -3, "completion_tokens": 2.5},
    {"prompt_tokens": 10**30, "completion_tokens": True},
    [],
]


def test_1_42_tokens_the_endpoint_does_not_say_are_unknown_and_not_zero(
    evaluate: Evaluate,
) -> None:
    with serving(in_turn(*(changed(usage=usage) for usage in NO_USAGE))) as server:
        seen = evaluate(server, "-k", "2")
    assert seen.outcomes == {"ok": 10}
    assert seen.query("SELECT DISTINCT tokens_in, tokens_out, cost_micro FROM calls") == [
        (None, None, None)
    ]
    assert set(seen.told["usage"].values()) == {None}
    assert sum(seen.told["unpriced"].values()) == 10


def test_1_42_the_report_says_unknown_and_not_zero(evaluate: Evaluate) -> None:
    with serving(always(changed(usage=None))) as server:
        seen = evaluate(server, json=False)
    assert seen.code == 0
    assert "unknown" in seen.ran.out


DETAILED = [
    {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 30},
    },
    {
        "prompt_tokens": 100,
        "completion_tokens": 50,
        "prompt_cache_hit_tokens": 64,
        "prompt_cache_miss_tokens": 36,
        "completion_tokens_details": {"reasoning_tokens": 30},
    },
]


@pytest.mark.parametrize("usage", DETAILED, ids=["openai", "deepseek"])
def test_1_43_cached_and_reasoning_tokens_are_stored(
    evaluate: Evaluate, usage: dict[str, Any]
) -> None:
    with serving(always(ok("24", usage=usage))) as server:
        seen = evaluate(server)
    columns = "tokens_in, tokens_cached, tokens_out, tokens_reasoning"
    assert seen.query(f"SELECT DISTINCT {columns} FROM calls") == [(100, 64, 50, 30)]
    assert seen.query(f"SELECT DISTINCT {columns} FROM rollouts") == [(100, 64, 50, 30)]
    assert [*seen.told["usage"].values()][:4] == [500, 320, 250, 150]


def test_1_45_a_lone_surrogate_becomes_a_replacement_and_nul_is_kept(evaluate: Evaluate) -> None:
    message = {
        "role": "assistant",
        "content": "24 \ud800 \x00 end",
        "reasoning_content": "\udfff",
        "odd \ud800 key": 1,
    }
    with serving(always(ok(message))) as server:
        seen = evaluate(server, "--show", json=False)
    assert seen.code == 0
    assert seen.first["response"] == "24 \ufffd \x00 end"
    assert messages(seen)[0] == {
        "role": "assistant",
        "content": "24 \ufffd \x00 end",
        "reasoning_content": "\ufffd",
        "odd \ufffd key": 1,
    }
    assert "\x00" not in seen.ran.out
    with serving(always(GOOD)) as server:
        again = evaluate(server)
    assert (again.told["requests"]["new"], again.asked) == (0, [])


@pytest.mark.long
def test_1_45_ten_megabytes_are_stored_whole(evaluate: Evaluate) -> None:
    long = "0123456789abcde\n" * (10 * 2**16) + "24"
    with serving(of_first_question(ok(long))) as server:
        seen = evaluate(server)
    assert seen.outcomes == {"ok": 5}
    assert messages(seen)[0]["content"] == long
    assert len(seen.first["response"]) == len(long)
    assert len(seen.first["head"]) == 160


def test_1_45_a_surrogate_pair_is_one_character_and_stays(evaluate: Evaluate) -> None:
    with serving(always(ok("24 \U0001f600"))) as server:
        seen = evaluate(server)
    assert seen.first["response"] == "24 \U0001f600"
