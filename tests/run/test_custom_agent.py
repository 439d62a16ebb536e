"""The user's own agent, opened for a run: what it changes in the process, and that it ends."""

import os
import sys
from pathlib import Path

import pytest

from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.run.custom_agent import open_own

PROXY = "NO_PROXY"


async def test_runs_that_overlap_leave_the_process_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROXY, "host.example")
    (tmp_path / "player.py").write_text("def play(question, system, context): return '1'\n")
    config = AgentConfig(type="python", function="player.py:play", workers=0)
    stdout = sys.stdout
    first, second = (open_own(config, tmp_path, print) for _ in range(2))
    await first.__aenter__()
    await second.__aenter__()
    await first.__aexit__(None, None, None)
    assert sys.stdout is sys.stderr  # the second one still plays
    assert os.environ[PROXY] == "host.example,127.0.0.1"
    await second.__aexit__(None, None, None)
    assert sys.stdout is stdout
    assert os.environ[PROXY] == "host.example"
