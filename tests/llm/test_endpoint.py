"""Endpoints, and the secrets they keep."""

import pytest

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.redact import redactor
from grpo_practice.llm.endpoint import Endpoint, host, shown_url

URL = "https://api.example.com/v1"


def test_the_secrets_of_an_endpoint_are_known() -> None:
    Endpoint(
        "https://user:hunter22@example.com/v1?sig=signature1",
        headers={"X": "h-secret-1"},
        query={"k": "p-secret-1"},
    )
    Endpoint(URL, api_key="sk-live-1234")
    for secret in ("hunter22", "signature1", "sk-live-1234", "h-secret-1", "p-secret-1"):
        assert redactor.text(f"a {secret} b") == "a *** b"


def test_no_secret_is_in_the_repr() -> None:
    endpoint = Endpoint(
        "https://example.com/v1?key=q-secret",
        api_key="sk-live-1234",
        headers={"X": "h-secret"},
        query={"k": "p-secret"},
    )
    told = repr(endpoint) + repr(Endpoint("https://user:hunter22@example.com/v1"))
    for secret in ("hunter22", "q-secret", "sk-live-1234", "h-secret", "p-secret"):
        assert secret not in told


@pytest.mark.parametrize(
    "url", ["", "api.example.com/v1", "ftp://example.com", "https://", "http://[::1", "http://h:x"]
)
def test_a_base_url_that_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"model_provider\.base_url"):
        Endpoint(url)


@pytest.mark.parametrize("key", ["sk-live\n", "\u201csk-live\u201d"])
def test_a_key_with_a_stray_character_is_refused_by_the_name_of_its_source(key: str) -> None:
    with pytest.raises(ConfigError, match=r"^OPENAI_API_KEY: ") as caught:
        Endpoint(URL, api_key=key, key_name="OPENAI_API_KEY")
    assert "sk-live" not in str(caught.value)


def test_a_header_of_the_users_goes_before_ours() -> None:
    endpoint = Endpoint(URL, api_key="sk-live-1234", headers={"authorization": "Basic x"})
    headers = endpoint.request_headers()
    assert headers == {"Content-Type": "application/json", "authorization": "Basic x"}


def test_an_address_is_shown_without_its_secrets() -> None:
    url = "https://u:p@h.example:8443/v1?key=k#f"
    assert (shown_url(url), host(url)) == ("https://h.example:8443/v1", "h.example")


def test_a_user_in_the_url_and_a_key_do_not_go_together() -> None:
    with pytest.raises(ConfigError, match="only one of them") as e:
        Endpoint("https://user:hunter2@h/v1", api_key="sk-12345678")
    assert "hunter2" not in str(e.value)
    Endpoint("https://user:hunter2@h/v1")
