"""A secret is found in every notation that systems echo one in, and nothing else is touched."""

import base64
import html
import json
import sys
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.redact import (
    Redactor,
    environment_secrets,
    hide_output,
    key_shaped,
    redactor,
    url_secrets,
)
from grpo_practice.core.text import visible

KEYS = [
    "sk-proj-AbC123_def-456GHI789jkl012",
    "pw+/=%&<>'\"x9 y\\z",
    "clé-à-molette-42",
    "a\tb\x1bcdefgh",
]
NOTATIONS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "percent": quote,
    "every percent": lambda key: quote(key, safe=""),
    "form": quote_plus,
    "json": json.dumps,
    "json in unicode": lambda key: json.dumps(key, ensure_ascii=False),
    "json in json": lambda key: json.dumps(json.dumps(key)),
    "php": lambda key: key.replace("/", "\\/"),
    "html": html.escape,
    "repr": repr,
    "visible": visible,
    "doubled backslashes": lambda key: key.replace("\\", "\\\\"),
}


@pytest.mark.parametrize("key", KEYS, ids=ascii)
@pytest.mark.parametrize("notation", NOTATIONS)
def test_a_secret_is_replaced_in_every_notation(key: str, notation: str) -> None:
    text = NOTATIONS[notation](key)
    assert Redactor([key]).text(f"({text})").strip("'\"\\()") == "***"


@given(st.sampled_from(KEYS), st.binary(max_size=7), st.binary(max_size=7), st.booleans())
def test_a_secret_is_found_in_base64_wherever_it_was_encoded(
    key: str, before: bytes, after: bytes, urlsafe: bool
) -> None:
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    text = encode(before + key.encode() + after).decode()
    left = Redactor([key]).text(f"Basic {text}.")
    assert "***" in left
    kept = len(base64.b64encode(before + after)) + 12  # what stands around it, and no more of it
    assert len(left) <= len("Basic ***.") + kept


@given(st.text(), st.text(min_size=8))
def test_a_text_without_the_secret_stays_as_it_is(text: str, key: str) -> None:
    escapes = set("%\\&+=")
    if not escapes & set(text) and not Redactor([key]).holds(text):
        assert Redactor([key]).text(text) == text
    assert key not in Redactor([key]).text(text + key + text)


def test_a_value_is_searched_through_keys_included() -> None:
    known = Redactor(["sk-live-1234", "hf_abcdefgh"])
    value = {"sk-live-1234": ["a sk-live-1234 b", {"x": "hf_abcdefghsk-live-1234"}], "n": 1}
    assert known.value(value) == {"***": ["a *** b", {"x": "******"}], "n": 1}


def test_a_secret_that_contains_another_is_replaced_whole() -> None:
    assert Redactor(["password", "password-and-more"]).text("my password-and-more!") == "my ***!"


def test_a_placeholder_key_does_not_spoil_answers() -> None:
    assert Redactor(["EMPTY", ""]).text("the set is EMPTY") == "the set is EMPTY"


def test_backslashes_of_a_secret_do_not_make_the_search_slow() -> None:
    key = "\\" * 30 + "abcdefgh/x"
    known = Redactor([key])
    assert known.text(json.dumps(key)) == '"***"'
    assert not known.holds("\\" * 10_000 + " abcdefgh " + "abcdefgh" + "\\" * 10_000)


def test_keys_and_passwords_of_the_environment_are_secrets_and_placeholders_are_not() -> None:
    variables = {
        "UTU_LLM_API_KEY": "k-1",
        "ANTHROPIC_API_KEY": "sk-ant-1",
        "HF_TOKEN": "hf_1",
        "DB_PASSWORD": "p4ss",
        "OPENAI_API_KEY": "lm-studio",
        "TOKENIZERS_PARALLELISM": "8",
        "HTTP_PROXY": "http://ann:pr0xy@proxy:3128",
        "UTU_LLM_BASE_URL": "https://tok@h/v1?version=2024",
    }
    found = {"k-1", "sk-ant-1", "hf_1", "p4ss", "ann:pr0xy", "pr0xy", "tok"}
    assert environment_secrets(variables) == found


def test_the_user_of_a_url_with_a_password_is_no_secret() -> None:
    assert url_secrets("https://jonathan:pw@h/v1?sig=s&x") == {"jonathan:pw", "pw", "s", "x"}
    assert url_secrets("https://token@h/v1") == {"token"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("model: sk-proj-AbC123_def-456GHI789jkl012 # x", ["sk-proj-AbC123_def-456GHI789jkl012"]),
        ("AIzaSyA1234567890abcdefghijk", ["AIzaSyA1234567890abcdefghijk"]),
        ("sk-learn-is-not-a-key-at-all", []),
        ("task-0123456789012345678901", []),
        ("gpt-4o-mini-2024-07-18", []),
    ],
)
def test_what_looks_like_a_key_is_found_where_none_should_stand(
    text: str, found: list[str]
) -> None:
    assert key_shaped(text) == found


def test_an_error_is_made_without_secrets() -> None:
    redactor.know(["sk-live-1234"])
    error = ConfigError("bad sk-live-1234", hint="not sk-live-1234")
    assert (str(error), error.hint) == ("bad ***", "not ***")


def test_what_is_printed_passes_the_redactor_also_in_several_ways(
    capsys: pytest.CaptureFixture[str],
) -> None:
    redactor.know(["sk-live-1234"])
    hide_output()
    hide_output()
    print("a sk-live-1234 b", file=sys.stderr)  # noqa: T201
    sys.stdout.writelines(["c sk-live-1234 d\n"])
    assert tuple(capsys.readouterr()) == ("c *** d\n", "a *** b\n")
    assert not sys.stdout.isatty()
