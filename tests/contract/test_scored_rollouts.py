"""What a verify function sees of the rollout that it scores, live and when it is scored again."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.clerk import Student, config, turn
from tests.contract.command import Gp
from tests.contract.endpoint.actions import ok
from tests.contract.endpoint.server import serving
from tests.contract.own import Own
from tests.contract.project import Project, cut_off, served
from tests.contract.test_tools_servers import kit

SEEN = """
import dataclasses, json, pathlib

def seen(sample, **kwargs):
    told = {
        "turns": [dataclasses.asdict(turn) for turn in sample.trajectory],
        "calls": [dataclasses.asdict(use) for use in sample.tool_calls],
        "outcome": sample.outcome,
        "time_cost": sample.time_cost,
        "trajectories": json.loads(sample.trajectories),
    }
    pathlib.Path(__file__).with_suffix(".json").write_text(json.dumps(told))
    results = [m for m in told["trajectories"][0]["trajectory"] if m["role"] == "tool"]
    return {"reward": len(results) / 10, "reasoning": f"{len(results)} results"}
"""
"""Writes the rollout beside its own file; the reward counts results as the reference's do."""
SECRET = "sk-of-nobody-1"
"""The key in the clerk's config."""


def write(*names: str) -> None:
    for name in names:
        Path(f"{name}.py").write_text(SEEN)


def read(name: str) -> Any:
    return json.loads(Path(f"{name}.json").read_text())


def test_a_verify_function_sees_turns_and_tools_live_and_when_scoring_again(
    gp: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UTU_LLM_API_KEY", SECRET)
    write("live", "again")
    twins = [
        {"id": "same", "type": "function", "function": {"name": "count", "arguments": given}}
        for given in ('{"n": 5}', '{"n": 6}')
    ]
    clerk = Student(
        turn(("count", {"n": 2}), ("count", {"n": 2}), ("say", {"key": SECRET})),
        turn(("say", "{not JSON"), ("nobody", {}), ("odd", {})),
        ok({"role": "assistant", "content": "twice", "tool_calls": twins}, finish="tool_calls"),
    )
    with serving(clerk) as server:
        config({"toolkits": kit("well")}, server.url, verify="live.py:seen")
        first = gp("eval", "--config", "c.yaml", "--json")
        scored = gp("eval", "--rejudge", "--verify", "again.py:seen", "--json")
    assert (first.code, scored.code) == (0, 0), first.err + scored.err
    told = read("live")
    assert first.document["score"]["mean"] == scored.document["score"]["mean"] == 0.8
    assert scored.document["requests"]["new"] == 0
    assert read("again") == told

    calls = [(c["name"], c["arguments"], c["result"], c["failed"]) for c in told["calls"]]
    assert calls[:3] == [
        ("count", {"n": 2}, "2", False),
        ("count", {"n": 2}, "4", False),
        ("say", {"key": "***"}, "ä", False),
    ]
    assert calls[3][:2] == ("say", "{not JSON")
    assert "not valid JSON" in calls[3][2]
    assert [c[3] for c in calls[3:6]] == [True] * 3, "none of these ran to its end"
    assert calls[6:] == [("count", {"n": 5}, "9", False), ("count", {"n": 6}, "15", False)]
    assert all(c["seconds"] >= 0 for c in told["calls"] if not c["failed"])
    roles = [t["role"] for t in told["turns"]]
    assert roles == ["system", "user", *["assistant"] * 4]
    assert told["turns"][1]["text"] == "How many apples are there?"
    assert told["turns"][-1]["text"] == "\\boxed{3}"
    assert told["turns"][-1]["tokens_out"] is not None
    assert told["turns"][-1]["seconds"] > 0
    assert (told["outcome"], told["time_cost"] > 0) == ("ok", True)
    assert SECRET not in json.dumps(told)


TRIMS = """
async def solve(question, system, context):
    call = {"id": "x", "type": "function", "function": {"name": "example", "arguments": "{}"}}
    shown = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = {"role": "tool", "tool_call_id": "x", "content": "as shown"}
    told = {"role": "developer", "content": system}
    first = await ask(context, told, shown, result, user(question))
    got = {"role": "tool", "tool_call_id": first["tool_calls"][0]["id"], "content": "42"}
    last = await ask(context, user("in short: " + question), first, got)
    return last["content"]
"""
"""Shows its model a call that nobody made, and begins a new conversation with the first result."""
CALLS = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": "x"}'}}
LEFT = {"id": "b", "type": "function", "function": {"name": "note", "arguments": "[1]"}}


async def test_calls_of_an_own_agent_are_those_that_its_model_made(tmp_path: Path) -> None:
    project = Own(tmp_path)
    seen: dict[str, list[Any]] = {"live": [], "again": []}

    def live(sample: Any) -> bool:
        return note(sample, "live")

    def again(sample: Any) -> bool:
        return note(sample, "again")

    def note(sample: Any, when: str) -> bool:
        if len(sample.trajectory) > 2:  # else it is tried before the run, on a gold
            told = (sample.question, sample.outcome, sample.time_cost, sample.trajectory)
            seen[when].append(told)
        return True

    def hook(n: int, body: Any) -> Any:
        first = not any("in short" in str(m["content"]) for m in body["messages"])
        said = {"content": "thinking", "tool_calls": [CALLS]}
        if not first:
            said = {"content": "done", "tool_calls": [LEFT]}
        choice = {
            "index": 0,
            "message": said | {"role": "assistant"},
            "finish_reason": "tool_calls",
        }
        return 200, {"choices": [choice], "usage": {"prompt_tokens": 7, "completion_tokens": 3}}

    async with served(hook) as endpoint:
        at = f"agent.model.model_provider.base_url={endpoint.url}"
        overrides = [*project.agent(TRIMS), at]
        await project.evaluate(*overrides, verify=live, limit=3)
        run = "toy/eval/verify=live"
        await project.evaluate(verify=again, rejudge=True, run=run, config=None)
    assert sorted(map(repr, seen["live"])) == sorted(map(repr, seen["again"]))
    assert len(seen["live"]) == 3
    for question, outcome, time_cost, turns in seen["live"]:
        assert (outcome, time_cost >= 0) == ("ok", True)
        roles = [turn.role for turn in turns]
        assert roles == ["system", "assistant", "tool", *["user", "assistant"] * 2, "assistant"]
        calls = [(c.name, c.arguments, c.result, c.failed) for t in turns for c in t.tool_calls]
        assert calls == [("look", {"at": "x"}, "42", False), ("note", [1], None, True)]
        assert (turns[4].tokens_in, turns[4].tokens_out) == (7, 3)
        assert question in turns[3].text


RULES = {"required": ["say"], "at_most": {"say": 1}, "arguments": {"say": {"to": "{answer}"}}}


@pytest.mark.long
def test_rules_about_tool_calls_score_a_stored_rollout_as_a_live_one(
    gp: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UTU_LLM_API_KEY", SECRET)

    def scores(run: str) -> list[Any]:
        rows = gp("rollouts", "list", run, "--json").document["rollouts"]
        return [(row["reward"], row["extracted"]) for row in rows]

    for call, reward in ((("say", {"to": 3}), 1), (("say", {"to": "4"}), 0)):
        for file in Path().glob("grpo-practice.db*"):
            file.unlink()
        with serving(Student(turn(("count", {}), call))) as server:
            told = {"verify": {"name": "tool_calls", **RULES}, "concurrency": 1}
            config({"toolkits": kit("well")}, server.url, **told)
            assert gp("eval", "--config", "c.yaml").code == 0
            config({"toolkits": kit("well")}, server.url, exp_id="y", concurrency=1)
            assert gp("eval", "--config", "c.yaml").code == 0
            spec = f"verify={json.dumps(told['verify'])}"
            again = (
                "eval",
                "--rejudge",
                "--verify",
                "tool_calls",
                "--set",
                spec,
                "--run",
                "y/eval",
            )
            report = gp(*again, "--json").document
        assert report["requests"]["new"] == 0
        assert scores(report["run"]) == scores("x/eval") == [(reward, "calls: count, say")]
        shown = gp("rollouts", "show", "x/eval").out
        assert ("say must be called with to = 3, not 4" in shown) == (not reward)


def test_the_result_of_a_tool_that_ends_the_rollout_is_seen(gp: Gp) -> None:
    write("live")
    with serving(Student(turn(("say", {"n": 3})))) as server:
        agent = {"toolkits": kit("well"), "stop_at_tool_names": ["say"]}
        config(agent, server.url, verify="live.py:seen")
        assert gp("eval", "--config", "c.yaml").code == 0
    (call,) = read("live")["calls"]
    assert (call["arguments"], call["result"], call["failed"]) == ({"n": 3}, "äää", False)


def test_a_judge_may_see_the_rollout_live_and_when_scoring_again(
    gp: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UTU_LLM_API_KEY", SECRET)
    call = turn(("say", {"key": SECRET}))
    clerk = Student(call, reads=lambda _: ok("It says it.\nGRADE: CORRECT"))
    with serving(clerk) as server:
        verify = {"name": "judge", "show": "trajectory"}
        config({"toolkits": kit("well")}, server.url, verify=verify)
        first = gp("eval", "--config", "c.yaml", "--json")
        spec = f"verify={json.dumps(verify | {'criteria': 'It says it.'})}"
        again = gp("eval", "--rejudge", "--verify", "judge", "--set", spec, "--json")
    assert (first.code, again.code) == (0, 0), first.err + again.err
    assert [ran.document["score"]["mean"] for ran in (first, again)] == [1, 1]
    live, stored = clerk.read
    shown = 'calls say({"key": "***"})\nreturns:\n    ä\n[assistant]\n    \\boxed{3}'
    assert shown in live
    assert shown in stored
    assert "## Criteria" in stored


def test_rules_without_a_rollout_or_about_an_unknown_tool_are_told(gp: Gp) -> None:
    said = gp("verify", "tool_calls", "--answer", "3", "--response", "3")
    assert (said.code, "here there is only a text" in said.err) == (2, True)
    verify = {"name": "tool_calls", "required": ["say"], "forbidden": ["sya"]}
    with serving(Student()) as server:
        config({"toolkits": kit("well")}, server.url, verify=verify)
        checked = gp("doctor", "--config", "c.yaml", "--json")
        assert "not tried, because that needs an agent" in str(checked.document["findings"])
        ran = gp("eval", "--config", "c.yaml")
        assert ran.code == 0
        assert "has rules about sya, but the tools of the agent are count, pid" in ran.err
        config({}, server.url, verify=verify | {"at_most": {"say": "1"}})
        ran = gp("eval", "--config", "c.yaml")
    assert ran.code == 2
    assert "at_most.say must be a whole number, not '1'" in ran.err


@pytest.mark.long
async def test_a_run_that_was_stopped_scores_the_same_rollouts(tmp_path: Path) -> None:
    seen: dict[str, dict[str, Any]] = {"whole": {}, "stopped": {}}
    told = seen["whole"]

    def note(sample: Any) -> bool:
        if len(sample.trajectory) > 2:
            turns = [(turn.role, turn.text, turn.tool_calls) for turn in sample.trajectory]
            told[sample.question] = [
                (role, text, [(use.name, use.arguments, use.result) for use in uses])
                for role, text, uses in turns
            ]
        return True

    def hook(n: int, body: Any) -> Any:
        said: dict[str, Any] = {"role": "assistant", "content": "done"}
        if body["messages"][-1]["role"] != "tool":
            given = json.dumps({"question": body["messages"][-1]["content"]})
            function = {"name": "say", "arguments": given}
            said["tool_calls"] = [{"id": "a", "type": "function", "function": function}]
        return 200, {"choices": [{"index": 0, "message": said, "finish_reason": "stop"}]}

    toolkits = f"agent.toolkits={json.dumps(kit('well'))}"
    for when in seen:
        told, project = seen[when], Project(tmp_path / when)
        async with served(hook) as endpoint:
            at = f"agent.model.model_provider.base_url={endpoint.url}"
            if when == "stopped":
                early = project.evaluate(at, toolkits, "concurrency=3", verify=note)
                await cut_off(early, endpoint, 10)
                assert len(told) < 12
            await project.evaluate(at, toolkits, "concurrency=3", verify=note)
    assert seen["whole"] == seen["stopped"]
    assert len(told) == 12
    for question, turns in told.items():
        assert turns[2:] == [
            ("assistant", "done", [("say", {"question": question}, "ä")]),
            ("assistant", "done", []),
        ]


LOGS = """
def log(context, question, secret):
    arguments = {"of": question, "key": secret, "n": [1, None]}
    context.log_tool("refund", arguments, "x" * 20_000, seconds=1.5)
    context.log_tool("refund", arguments, "again")
    context.log_tool("look", failed=True)
"""
IN_LOOP = """
async def solve(question, system, context):
    log(context, question, SECRET)
    return (await ask(context, user(question)))["content"]
"""
IN_A_WORKER = """
def solve(question, system, context):
    log(context, question, SECRET)
    return asyncio.run(ask(context, user(question)))["content"]
"""
AS_A_COMMAND = """
import sys
from types import SimpleNamespace
given, calls = json.load(sys.stdin), []
assert "logged" not in given
def log_tool(name, arguments=None, result="", **more):
    calls.append({"name": name, "arguments": arguments, "result": result, **more})
log(SimpleNamespace(log_tool=log_tool), given["question"], SECRET)
said = asyncio.run(ask(SimpleNamespace(**given), user(given["question"])))
print(json.dumps({"answer": said["content"], "tool_calls": calls}))
"""
WAYS: dict[str, tuple[str, list[str]]] = {
    "loop": (IN_LOOP, []),
    "worker": (IN_A_WORKER, ["agent.workers=1"]),
    "command": (AS_A_COMMAND, ["agent.type=command", f"agent.command=[{sys.executable}, mine.py]"]),
}


@pytest.mark.long_after(1)
@pytest.mark.parametrize("way", WAYS)
async def test_tool_calls_that_an_own_agent_logs_are_scored(tmp_path: Path, way: str) -> None:
    project, program = Own(tmp_path), WAYS[way][0]
    named = project.agent(f"SECRET = {SECRET!r}\n{LOGS}{program}")
    if way == "command":
        named = []
    seen: dict[str, list[Any]] = {"live": [], "again": []}

    def note(sample: Any, when: str) -> bool:
        if sample.tool_calls:
            seen[when].append((sample.question, sample.trajectory))
        return True

    def live(sample: Any) -> bool:
        return note(sample, "live")

    def again(sample: Any) -> bool:
        return note(sample, "again")

    overrides = [*named, *WAYS[way][1], f"agent.model.model_provider.api_key={SECRET}"]
    async with served() as endpoint:
        at = f"agent.model.model_provider.base_url={endpoint.url}"
        for _ in range(2):
            await project.evaluate(*overrides, at, verify=live, limit=2)
        run, key = "toy/eval/verify=live", {"UTU_LLM_API_KEY": SECRET}
        await project.evaluate(verify=again, rejudge=True, run=run, config=None, env=key)
        assert len(endpoint.bodies) == 2
    assert sorted(map(repr, seen["live"])) == sorted(map(repr, seen["again"]))
    assert len(seen["live"]) == 2
    for question, turns in seen["live"]:
        assert [turn.role for turn in turns] == ["user", "assistant", "assistant"]
        first, second, look = turns[1].tool_calls
        assert first.arguments == {"of": question, "key": "***", "n": [1, None]}
        assert first.result.startswith("xxx")
        assert first.result.endswith("[cut here: this is the beginning of 20,000 bytes]")
        assert (first.failed, first.seconds, second.result) == (False, 1.5, "again")
        assert (look.name, look.arguments, look.result, look.failed) == ("look", {}, "", True)
        assert turns[2].text
    assert project.query("SELECT count(*) FROM calls WHERE stage = 'tool'") == [(6,)]
    assert project.wrong == []


BAD_LOGS = {
    'context.log_tool("f", [1])': "log_tool: arguments must be a dict, not list",
    'context.log_tool("f", {"a": {1}})': "set is not JSON serializable",
    'context.log_tool("f", {"a": float("nan")})': "not JSON compliant",
    'context.log_tool("f", {}, 3)': "log_tool: result must be text, not int",
    "context.log_tool(None)": "log_tool: name must be text, not NoneType",
    'context.log_tool("f", seconds=-1)': "log_tool: seconds must be a number of at least 0",
    'context.log_tool("f", {"a": "x" * 2**20})': "log_tool: arguments of more than 1,024 KiB",
    '[context.log_tool("f") for _ in range(10_001)]': "log_tool: more than 10,000 calls",
}


async def test_a_log_that_cannot_be_stored_is_an_error_of_its_rollout(tmp_path: Path) -> None:
    project = Own(tmp_path)
    cases = "".join(f"    elif question == {name!r}:\n        {name}\n" for name in BAD_LOGS)
    program = f"""
async def solve(question, system, context):
    if not question:
        pass
{cases}    return "3"
"""
    rows = [{"question": name, "answer": "3"} for name in BAD_LOGS]
    Workspace(project.db).datasets.upload("bad", rows)
    named = project.agent(program)
    with pytest.raises(Exception, match="failed"):
        await project.evaluate(*named, "data.dataset=bad")
    errors = project.query("SELECT question, error FROM v_rollouts JOIN samples USING (sample_id)")
    assert {
        question: why in error for question, error in errors for why in [BAD_LOGS[question]]
    } == (dict.fromkeys(BAD_LOGS, True)), errors
