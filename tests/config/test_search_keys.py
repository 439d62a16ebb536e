"""The keys of the web's services: where they come from, go to, and never show."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from grpo_practice.config.identity import identity_of
from grpo_practice.config.reading.env import read_environment
from grpo_practice.config.reading.load import Loaded, load_eval
from grpo_practice.config.schema.runs import EvalConfig
from grpo_practice.config.schema.tools import SearchConfig, SearchToolkit
from grpo_practice.config.yaml_document import show
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.redact import redactor
from tests.config.files import EVAL, stored_eval, write

SERPER, JINA = "serper-0123456789", "jina_0123456789"
ENV = {"SERPER_API_KEY": SERPER, "JINA_API_KEY": JINA}
AWAY = "https://search.corp.example"


def load(
    tmp_path: Path, env: Mapping[str, str] = ENV, search: str = "{}"
) -> tuple[SearchConfig, Loaded[EvalConfig]]:
    path = write(tmp_path, {"e.yaml": EVAL})
    loaded = load_eval(path, [f"agent.toolkits={{search: {{config: {search}}}}}"], env)
    kit = loaded.config.agent.toolkits["search"]
    assert isinstance(kit, SearchToolkit)
    return kit.config, loaded


def keys(config: SearchConfig) -> list[str | None]:
    found = (config.search_api_key, config.crawl_api_key)
    return [key.get_secret_value() if key else None for key in found]


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ("{}", [SERPER, JINA]),
        ("{search_engine: jina}", [JINA, JINA]),
        ("{crawl_engine: local}", [SERPER, None]),
        ("{search_engine: jina, crawl_engine: local}", [JINA, None]),
        ("{search_api_key: own-key-01}", ["own-key-01", JINA]),
        ("{search_url: 'http://127.0.0.1:9/x'}", [SERPER, JINA]),
        ("{crawl_url: 'http://localhost:9'}", [SERPER, JINA]),
        (f"{{search_url: '{AWAY}'}}", [None, JINA]),
        (f"{{crawl_url: '{AWAY}'}}", [SERPER, None]),
        (f"{{search_url: '{AWAY}', search_api_key: '${{oc.env:SERPER_API_KEY}}'}}", [SERPER, JINA]),
        ("{search_url: 'https://127.0.0.1.evil.example'}", [None, JINA]),
        ("{search_url: 'https://localhost.evil.example'}", [None, JINA]),
    ],
)
def test_a_key_goes_to_its_service_and_to_no_other_host(
    tmp_path: Path, search: str, found: list[str | None]
) -> None:
    assert keys(load(tmp_path, search=search)[0]) == found


def test_a_key_that_is_not_sent_is_said(tmp_path: Path) -> None:
    _, loaded = load(tmp_path, search=f"{{search_url: '{AWAY}'}}")
    assert loaded.notices == [
        f"SERPER_API_KEY is not sent to {AWAY}, which the config names without a key; if it belongs"
        " there, add `search_api_key: ${oc.env:SERPER_API_KEY}`"
    ]
    assert load(tmp_path, {}, f"{{search_url: '{AWAY}', crawl_engine: local}}")[1].notices == []


@pytest.mark.parametrize(
    ("search", "missing"),
    [
        ("{}", ["SERPER_API_KEY", "JINA_API_KEY"]),
        ("{crawl_engine: local}", ["SERPER_API_KEY"]),
        ("{search_engine: jina, crawl_engine: local}", ["JINA_API_KEY"]),
        ("{search_url: 'http://127.0.0.1:9'}", ["JINA_API_KEY"]),
        ("{search_url: 'http://127.0.0.1:9', crawl_url: 'http://[::1]:9'}", []),
    ],
)
def test_a_missing_key_is_said_before_anything_is_paid(
    tmp_path: Path, search: str, missing: list[str]
) -> None:
    if not missing:
        assert keys(load(tmp_path, {}, search)[0]) == [None, None]
        return
    with pytest.raises(ConfigError) as e:
        load(tmp_path, {}, search)
    for name in missing:
        assert f"is missing: {name} is not set" in str(e.value)
        assert f"set {name}, or add it to .env" in f"{e.value} {e.value.hint}"


def test_keys_are_read_from_a_dotenv(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("".join(f"{k}={v}\n" for k, v in ENV.items()), "utf-8")
    (tmp_path / ".git").mkdir()
    assert keys(load(tmp_path, read_environment({}, tmp_path))[0]) == [SERPER, JINA]


def test_a_key_is_in_no_text_that_is_shown_or_stored(tmp_path: Path) -> None:
    _, loaded = load(tmp_path, search="{search_api_key: own-key-0123}")
    shown = show(loaded.config, loaded.text)
    said = f"{shown} {loaded.text} {loaded.config!r} {identity_of(loaded.config)}"
    for key in ("own-key-0123", JINA):
        assert key not in said
        assert redactor.text(f"a {key} b") == "a *** b"
    assert 'search_api_key: "***"' in shown


def test_a_key_and_an_address_are_no_part_of_what_a_run_is_bound_to(tmp_path: Path) -> None:
    here = "{search_url: 'http://127.0.0.1:9', search_api_key: own-key-0123}"
    bound = [identity_of(load(tmp_path, search=s)[1].config) for s in ("{}", here)]
    assert bound[0] == bound[1]


def test_a_stored_config_takes_its_keys_from_the_environment_again(tmp_path: Path) -> None:
    _, loaded = load(tmp_path)
    again = stored_eval(loaded.text, tmp_path, ENV).config.agent.toolkits["search"]
    assert isinstance(again, SearchToolkit)
    assert keys(again.config) == [SERPER, JINA]
    _, written = load(tmp_path, search="{search_api_key: own-key-0123}")
    with pytest.raises(ConfigError, match="was redacted when the config was stored"):
        stored_eval(written.text, tmp_path, ENV)


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ("{crawl_engine: local, crawl_url: 'http://a/'}", "local does not use crawl_url"),
        ("{crawl_engine: local, crawl_params: {a: 1}}", "local does not use crawl_params"),
        ("{crawl_engine: local, crawl_api_key: abcdefgh}", "local does not use crawl_api_key"),
        ("{crawl_jina_params: {Authorization: x}}", "Authorization is a secret"),
        ("{crawl_jina_params: {x-set-cookie: x}}", "x-set-cookie is a secret"),
        ("{search_url: ftp://a/}", "http:// or https:// URL"),
        ("{at_once: 0}", "greater than or equal to 1"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, search: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(tmp_path, search=search)
