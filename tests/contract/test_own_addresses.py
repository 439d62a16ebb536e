"""The address in a `.env`: a fact where the user was told to write it, else a warning."""

import socket
from pathlib import Path

import pytest

from tests.contract.command import Gp


@pytest.fixture
def url() -> str:
    """Return an address at which nobody listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{held.getsockname()[1]}/v1"


def asked_at(gp: Gp, config: str) -> list[str]:
    """Return the states of the findings that name the address."""
    findings = gp("doctor", "--json", "--config", config).document["findings"]
    return [one["severity"] for one in findings if " is called at http://" in one["sentence"]]


def test_what_init_says_to_fill_in_is_no_warning(
    gp: Gp, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gp("init", "mine").code == 0
    monkeypatch.chdir("mine")
    Path(".env").write_text(f"UTU_LLM_MODEL=m-1\nUTU_LLM_BASE_URL={url}\n")
    assert asked_at(gp, "practice.yaml") == ["ok"]
    ran = gp("config", "validate", "--config", "practice.yaml")
    assert f"m-1 is called at {url} (" in ran.out + ran.err


def test_a_folder_that_is_not_trusted_keeps_the_warning(gp: Gp, url: str) -> None:
    Path("theirs.txt").write_text("cloned")
    assert gp("init", ".").code == 0  # what lies in it is not yours because of that
    Path(".env").write_text(f"UTU_LLM_MODEL=m-1\nUTU_LLM_BASE_URL={url}\n")
    assert asked_at(gp, "practice.yaml") == ["warning"]
    assert gp("trust", ".").code == 0
    assert asked_at(gp, "practice.yaml") == ["ok"]


def test_a_trusted_env_that_is_not_beside_the_config_keeps_the_warning(
    gp: Gp, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gp("init", "mine").code == 0
    Path("mine/.env").write_text(f"UTU_LLM_MODEL=m-1\nUTU_LLM_BASE_URL={url}\n")
    Path("other").mkdir()
    Path("other/practice.yaml").write_text(Path("mine/practice.yaml").read_text())
    monkeypatch.chdir("mine")
    assert asked_at(gp, "../other/practice.yaml") == ["warning"]
