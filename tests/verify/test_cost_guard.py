import time

import pytest

from grpo_practice.verify.cost_guard import too_costly


@pytest.mark.parametrize(
    "text",
    [
        "9^9^9^9",
        "9^{9^{9}}",
        "10^10^10!",
        "(10^{10})!",
        r"\left(10^{10}\right)!",
        "100000!",
        "((9!)!)!",
        "2**10**10",
        "2^{100000}",
        "10^{-999999999}",
        r"e^{9^{9^{9}}}",
        "1" * 2_001,
        "(" * 51 + "1" + ")" * 51,
        "1^" * 999 + "9" * 100 + "^9",
    ],
)
def test_towers_factorials_and_long_texts_are_refused_without_computing_them(text: str) -> None:
    started = time.process_time()
    assert too_costly(text) is not None
    assert time.process_time() - started < 30  # seconds of this process; computed, for ever


@pytest.mark.parametrize(
    "text",
    [
        "2^{2^3}",
        "2^{10}",
        "10^{100}",
        "e^{x^2}",
        "100!",
        "3!!",
        "1^{999999}",
        "0^{9!}",
        r"\binom{9}{3}!",
    ],
)
def test_ordinary_powers_and_factorials_are_read(text: str) -> None:
    assert too_costly(text) is None
