"""Text, headers and numbers from outside: nothing they say raises, hides or leaves its bounds."""

import json
import re
from math import comb, isfinite
from typing import Any

from hypothesis import event, example, given
from hypothesis import strategies as st

from grpo_practice.core.hashing import clean
from grpo_practice.core.stats import Question, advantages, pass_at_k, pass_hat_k, score
from grpo_practice.core.text import brief, strip_think, visible
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.http_response import Response
from grpo_practice.llm.retry_after import asked_wait_s
from grpo_practice.llm.retry_policy import Adapt, Fail, Retry, decide
from tests.properties.texts import BROKEN, JSON, TEXTS


@given(BROKEN)
def test_a_cleaned_text_differs_only_where_it_was_broken(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode()
    assert clean(cleaned) == cleaned
    pairs_joined = re.sub(
        "([\ud800-\udbff])([\udc00-\udfff])",
        lambda pair: json.loads(json.dumps(pair[0])),
        text,
    )
    assert cleaned == re.sub("[\ud800-\udfff]", "\ufffd", pairs_joined)
    event("broken" if cleaned != text else "whole")


TAGGED = st.lists(
    st.sampled_from(["<think>", "</think>", "<think", "think>", "<THINK>", "a", "\n", "<", "b"])
).map("".join)


@given(TAGGED | TEXTS)
@example("<think<think></think>")
@example("<<think></think>think>")
@example("<think>a</think>b</think>c")
def test_no_thinking_is_left_and_nothing_else_is_lost(text: str) -> None:
    left = strip_think(text)
    opened = text.rfind("<think>") > text.rfind("</think>")
    assert (left is None) == opened
    if left is not None:
        kept: list[str] = []  # what stands before each block
        rest = text
        while (close := rest.find("</think>")) >= 0:
            start = rest.find("<think>", 0, close)
            kept = [*kept, rest[:start]] if start >= 0 else []
            rest = rest[close + len("</think>") :]
        assert left == "".join([*kept, rest])
    if "think>" not in text:
        assert left == text
    event("open" if opened else "closed")


@given(BROKEN | TEXTS, st.integers(2, 40))
def test_a_shown_text_cannot_act(text: str, chars: int) -> None:
    shown = visible(text)
    shown.encode()
    assert all(c.isprintable() or c in "\n\t" or c.isspace() for c in shown)
    assert not set(shown) & set("\x00\x1b\r\x7f\x85\x9b\u2028\u2029\u202e\ufeff")
    assert visible(shown) == shown
    line = brief(text, chars)
    assert len(line) <= chars or "\\" in line
    assert "\n" not in line


WAITS = st.one_of(
    BROKEN,
    st.sampled_from(
        ["-10", "0", "inf", "nan", "", "1" * 35, "1e9", "1m30s", "500ms", "6h", "1d" * 50,
         "Fri, 31 Dec 9999 23:59:59 GMT", "Wed, 21 Oct 100000 07:28:00 GMT", "Sun, 32 Foo",
         "Thu, 01 Jan 1970 00:00:00 +9999", "٣", "1_000", " 7 ", "²", "0x10", "+5"]
    ),
    st.from_regex(r"\A(\d{1,30}(\.\d{1,30})?(ms|[dhms])){1,4}\Z"),
    st.datetimes().map(lambda when: when.strftime("%a, %d %b %Y %H:%M:%S GMT")),
)  # fmt: skip
HEADERS = st.dictionaries(
    st.sampled_from(
        ["retry-after", "retry-after-ms", "x-ratelimit-reset-tokens", "x-ratelimit-reset-requests",
         "x-should-retry", "content-type", "location"]
    ),
    WAITS | st.sampled_from(["true", "false", "text/html"]),
)  # fmt: skip


@given(HEADERS, st.integers(100, 599), st.floats(0, 4e9))
def test_a_wait_is_a_sane_number_or_none(headers: dict[str, str], status: int, now: float) -> None:
    seconds = asked_wait_s(headers, status, now)
    assert seconds is None or (isfinite(seconds) and 0 < seconds < 367 * 86_400)
    event("a wait" if seconds else "none")


ERRORS = st.fixed_dictionaries(
    {},
    optional={
        key: JSON
        | st.sampled_from(["rate_limit_exceeded", "insufficient_quota", "502", 502, 10**40])
        for key in ("code", "type", "message", "param", "status", "metadata")
    },
)
BODIES = st.one_of(
    JSON,
    st.fixed_dictionaries({"error": ERRORS | JSON}),
    st.fixed_dictionaries({"choices": st.lists(JSON | st.fixed_dictionaries({"message": JSON}))}),
    st.fixed_dictionaries({"detail": st.lists(ERRORS) | JSON}),
)


@given(
    st.integers(100, 599) | st.sampled_from([200, 400, 401, 402, 403, 404, 413, 422, 429, 500]),
    HEADERS,
    BODIES,
    st.booleans(),
    st.dictionaries(st.sampled_from(["seed", "max_tokens", "temperature"]) | TEXTS, JSON),
)
def test_any_answer_leads_to_a_decision(
    status: int, headers: dict[str, str], body: Any, readable: bool, sent: dict[str, Any]
) -> None:
    text = json.dumps(body)
    answer = Response(status, headers, text, body if readable else None, "http://x/v1")
    decision = decide(answer, sent, Endpoint("http://127.0.0.1"))
    assert decision is None or isinstance(decision, Retry | Fail | Adapt)
    if isinstance(decision, Retry | Fail):
        assert str(decision.error)
    if decision is None:
        assert isinstance(body["choices"][0]["message"], dict)
    event(type(decision).__name__)


COUNTS = st.integers(1, 60).flatmap(
    lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))
)


@given(COUNTS)
def test_pass_at_k_is_a_share_between_its_bounds(counts: tuple[int, int, int]) -> None:
    n, c, k = counts
    some, every = pass_at_k(n, c, k), pass_hat_k(n, c, k)
    assert 0 <= every <= some + 1e-12 <= 1 + 1e-12
    assert abs(some - (1 - comb(n - c, k) / comb(n, k))) < 1e-9
    assert abs(every - comb(c, k) / comb(n, k)) < 1e-9
    assert some + 1e-12 >= c / n >= every - 1e-12
    if k < n:
        assert pass_at_k(n, c, k + 1) + 1e-12 >= some
        assert pass_hat_k(n, c, k + 1) <= every + 1e-12


@given(st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0, 0.1 + 0.2]), max_size=8))
def test_advantages_are_centred_ordered_and_nothing_where_all_are_equal(
    rewards: list[float],
) -> None:
    found = advantages(rewards)
    assert len(found) == len(rewards)
    assert all(map(isfinite, found))
    if len(set(rewards)) <= 1:
        assert found == [0.0] * len(rewards)
    assert abs(sum(found)) < 1e-6
    for (a, x), (b, y) in zip(
        pairs := list(zip(rewards, found, strict=True)), pairs[1:], strict=False
    ):
        assert a == b or (a < b) == (x < y) or abs(a - b) < 1e-12


@st.composite
def questions(draw: st.DrawFn) -> Question:
    planned = draw(st.integers(1, 5))
    rewards = draw(st.lists(st.floats(0, 1) | st.sampled_from([0.0, 1.0]), max_size=planned))
    right = sum(r >= 1 - 1e-9 for r in rewards)
    squares = sum(r * r for r in rewards)
    return Question(
        draw(st.sampled_from("abc")), len(rewards), right, sum(rewards), squares, planned
    )


@given(st.lists(questions(), max_size=6), st.integers(1, 5))
def test_a_score_stays_within_its_bounds(asked: list[Question], k: int) -> None:
    found = score(asked, k)
    assert found.questions == len(asked)
    assert found.scored <= found.planned
    if found.mean is not None:
        assert -1e-9 <= found.mean <= 1 + 1e-9
        if found.ci95:
            assert found.ci95[0] - 1e-9 <= found.mean <= found.ci95[1] + 1e-9
    else:
        assert found.scored == 0
