"""An evaluation whose agent calls the tools of a server, whole and killed in the middle."""

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.errors import EndpointRefusedError
from grpo_practice.core.events import CallFinished, ToolFinished
from tests.contract.project import CONFIG, Served, served
from tests.processes import alive
from tests.rollout.tools.mcp.kits import HERE
from tests.rollout.tools.mcp.test_stateful import pids
from tests.run.project import Project

QUESTIONS = 12


def project_of(folder: Path, how: str = "well", **more: Any) -> Project:
    project = Project(folder)
    args = ["-S", str(HERE / "crude.py"), how, str(folder / "notes")]
    env = {"KEY": "correct-horse-battery-7"}
    kit = {"mode": "mcp", "config": {"command": sys.executable, "args": args, "env": env}} | more
    text = CONFIG.replace("  agent:\n", f"  agent:\n    toolkits: {json.dumps({'kit': kit})}\n")
    project.config.write_text(text)
    return project


def said(message: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    finish = "tool_calls" if "tool_calls" in message else "stop"
    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return 200, {"model": "m", "choices": [choice], "usage": usage}


def calling(
    *names: str, given: Any = None
) -> Callable[[int, dict[str, Any]], tuple[int, dict[str, Any]]]:
    """A model that calls these tools one after the other, and answers with what it read."""

    def reply(_: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        read = [m["content"] for m in body["messages"] if m["role"] == "tool"]
        if len(read) < len(names):
            function = {"name": names[len(read)], "arguments": json.dumps(given or {"n": 1})}
            call = {"id": f"c{len(read)}", "type": "function", "function": function}
            return said({"content": None, "tool_calls": [call]})
        return said({"content": rf"\boxed{{{len(read)}}} " + " ".join(read)})

    return reply


def overrides(endpoint: Served) -> tuple[str, ...]:
    provider = "evaluation.agent.model.model_provider"
    return (endpoint.override(), f"{provider}.model=m", f"{provider}.api_key=EMPTY")


def counts(project: Project) -> tuple[int, int]:
    """Model calls and tool calls that were made, not replayed."""
    new = [e for e in project.events if isinstance(e, CallFinished | ToolFinished)]
    made = [isinstance(e, ToolFinished) for e in new if not e.replayed]
    return made.count(False), made.count(True)


async def test_an_evaluation_with_a_server_of_tools_and_again_for_nothing(tmp_path: Path) -> None:
    project = project_of(tmp_path)
    async with served(calling("count", "pid")) as endpoint:
        report = await project.evaluate(*overrides(endpoint))
        assert len(endpoint.bodies) == 3 * QUESTIONS
        assert [t["function"]["name"] for t in endpoint.bodies[0]["tools"]][:2] == ["count", "pid"]
        assert counts(project) == (3 * QUESTIONS, 2 * QUESTIONS)
        assert len(pids(tmp_path / "notes", "count")) == QUESTIONS
        assert len(pids(tmp_path / "notes", "start")) == 1
        project.events.clear()
        again = await project.evaluate(*overrides(endpoint))
        assert len(endpoint.bodies) == 3 * QUESTIONS
        assert counts(project) == (0, 0)
        assert len(pids(tmp_path / "notes", "count")) == QUESTIONS
    assert again.score == report.score
    stored = project.query("SELECT DISTINCT answered_by FROM calls WHERE stage = 'tool'")
    assert stored == [("mcp crude 0",)]
    assert b"correct-horse" not in project.db.read_bytes()


@pytest.mark.long
async def test_a_killed_evaluation_goes_on_with_the_state_there_was(tmp_path: Path) -> None:
    project = project_of(tmp_path, stateful=True)
    notes = tmp_path / "notes"
    async with served(calling("count", "count", "count")) as endpoint:
        run = asyncio.create_task(project.evaluate(*overrides(endpoint), limit=4))
        await endpoint.asked(9)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert not any(map(alive, pids(notes, "start")))
        made = counts(project)
        project.events.clear()
        await project.evaluate(*overrides(endpoint), limit=4)
        rest = counts(project)
        assert [a + b for a, b in zip(made, rest, strict=True)] == [16, 12], "each is told once"
        assert len(endpoint.bodies) <= 16 + 4, "at most what was in flight is asked again"
    (answers,) = zip(*project.query("SELECT response FROM rollout_bodies"), strict=True)
    assert [re.sub(r".*\} ", "", a) for a in answers] == ["1 2 3"] * 4


async def test_a_server_that_is_gone_for_good_stops_the_run_and_scores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpo_practice.rollout.tools.mcp.server.WAITS_S", (0.0,))
    project = project_of(tmp_path, "useless")
    async with served(calling("crash", "count")) as endpoint:
        with pytest.raises(EndpointRefusedError, match="no longer usable"):
            await project.evaluate(*overrides(endpoint), "evaluation.concurrency=1")
    assert project.query("SELECT count(*) FROM v_rollouts WHERE reward = 0") == [(0,)]
