"""An evaluation whose agent runs code, and again from what is stored."""

import json
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.app.agents import UNCONFINED
from grpo_practice.errors import ConfigError
from grpo_practice.events import Notice, ToolFinished
from tests.app.project import Project
from tests.contract.project import CONFIG, Served, served
from tests.tools.python.running import ALL, bwrap_works

CODE = "import time\nprint('run at', time.time())\n6 * 7"


def project_of(folder: Path, **config: Any) -> Project:
    project = Project(folder)
    kit = {"name": "python_executor", "mode": "builtin", "config": config}
    text = json.dumps({"python_executor": kit})
    project.config.write_text(CONFIG.replace("  agent:\n", f"  agent:\n    toolkits: {text}\n"))
    return project


def model(_: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Runs code, and answers with the last line it read."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    last = body["messages"][-1]
    if last["role"] == "tool":
        message["content"] = rf"\boxed{{{last['content'].splitlines()[-1]}}}"
    else:
        function = {"name": "execute_python_code", "arguments": json.dumps({"code": CODE})}
        message["tool_calls"] = [{"id": "c0", "type": "function", "function": function}]
    finish = "stop" if message["content"] else "tool_calls"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return 200, {"model": "m", "choices": [choice], "usage": {}}


def overrides(endpoint: Served) -> tuple[str, ...]:
    provider = "evaluation.agent.model.model_provider"
    return (endpoint.override(), f"{provider}.model=m", f"{provider}.api_key=EMPTY")


@pytest.mark.slow
@pytest.mark.parametrize("backend", ALL)
async def test_an_evaluation_runs_code_and_its_resume_runs_none(
    backend: str, tmp_path: Path
) -> None:
    if backend == "bwrap" and not bwrap_works():
        pytest.skip("bwrap does not work on this machine")
    project = project_of(tmp_path, backend=backend)
    async with served(model) as endpoint:
        await project.evaluate(*overrides(endpoint), limit=3)
        tool = endpoint.bodies[0]["tools"][0]["function"]
        assert tool["parameters"]["required"] == ["code"]
        assert tool["parameters"]["properties"]["timeout"]["default"] == 30
        asked = len(endpoint.bodies)
        ((ran_in,),) = project.query("SELECT DISTINCT answered_by FROM calls WHERE stage = 'tool'")
        assert ran_in.startswith(backend)
        notices = [e.text for e in project.events if isinstance(e, Notice)]
        assert f"tools: execute_python_code ({ran_in})" in notices
        assert (UNCONFINED in notices) is (backend == "subprocess")
        project.events.clear()
        await project.evaluate(*overrides(endpoint), limit=3)
        assert len(endpoint.bodies) == asked
    assert not [e for e in project.events if isinstance(e, ToolFinished) and not e.replayed]
    answers = project.query("SELECT response FROM rollout_bodies")
    assert answers == [(r"\boxed{42}",)] * 3


async def test_a_backend_that_does_not_work_costs_no_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = project_of(tmp_path, backend="bwrap")
    monkeypatch.setenv("PATH", str(tmp_path))
    async with served(model) as endpoint:
        with pytest.raises(ConfigError, match="the backend bwrap does not work here"):
            await project.evaluate(*overrides(endpoint), limit=3)
        assert not endpoint.bodies
