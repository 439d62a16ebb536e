"""How long an endpoint asks us to wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.llm.retry_after import asked_wait_s, in_words

NOW = 1_750_000_000.0  # 2025-06-15 15:06:40 UTC


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        pytest.param({"retry-after": "2"}, 2.0, id="1"),
        pytest.param({"retry-after-ms": "300"}, 0.3, id="2"),
        pytest.param({"retry-after-ms": "300", "retry-after": "1"}, 0.3, id="2-ms-first"),
        pytest.param({"retry-after": "Sun, 15 Jun 2025 15:07:00 GMT"}, 20.0, id="3-ahead"),
        pytest.param({"retry-after": "Sun, 15 Jun 2025 15:06:00 GMT"}, None, id="3-past"),
        pytest.param({"retry-after": "-10"}, None, id="4-negative"),
        pytest.param({"retry-after": "0"}, None, id="4-zero"),
        pytest.param({"retry-after": "inf"}, None, id="4-inf"),
        pytest.param({"retry-after": "nan"}, None, id="4-nan"),
        pytest.param({"retry-after": ""}, None, id="4-empty"),
        pytest.param({"retry-after": "9" * 35}, None, id="4-35-digits"),
        pytest.param({"retry-after": "9" * 15}, None, id="4-15-digits"),
        pytest.param({"retry-after": "Fri, 31 Dec 100000 23:59:59 GMT"}, None, id="4-year"),
        pytest.param({"retry-after": "Sun, 15 Jun 2025 9999999999:07:00 GMT"}, None, id="4-hour"),
        pytest.param({"retry-after": "86400"}, 86_400.0, id="5"),
        pytest.param(
            {"x-ratelimit-reset-tokens": "1m30s", "x-ratelimit-reset-requests": "500ms"},
            90.0,
            id="6",
        ),
        pytest.param({"x-ratelimit-reset-tokens": "12.5"}, 12.5, id="6-bare-seconds"),
        pytest.param({"x-ratelimit-reset-tokens": "1750000000123"}, None, id="6-an-epoch"),
        pytest.param({"x-ratelimit-reset-tokens": "soon"}, None, id="6-a-word"),
        pytest.param({"x-ratelimit-reset-requests": "24h0m0s"}, 120.0, id="6-till-all-is-free"),
        pytest.param({}, None, id="none"),
    ],
)
def test_headers_are_read_and_nonsense_is_not(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert asked_wait_s(headers, 429, NOW) == seconds


def test_rate_limit_resets_say_nothing_about_other_failures() -> None:
    assert asked_wait_s({"x-ratelimit-reset-tokens": "6m0s"}, 503, NOW) is None


@given(st.text())
def test_no_header_value_raises(value: str) -> None:
    headers = {"retry-after": value, "retry-after-ms": value, "x-ratelimit-reset-tokens": value}
    waited = asked_wait_s(headers, 429, NOW)
    assert waited is None or waited > 0


@pytest.mark.parametrize(
    ("seconds", "words"), [(86_400, "24 h"), (7_200, "2 h"), (600, "10 min"), (150, "150 s")]
)
def test_a_wait_is_said_in_the_unit_a_person_would_use(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
