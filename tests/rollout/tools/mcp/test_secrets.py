"""What of a server's variables is a secret: what looks like one, and nothing a tool may answer."""

from pathlib import Path

import pytest

from grpo_practice.config import load_eval, read_environment
from grpo_practice.config.identity import identity_of
from grpo_practice.config.redact import redact
from grpo_practice.core.redact import Redactor, variable_secrets


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("API_KEY", "correct-horse-battery", True),
        ("DB_PASSWORD", "correcthorse", True),
        ("GITHUB_PAT", "ghp_16C7e42F292c6912E7710c838347Ae178B4a", True),
        ("NODE_ENV", "production", False),
        ("MEMORY_FILE_PATH", "/home/user1/memory-store-2.json", False),
        ("API_BASE", "http://localhost:8080/v2", False),
        ("LOG_LEVEL", "information", False),
    ],
)
def test_a_variable_is_a_secret_by_name_or_form(name: str, value: str, secret: bool) -> None:
    assert variable_secrets(name, value) == ({value} if secret else set())
    known = Redactor(variable_secrets(name, value))
    assert known.holds(f"the file is {value}.") == secret


def test_the_password_in_an_address_is_one() -> None:
    known = Redactor(variable_secrets("DATABASE_URL", "postgres://me:pass-4711-word@db:5432/x"))
    assert known.text("me:pass-4711-word@db:5432/x") == "***@db:5432/x"


def test_no_secret_of_a_toolkit_is_in_the_identity_of_a_run(tmp_path: Path) -> None:
    texts = []
    for key in ("one-key-4711-0001", "two-key-4711-0002"):
        (tmp_path / "e.yaml").write_text(f"""
exp_id: e
verify: math
data: {{dataset: test}}
agent:
  model: {{model_provider: {{model: sim}}}}
  toolkits:
    a:
      mode: mcp
      config: {{command: a-server, env: {{MY_KEY: {key}, MODE: production}}}}
    b:
      mode: mcp
      mcp_transport: streamable_http
      config: {{url: "http://h.test/mcp?token={key}", headers: {{authorization: "Bearer {key}"}}}}
""")
        loaded = load_eval(tmp_path / "e.yaml", (), read_environment({}, tmp_path))
        texts.append(str(identity_of(loaded.config)))
        assert "production" not in str(redact(loaded.config.model_dump()))
        assert key not in str(redact(loaded.config.model_dump()))
    assert texts[0] == texts[1]
    assert "4711" not in texts[0]
    assert "h.test" in texts[0]
