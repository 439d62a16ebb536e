"""The spelling of what is hashed is a promise: a change of it would orphan every paid call."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.core.hashing import Chain, canon, clean, clean_json, derive_seed


def test_canonical_json_is_sorted_tight_utf8() -> None:
    assert canon({"b": 1.0, "a": [None, True, "é"]}) == '{"a":[null,true,"é"],"b":1.0}'.encode()


def test_nan_has_no_canonical_form() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canon({"x": float("nan")})


def test_the_seed_is_the_first_31_bits_of_its_place() -> None:
    whole = hashlib.sha256(b"7|play|abc|2|3|1").digest()
    assert derive_seed(7, "play", "abc", 2, 3, 1) == int.from_bytes(whole[:4], "big") >> 1
    assert derive_seed(7, "play", "abc", 2, 3, 0) != derive_seed(7, "play", "abc", 2, 4, 0)


def test_the_request_hash_is_chained_as_written_down() -> None:
    head = {"model": "m", "params": {"seed": 1}}
    messages: list[dict[str, object]] = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None},
    ]
    h = hashlib.sha256(b"gp1\0" + canon(head)).digest()
    for message in messages:
        h = hashlib.sha256(h + canon(message)).digest()
    chain = Chain(head)
    chain.extend(messages)
    assert chain.state == h


def test_null_keys_do_not_count_but_null_content_does() -> None:
    def state(message: dict[str, object]) -> bytes:
        return Chain({"model": "m"}).add(message)

    assert state({"role": "a", "x": None}) == state({"role": "a"})
    assert state({"role": "a", "content": None}) != state({"role": "a"})


@given(st.text(st.characters(exclude_categories=[])))
def test_cleaned_text_can_be_encoded_and_loses_only_lone_surrogates(text: str) -> None:
    cleaned = clean(text)
    cleaned.encode()
    if not any("\ud800" <= c <= "\udfff" for c in text):
        assert cleaned == text


def test_cleaning_reaches_every_string() -> None:
    assert clean_json({"a\ud800": ["b\udfff", 1, None]}) == {"a\ufffd": ["b\ufffd", 1, None]}
