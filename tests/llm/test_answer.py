"""Bytes from outside, as JSON values and as text that is safe to print."""

from typing import Any

import pytest

from grpo_practice.llm.answer import decode, shown

LOGPROBS = {"logprobs": {"content": [{"p": None}, {"p": None}]}}
"""What is left where numbers beyond JSON's stood."""


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"p": -0.25, "n": 12, "s": "\xc3\xa9"}', {"p": -0.25, "n": 12, "s": "é"}),
        (b'["a\\ud800"]', ["a\ufffd"]),
        (b'{"p": -Infinity}', {"p": None}),
        (b'{"logprobs": {"content": [{"p": NaN}, {"p": 1e999}]}}', LOGPROBS),
        (b'{"message": {"content": NaN}}', None),
        (b'{"message": {"content": -1e400}}', None),
        (b"", None),
    ],
)
def test_only_what_can_be_stored_as_canonical_json_is_decoded(raw: bytes, value: Any) -> None:
    assert decode(raw) == value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain é 数", "plain é 数"),
        ("a\x1b]0;t\x07\nb", "a\\x1b]0;t\\x07 b"),
        ("a\u202eb", "a\\u202eb"),
        ("  \n", ""),
        ("x" * 200, "x" * 200),
        ("x" * 201, "x" * 199 + "…"),
    ],
)
def test_foreign_text_is_shown_short_and_without_effects(text: str, expected: str) -> None:
    assert shown(text) == expected
