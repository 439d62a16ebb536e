"""The note on where a key goes appears if the address is new in the run."""

from pathlib import Path

import pytest

from tests.contract.command import Gp
from tests.contract.endpoint.actions import always, ok
from tests.contract.endpoint.server import serving

AGENT = """\
agent: {name: a, instructions: Solve.}
model: {model_provider: {model: m, base_url: "URL", api_key: "${oc.env:MY_KEY}"}}
"""
EVAL = ("eval", "--config", "own.yaml", "--dataset", "tasks.jsonl", "--verify", "exact")


def test_a_key_is_announced_again_only_for_a_new_address_a_new_run_or_a_new_database(
    gp: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-1234567890")
    Path("tasks.jsonl").write_text('{"question": "1 + 1?", "answer": "2"}\n')

    def told(url: str, *words: str) -> int:
        agent = AGENT.replace("URL", url)
        Path("own.yaml").write_text("agent:\n" + "".join(f"  {x}\n" for x in agent.splitlines()))
        ran = gp(*EVAL, *words)
        assert ran.code == 0, ran.err
        return ran.err.count("MY_KEY")

    with serving(always(ok("2"))) as server:
        other = server.url.replace("127.0.0.1", "localhost")
        again = ("--restart-step", "0")
        assert told(server.url, "--exp-id", "a", "--dry-run") == 1
        assert told(server.url, "--exp-id", "a") == 1
        assert told(server.url, "--exp-id", "a", *again) == 0
        assert told(server.url, "--exp-id", "a", "--dry-run", *again) == 1
        assert told(other, "--exp-id", "a", *again) == 1
        assert told(server.url, "--exp-id", "b") == 1
        assert told(server.url, "--exp-id", "a", "--db", "other.db") == 1
