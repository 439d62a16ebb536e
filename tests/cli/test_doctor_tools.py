"""`doctor` opens what an agent's tools need, and asks whether its endpoint takes tools at all."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.config import EvalConfig, load_eval, read_environment
from grpo_practice.run.doctor.endpoints import models_of
from tests.cli.conftest import Gp, Ran, gp
from tests.cli.test_doctor import TOOL, ask, found, write
from tests.contract.endpoint.actions import Script, always, error, ok, status
from tests.rollout.tools.mcp.kits import HERE

__all__ = ["gp"]

SECRET = "correct-horse-battery-7"
CALLS = always(ok({"role": "assistant", "content": "4", "tool_calls": [TOOL]}, usage={}))


def kit(how: str = "well", **more: Any) -> str:
    """A toolkit whose server notes what is done with it."""
    args = ["-S", str(HERE / "crude.py"), how, "notes"]
    config = {"command": sys.executable, "args": args, "env": {"KEY": SECRET}}
    return json.dumps({"mode": "mcp", "config": config} | more)


def look(gp: Gp, script: Script, *sets: str, **kits: str) -> Ran:
    toolkits = ", ".join(f"{name}: {text}" for name, text in kits.items())
    return ask(gp, script, f"agent.toolkits={{{toolkits}}}", *sets)[0]


def test_each_toolkit_is_opened_and_its_tools_are_named(gp: Gp, tmp_path: Path) -> None:
    write(tmp_path)
    ran = look(gp, CALLS, files=kit(activated_tools=["count", "say"]))
    assert ran.code == 0, ran.out
    assert found(ran, "toolkit files") == [("ok", "count, say (mcp crude 0)")]
    notes = (tmp_path / "notes").read_text().split()
    assert [w for w in notes if not w.isdigit()] == ["start"]  # opened once, and nothing called


@pytest.mark.long
def test_a_toolkit_that_cannot_be_had_is_exit_2_and_the_others_are_looked_at(
    gp: Gp, tmp_path: Path
) -> None:
    write(tmp_path)
    ran = look(gp, CALLS, bad=kit("dies"), good=kit(), none=kit(activated_tools=["nothing"]))
    assert ran.code == 2
    ((state, text),) = found(ran, "toolkit bad")
    assert (state, "the key *** is refused" in text) == ("problem", True)
    assert found(ran, "toolkit good")[0][0] == "ok"
    ((state, text),) = found(ran, "toolkit none")
    assert (state, "there is no tool 'nothing'" in text) == ("problem", True)
    assert SECRET not in ran.out + ran.err
    assert any("latency" in text for _, text in found(ran, "student"))  # asked all the same


def test_two_toolkits_with_a_tool_of_one_name_are_a_problem(gp: Gp, tmp_path: Path) -> None:
    write(tmp_path)
    ran = look(gp, CALLS, a=kit(activated_tools=["say"]), b=kit(activated_tools=["say"]))
    assert (ran.code, found(ran, "toolkits")) == (
        2,
        [("problem", "two toolkits have a tool 'say'")],
    )


def test_a_tool_that_ends_a_rollout_and_does_not_exist_is_pointed_out(
    gp: Gp, tmp_path: Path
) -> None:
    write(tmp_path)
    ran = look(gp, CALLS, "agent.stop_at_tool_names=[say, finish]", files=kit())
    assert ("warning", "stop_at_tool_names: there is no tool 'finish'") in found(ran, "agent")
    assert len(found(ran, "agent")) == 1


def refuses(asked: Any) -> Any:
    if asked.body.get("tools"):
        return error(400, "tools are not supported by this model")
    return ok("4", usage={"prompt_tokens": 1, "completion_tokens": 1})


@pytest.mark.parametrize("tools", [True, False])
def test_an_endpoint_that_refuses_tools_is_a_problem_where_there_are_some(
    gp: Gp, tmp_path: Path, tools: bool
) -> None:
    write(tmp_path)
    ran = look(gp, refuses, **({"files": kit()} if tools else {}))
    (said,) = [(s, t) for s, t in found(ran, "student") if "refuses a request with a tool" in t]
    assert (ran.code, said[0]) == ((3, "problem") if tools else (0, "ok"))
    assert "tools are not supported" in said[1]


def newer(asked: Any) -> Any:
    """Refuse tools on chat completions, as reasoning models of OpenAI do."""
    if asked.path.endswith("/responses"):
        call = {"type": "function_call", "call_id": "c", "name": "add", "arguments": "{}"}
        return status(200, {"object": "response", "status": "completed", "output": [call]})
    if asked.body.get("tools"):
        return error(400, "Function tools are not supported here. Please use /v1/responses.")
    return ok("4", usage={"prompt_tokens": 1, "completion_tokens": 1})


def test_an_endpoint_that_calls_tools_on_the_other_api_says_so(gp: Gp, tmp_path: Path) -> None:
    write(tmp_path)
    ran = look(gp, newer, files=kit())
    hint = "--set agent.model.model_provider.type=responses"
    (said,) = [f for f in ran.document["findings"] if "with the other API" in f["sentence"]]
    assert (ran.code, said["severity"], said["hint"]) == (3, "problem", hint)
    ran = look(gp, newer, *hint.split()[1:], files=kit())
    assert ("ok", "tool calls work (responses)") in found(ran, "student")


@pytest.mark.parametrize("tools", [True, False])
def test_a_model_that_calls_no_tool_is_a_warning_where_there_are_some(
    gp: Gp, tmp_path: Path, tools: bool
) -> None:
    write(tmp_path)
    ran = look(gp, always(ok("4")), **({"files": kit()} if tools else {}))
    (said,) = [(s, t) for s, t in found(ran, "student") if "did not call a tool" in t]
    assert (ran.code, said[0]) == (0, "warning" if tools else "ok")


@pytest.mark.parametrize(("url", "warned"), [("http://far.test/mcp", True), ("https://a.test", 0)])
def test_headers_that_go_out_in_clear_are_a_warning(url: str, warned: bool) -> None:
    from grpo_practice.config.schema.tools import McpToolkit
    from grpo_practice.run.doctor.tools import _in_clear

    web = {"name": "web", "mode": "mcp", "mcp_transport": "streamable_http"}
    config = {"url": url, "headers": {"authorization": SECRET}}
    toolkit = McpToolkit.model_validate(web | {"config": config})
    assert bool(_in_clear("toolkit web", toolkit)) == bool(warned)
    if warned:
        assert SECRET not in _in_clear("toolkit web", toolkit)[0].sentence


def test_an_agent_of_the_users_own_is_looked_for(gp: Gp, tmp_path: Path) -> None:
    write(tmp_path)
    ran, _ = ask(gp, CALLS, "agent.type=python", "agent.function=mine.py:play")
    assert (ran.code, found(ran, "agent")[0][0]) == (2, "problem")
    (tmp_path / "mine.py").write_text("async def play(question, system, context): return 'x'\n")
    ran, _ = ask(gp, CALLS, "agent.type=python", "agent.function=mine.py:play")
    silent = "mine.py:play answered a made-up question without a request"
    assert (ran.code, found(ran, "agent")) == (0, [("warning", silent)])


def test_the_model_that_reads_pages_is_asked_too(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text("""
exp_id: e
verify: math
data: {dataset: test}
agent:
  model: {model_provider: {model: a, base_url: "http://127.0.0.1:1/v1", api_key: EMPTY}}
  toolkits:
    search:
      config: {search_engine: google, crawl_engine: local}
      config_llm: {model_provider: {model: b, base_url: "http://127.0.0.1:1/v1", api_key: EMPTY}}
""")
    env = read_environment({"SERPER_API_KEY": "serper-key-4711-abc"}, tmp_path)
    config = load_eval(tmp_path / "e.yaml", (), env).config
    assert isinstance(config, EvalConfig)
    names = {role: model.model_provider.model for role, model in models_of(config)}
    assert names == {"student": "a", "reader": "b"}


def test_one_model_is_asked_by_each_api_that_a_role_speaks(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text("""
exp_id: e
verify: judge
data: {dataset: test}
agent: {model: {model_provider: {model: a, base_url: "http://127.0.0.1:1/v1", api_key: EMPTY}}}
judge_model: {model_provider: {model: a, type: responses}}
""")
    config = load_eval(tmp_path / "e.yaml", (), read_environment({}, tmp_path)).config
    apis = {role: model.model_provider.type for role, model in models_of(config)}
    assert apis == {"student": "chat.completions", "judge": "responses"}


SERVICE = {"search_url": "http://127.0.0.1:9", "search_api_key": SECRET, "crawl_engine": "local"}
READS = {"search": {"mode": "builtin", "config": SERVICE}}
PRACTICE = {"exp_id": "w", "data": {"practice_dataset_name": "d.jsonl"}}


@pytest.mark.parametrize(
    ("toolkits", "approve", "states"),
    [(READS, False, ["warning"]), (READS, True, []), ({}, False, [])],
)
def test_approval_is_advised_where_an_agent_that_practises_reads_the_web(
    gp: Gp, tmp_path: Path, toolkits: Any, approve: bool, states: list[str]
) -> None:
    (tmp_path / "d.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n')
    agent = {"toolkits": toolkits, "model": {"model_provider": {"model": "sim"}}}
    config = PRACTICE | {
        "practice": {"approve": approve, "batch_size": 1},
        "evaluation": {"verify": "exact", "agent": agent},
    }
    (tmp_path / "w.yaml").write_text(json.dumps(config))
    ran = gp("doctor", "--config", "w.yaml", "--json")
    assert [state for state, _ in found(ran, "practice.approve")] == states
    assert ran.document["exit"] == 0
    if states:
        (hint,) = [f["hint"] for f in ran.document["findings"] if f["about"] == "practice.approve"]
        assert hint.startswith("set practice.approve: true, and review")
        set_ = ("--set", "practice.approve=true", "--set", "evaluation.agent.toolkits=null")
        assert gp("practice", "--config", "w.yaml", *set_).code == 0
        assert gp(*hint.split("`")[1].split()[1:]).code == 0
