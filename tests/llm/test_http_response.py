"""Bytes from outside, as JSON values and as text that is safe to print."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.core.redact import Redactor
from grpo_practice.llm.http_response import decode, read_json, shown

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


KEY = "sk-live/0123456789+ab"
WIRE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from(["plain", "é", "\ud800", "a\\u0073k-live", KEY, f"é{KEY}.", KEY[:-1], "\\u"])
    | st.text(st.characters(exclude_categories=[]), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["content", "p", KEY, "\udfff"]), inner, max_size=3)
    ),
    max_leaves=8,
)
ESCAPES = (
    lambda text: text,
    lambda text: text.replace("s", "\\u0073"),
    lambda text: text.replace("/", "\\/"),
    lambda text: text.replace("1", "1e400"),
    lambda text: text[:-1],
    lambda text: f"\ufeff{text}",
    lambda text: f"{'[' * 400}{text}{']' * 400}",
)
"""What a server may do to a JSON text."""


@given(WIRE, st.booleans(), st.sampled_from(ESCAPES), st.sampled_from(["utf-8", "utf-16"]))
def test_reading_at_once_is_the_same_as_walking_through(
    value: Any, ascii_only: bool, escaped: Callable[[str], str], code: str
) -> None:
    raw = escaped(json.dumps(value, ensure_ascii=ascii_only)).encode(code, "surrogatepass")
    redactor = Redactor([KEY])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("grpo_practice.llm.http_response.redactor", redactor)
        text, body = read_json(raw)
    assert text == redactor.text(raw.decode(errors="replace"))
    assert body == redactor.value(decode(raw))


def test_a_value_with_nothing_to_replace_is_not_walked_through() -> None:
    redactor = Redactor([KEY])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("grpo_practice.llm.http_response.redactor", redactor)
        patch.setattr("grpo_practice.llm.http_response.plain", None)
        text, body = read_json('{"content": "é", "p": -0.5}'.encode())
    assert (text, body) == ('{"content": "é", "p": -0.5}', {"content": "é", "p": -0.5})
