from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from grpo_practice.config.reading.yaml_reader import (
    MAX_NODES,
    dump_yaml,
    parse_yaml,
    plain,
    read_yaml,
)
from grpo_practice.core.errors import ConfigError

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
    max_leaves=9,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("null", None), ("~", None), ("", None), ("true", True), ("False", False),
        ("10", 10), ("-3", -3), ("0.5", 0.5), ("1.0e-4", 1e-4), (".5", 0.5),
        ("no", "no"), ("on", "on"), ("yes", "yes"), ("010", "010"), ("0x10", "0x10"),
        ("12:30", "12:30"), ("1e3", "1e3"), ("1_000", "1_000"), (".nan", ".nan"),
        (".inf", ".inf"), ("2024-01-01", "2024-01-01"),
    ],
)  # fmt: skip
def test_only_plain_decimal_numbers_and_true_false_null_mean_anything(
    text: str, value: object
) -> None:
    for read in (plain(text), parse_yaml(f"k: {text}\n", "f").data["k"]):
        assert (type(read), read) == (type(value), value)


@pytest.mark.long
@example({"k": "a\n b\n\n", "\x85": "x\u2028\n y", "e": 1e30, "n": "010"})
@given(st.dictionaries(st.text(), TREES))
def test_what_is_dumped_reads_back_as_itself(value: dict[str, Any]) -> None:
    assert parse_yaml(dump_yaml(value), "f").data == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('a: !!python/object/apply:os.system ["id"]', r"f:1: .*python/object.* not allowed"),
        ("a: !!binary aGk=", "not allowed"),
        ("a: !!set {x}", "not allowed"),
        ("a: &a [*a]", "contains itself"),
        ("a: 1\nb: 2\na: 3", r"f:3: the key 'a' appears twice \(first on line 1\)"),
        ("a: {b: 1, b: 2}", "'b' appears twice"),
        ("a: [1", "f:1: not valid YAML"),
        ("a: *missing", "f:1: not valid YAML"),
        ("a: 1\n---\nb: 2", "not valid YAML"),
        ("a: \x00", "not valid YAML"),
        ("- a", "a mapping of keys, not a list"),
        ("text", "not a single value"),
        ("1: a", "a key must be text"),
        ("[a]: b", "a key must be text"),
        ("!!int x: b", "a key must be text"),
        ("a: !!int x", "not valid YAML"),
    ],
)
def test_what_is_not_a_plain_mapping_is_refused_with_file_and_line(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        parse_yaml(text, "f")


def test_aliases_work_until_they_blow_up() -> None:
    assert parse_yaml("a: &x {k: 1}\nb: {<<: *x, m: 2}", "f").data["b"] == {"k": 1, "m": 2}
    laughs = "\n".join(
        [f"a0: &a0 [{','.join('x' * 9)}]"]
        + [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    )
    with pytest.raises(ConfigError, match="aliases repeat more than 1,000 nodes"):
        parse_yaml(laughs, "f")


@pytest.mark.long
@pytest.mark.parametrize(
    "text",
    [
        "\n".join(f"k{i}: {i}" for i in range(80_000)),
        f"a: [{'1,' * 400_000}]",
        f"a: &a 1\nb: [{'*a,' * 200_000}]",
    ],
)
def test_a_text_of_too_many_values_is_not_read_to_its_end(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, compose = 0, yaml.SafeLoader.compose_node

    def counted(*args: Any) -> Any:
        nonlocal nodes
        nodes += 1
        return compose(*args)

    monkeypatch.setattr(yaml.SafeLoader, "compose_node", counted)
    with pytest.raises(ConfigError, match=r"f:\d+: more than 20,000 values, too many for a config"):
        parse_yaml(text, "f")
    assert nodes <= MAX_NODES


def test_nesting_beyond_the_limit_is_an_error_and_not_a_crash() -> None:
    parse_yaml("a: " + "[" * 60 + "]" * 60, "f")
    with pytest.raises(ConfigError, match="f:1: nested more than 64 deep"):
        parse_yaml("a: " + "[" * 50_000, "f")


def test_every_key_knows_its_line() -> None:
    tree = parse_yaml("a:\n  b: 1\n  c:\n    - x\n    - y\n", "f")
    shown = {key: place.shown for key, place in tree.places.items()}
    assert shown[("a", "b")] == "f:2"
    assert shown[("a", "c", 1)] == "f:5"


def test_a_lone_surrogate_becomes_a_replacement_character() -> None:
    assert parse_yaml('a: "\\uD800"', "f").data["a"] == "\ufffd"


def test_unreadable_files_are_config_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_yaml(tmp_path / "none.yaml")
    bad = tmp_path / "bad.yaml"
    bad.write_bytes(b"a: 1\nb: \xff\xfe\n")
    with pytest.raises(ConfigError, match=r"bad\.yaml:2: the file is not UTF-8"):
        read_yaml(bad)
    bad.write_bytes(b"# " + b"x" * (1 << 20))
    with pytest.raises(ConfigError, match="larger than 1 MiB"):
        read_yaml(bad)
    bad.write_bytes(b"\xef\xbb\xbfa: 1\r\n")
    assert read_yaml(bad).data == {"a": 1}


@pytest.mark.parametrize("text", ["1.5e3", "010", "12:30", "yes", ".inf", "~", "-1_000", "0x1f"])
def test_a_text_that_looks_like_something_else_is_still_a_text(text: str) -> None:
    assert parse_yaml(dump_yaml({"k": text}), "x").data == {"k": text}
