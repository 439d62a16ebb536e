"""The key of a rollout stands in nothing that is kept or told, wherever its program puts it."""

import re
import sys
from pathlib import Path

import pytest

from grpo_practice.redact import ROLLOUT_TOKEN
from tests.agents.custom.test_run import Own
from tests.canary.keys import _rows
from tests.contract.project import served

KEY = re.compile(rf"{ROLLOUT_TOKEN}[A-Za-z0-9_-]{{43}}".encode())
TELLS = """
import json, sys
from urllib.request import Request, urlopen

def solve(question, system, context):
    known = f"{context.base_url} and {context.api_key}"
    messages = [{"role": "user", "content": f"{question} {context.api_key}"}]
    body = json.dumps({"messages": messages, "user": context.api_key}).encode()
    with urlopen(Request(context.base_url + "/chat/completions", body)) as reply:
        said = json.load(reply)["choices"][0]["message"]["content"]
    print(known, file=sys.stderr)
    if context.seed % 6 == 0:
        raise ValueError(f"404 for {known}")
    return f"{said} {known}"

if __name__ == "__main__":
    from types import SimpleNamespace
    given = json.load(sys.stdin)
    answer = solve(given["question"], given["system"], SimpleNamespace(**given))
    print(json.dumps({"answer": answer}))
"""


@pytest.mark.parametrize("kind", ["workers", "threads", "command"])
async def test_it_is_kept_nowhere(tmp_path: Path, kind: str) -> None:
    project = Own(tmp_path)
    overrides = project.agent(TELLS)
    if kind == "command":
        overrides = ["agent.type=command", f"agent.command=[{sys.executable}, mine.py]"]
    elif kind == "threads":
        overrides.append("agent.workers=0")
    async with served() as endpoint:
        key = endpoint.override().removeprefix("evaluation.")
        report = await project.evaluate(*overrides, key)
    assert report.outcomes["ok"] >= 8
    assert report.outcomes["error.agent"] >= 1, "some told it in an error"
    kept = [KEY.search(value) for value in _rows(project.db)]
    assert len(kept) > 500
    assert not any(kept)
    assert not KEY.search(str([project.events, report]).encode())
    assert not KEY.search(str(endpoint.bodies).encode())
    # So that what was paid is found again, though the program told another key.
    async with served() as endpoint:
        key = endpoint.override().removeprefix("evaluation.")
        again = await project.evaluate(*overrides, key)
    assert again.requests.new == 0
