"""What is wrong with a certificate is said in a sentence, before anybody connects."""

from pathlib import Path

import pytest

from grpo_practice.core.errors import ConfigError
from grpo_practice.rollout.chat_server.tls import server_context
from tests.contract.certificates import certificate


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost", None])
def test_a_good_one_is_taken(tmp_path: Path, name: str | None) -> None:
    good = certificate(tmp_path, "127.0.0.1", "localhost")
    assert server_context(good.cert, good.key, name).cert_store_stats() is not None


@pytest.mark.parametrize(
    ("names", "name", "said"),
    [
        (("127.0.0.1",), "127.0.0.2", "IP address mismatch"),
        (("here.example",), "there.example", "Hostname mismatch"),
    ],
)
def test_one_of_another_name(tmp_path: Path, names: tuple[str], name: str, said: str) -> None:
    made = certificate(tmp_path, *names)
    with pytest.raises(ConfigError, match=f"server-cert.pem: {said}"):
        server_context(made.cert, made.key, name)
    server_context(made.cert, made.key, None)  # something in front may have the name
