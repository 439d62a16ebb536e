from pathlib import Path

import pytest

from grpo_practice.config.reading.interpolate import escaped
from grpo_practice.config.reading.load import load_practice
from grpo_practice.config.reading.problems import Problem, raise_problems
from grpo_practice.config.reading.yaml_reader import Tree, parse_yaml
from grpo_practice.config.redact import redact, secrets_in
from grpo_practice.config.schema.provider import ModelConfig
from grpo_practice.config.yaml_document import show
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.redact import Redactor, redact_url, redactor
from tests.config.files import PRACTICE, write

AT = "evaluation.agent.model"
FLAGS = [
    f"{AT}.model_provider.model=m",
    f"{AT}.model_provider.base_url=https://user:p%40ssw0rd@h.example/v1?sig=signature1",
    f"{AT}.model_provider.api_key=sk-0123456789",
    f"{AT}.model_settings.extra_headers={{Authorization: Bearer token-token, X: '1'}}",
    f"{AT}.model_settings.extra_query={{version: preview-2026}}",
    f"{AT}.model_settings.metadata={{note: the key is sk-0123456789}}",
]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://h/v1", "https://h/v1"),
        ("https://u:p@h:8/v1", "https://***@h:8/v1"),
        ("https://token@h", "https://***@h"),
        ("https://h/v1?a=1&b=2#f", "https://h/v1?a=***&b=***#f"),
        ("https://h/?token", "https://h/?***"),
        ("https://u:p@[::1]:8/", "https://***@[::1]:8/"),
        ("see https://u:p@h for more", "see https://u:p@h for more"),
        ("not a url", "not a url"),
        ("http://[bad", "http://[bad"),
    ],
)
def test_a_url_is_shown_without_user_and_query_values(url: str, shown: str) -> None:
    assert redact_url(url) == shown


def test_the_resolved_config_is_shown_without_secrets(tmp_path: Path) -> None:
    loaded = load_practice(write(tmp_path, {"p.yaml": PRACTICE}), FLAGS, {})
    text = show(loaded.config, loaded.text)
    for secret in ("0123456789", "p%40ss", "signature1", "token-token", "preview-2026"):
        assert secret not in text
    shown = parse_yaml(text, "f").data
    assert "api_key" not in shown["evaluation"]["agent"]["model"]["model_provider"]
    assert shown["evaluation"]["agent"]["model"]["model_settings"]["extra_headers"] is None
    lines = {line.strip() for line in text.splitlines()}
    assert {f'# {name}: "***"' for name in ("api_key", "Authorization", "X")} <= lines
    metadata = shown["evaluation"]["agent"]["model"]["model_settings"]["metadata"]
    assert metadata == {"note": "the key is ***"}
    assert shown["practice"]["grpo_n"] == 5


def test_all_secret_texts_are_collected_but_not_short_ones(tmp_path: Path) -> None:
    load_practice(write(tmp_path, {"p.yaml": PRACTICE}), FLAGS, {})
    assert redactor.known == {
        "sk-0123456789",
        "user:p%40ssw0rd",
        "user:p@ssw0rd",
        "p%40ssw0rd",
        "p@ssw0rd",
        "signature1",
        "Bearer token-token",
        "token-token",
        "preview-2026",
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("evaluation.agent.agent.instructions", "Use sk-0123456789."),
        ("practice.agent_objective", "sk-0123456789"),
        ("practice.learning_objective", "the token is token-token"),
        ("evaluation.verify", "{name: judge, criteria: sk-0123456789}"),
        ("data.practice_dataset_name", "sk-0123456789"),
        ("evaluation.agent.agent.name", "the one of token-token"),
    ],
)
def test_a_text_for_the_model_that_holds_a_secret_is_refused_by_name(
    tmp_path: Path, key: str, value: str
) -> None:
    path = write(tmp_path, {"p.yaml": PRACTICE})
    with pytest.raises(ConfigError) as e:
        load_practice(path, [*FLAGS, f"{key}={value}"], {})
    said = f"{e.value} {e.value.hint}"
    assert said.startswith(f"--set {key}: {key}")
    assert "contains a secret" in said
    assert "0123456789" not in said
    assert "token-token" not in said


def test_a_text_that_holds_a_key_of_the_environment_is_refused_too(tmp_path: Path) -> None:
    path = write(tmp_path, {"p.yaml": PRACTICE})
    env = {"UTU_LLM_BASE_URL": "http://h/v1", "UTU_LLM_API_KEY": "sk-of-the-environment"}
    flags = [f"{AT}.model_provider.model=m", "practice.agent_objective=a sk-of-the-environment b"]
    with pytest.raises(ConfigError, match=r"practice\.agent_objective: it contains a secret") as e:
        load_practice(path, flags, env)
    assert "sk-of" not in str(e.value)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("${oc.env:K}", "${oc.env:K}"),
        ("Bearer ${oc.env:K,null}", "Bearer ${oc.env:K,null}"),
        ("${oc.env:K,sk-literal}", "***"),
        ("sk-${oc.env:K}", "***"),
        ("sk-literal", "***"),
        (12345678, "***"),
        (None, None),
        ("", ""),
    ],
)
def test_a_reference_to_a_variable_is_no_secret(value: object, shown: object) -> None:
    assert redact({"api_key": value, "model": "m"}) == {"api_key": shown, "model": "m"}


def test_an_error_never_shows_a_secret_and_makes_control_characters_visible(
    tmp_path: Path,
) -> None:
    path = write(tmp_path, {"p.yaml": PRACTICE})
    for flag in (
        f"{AT}.model_provider.api_key=[sk-0123456789]",
        f"{AT}.model_provider.base_url=ftp://u:sk-0123456789@h",
        f"{AT}.model_settings.extra_headers=[sk-0123456789]",
    ):
        with pytest.raises(ConfigError) as e:
            load_practice(path, [f"{AT}.model_provider.model=m", flag], {})
        assert "0123456789" not in f"{e.value} {e.value.hint}"
    tree = Tree({"k": "\x1b[2J\u202e" + "x" * 100})
    with pytest.raises(ConfigError, match=r"k = '\\x1b\[2J\\u202exxx.*…: bad"):
        raise_problems([Problem(("k",), "bad")], tree, "f")


def test_the_words_of_a_header_are_no_secrets_by_themselves() -> None:
    settings = {"extra_headers": {"X-Title": "competition mathematics", "A": "Bearer tok-123456"}}
    config = ModelConfig.model_validate({"model_settings": settings})
    found = Redactor(secrets_in(config.model_dump())).known
    assert {"competition mathematics", "tok-123456"} <= found
    assert not {"competition", "mathematics", "Bearer"} & found


def test_a_literal_text_that_looks_escaped_is_shown_so_that_it_reads_back(tmp_path: Path) -> None:
    instructions = r"\\\${x} ${y}"
    flag = f"evaluation.agent.agent.instructions='{escaped(instructions)}'"
    first = load_practice(write(tmp_path, {"p.yaml": PRACTICE}), [flag], {})
    assert first.config.evaluation.agent.agent.instructions == instructions
    shown = show(first.config, first.text)
    path = write(tmp_path, {"again.yaml": shown})
    again = load_practice(path, [], {})
    assert again.config.evaluation.agent.agent.instructions == instructions
