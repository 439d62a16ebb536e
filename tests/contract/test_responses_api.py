"""The Responses API from end to end: tools, an agent of the SDK, and endpoints that misbehave."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.contract.clerk import Student, calling, config, turn
from tests.contract.command import Gp, Ran
from tests.contract.endpoint.actions import Action, Asked, html, ok, simulated, sse, status
from tests.contract.endpoint.responses import (
    REFUSAL,
    THOUGHT,
    body_of,
    called,
    reasoning_model,
    text,
)
from tests.contract.endpoint.server import on_a_thread, serving
from tests.contract.endpoint.simulated import respond
from tests.contract.own import Own
from tests.contract.project import DB, Project
from tests.contract.standins import standins
from tests.contract.test_tools_search import kit, search, web_qa

TYPE = "agent.model.model_provider.type"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no try wait, and no service behind a proxy."""
    monkeypatch.setattr("random.uniform", lambda low, high: 0.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def scores() -> Counter[tuple[Any, ...]]:
    """Count the rollouts by outcome and reward."""
    with closing(sqlite3.connect(DB)) as db:
        return Counter(db.execute("SELECT outcome, reward FROM v_rollouts"))


def test_a_model_that_takes_tools_on_responses_alone_says_what_to_type(gp: Gp) -> None:
    clerk = Student(turn(search("apples")), turn(web_qa("https://apples.example/")))
    with on_a_thread(standins()) as web, serving(reasoning_model(clerk)) as server:
        config({"toolkits": kit(web)}, server.url)
        ran = gp("eval", "--config", "c.yaml")
        assert ran.code == 3
        assert REFUSAL[:60] in ran.err
        (hint,) = [line for line in ran.err.splitlines() if line.startswith("hint: ")]
        assert hint == f"hint: --set {TYPE}=responses"
        assert {reward for _, reward in scores()} <= {None}
        ran = gp("eval", "--config", "c.yaml", "--json", *hint.split()[1:])
    assert ran.code == 0, ran.err
    assert ran.document["score"]["mean"] == 1.0
    assert len(clerk.results) == 2
    assert len(clerk.read) == 1  # the model that reads pages, on the same API
    assert "It has 3 apples." in clerk.results[1]


SDK = '''
from agents import Agent, ModelSettings, OpenAIProvider, RunConfig, Runner, function_tool

looked_up = []

@function_tool
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: a fruit"

async def solve(question, system, context):
    provider = OpenAIProvider(base_url=context.base_url, api_key=context.api_key)
    agent = Agent(name="sdk", instructions=system, tools=[look_up], model=context.model)
    config = RunConfig(model_provider=provider, tracing_disabled=True)
    return (await Runner.run(agent, question, run_config=config)).final_output
'''


@pytest.mark.long
async def test_an_agent_of_the_sdk_practises_with_its_defaults(tmp_path: Path) -> None:
    results = list[str]()

    def script(asked: Asked) -> Action:
        messages = asked.body["messages"]
        if not asked.body.get("tools"):
            return simulated()
        if messages[-1]["role"] != "tool":
            return calling("look_up", word="apple")
        results.append(messages[-1]["content"])
        asks = [m for m in messages if m["role"] in ("system", "user")]
        body = {k: v for k, v in asked.body.items() if k != "tools"} | {"messages": asks}
        return status(*respond("/v1/chat/completions", json.dumps(body).encode()))

    came = list[Any]()
    for behind in ("chat.completions", "responses"):
        project = Own(tmp_path / behind)
        (project.folder / "sdk.py").write_text(SDK)
        at = "evaluation.agent.model.model_provider"
        plays = script if behind == "chat.completions" else reasoning_model(script, seeds=True)
        with serving(plays) as server:
            await project.practise(
                f"{at}.base_url={server.url}",
                f"{at}.type={behind}",
                "evaluation.agent.type=python",
                "evaluation.agent.function=sdk.py:solve",
                "practice.epochs=1",
            )
        assert results == ["apple: a fruit"] * 12 * 3
        assert project.query("SELECT DISTINCT outcome, turns FROM rollouts") == [("ok", 2)]
        assert project.query("SELECT count(*) FROM libraries")[0][0] > 1
        came.append(project.results())
        results.clear()
    assert came[0] == came[1]


ITEM = {"output_index": 0, "item": called("c1", name="f", arguments="")}
DELTA = {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"a'}
HALF = ({"type": "response.output_item.added", **ITEM}, DELTA)
TWICE = [called("c1", n, name="f", arguments="{}") for n in range(2)]
DONE = {"type": "response.output_item.done", "output_index": 0, "item": text("\\boxed{3}")}
END = {"type": "response.completed", "response": body_of()}

FAILURES: dict[str, tuple[Action, str]] = {
    "neither API": (status(200, {"hello": 1}), "the response has no output"),
    "cut in arguments": (sse(*HALF, done=False), "the stream broke off"),
    "cut, and its end is there": (sse(*HALF, END), "the stream broke off"),
    "reasoning alone": (status(200, body_of(THOUGHT)), "neither a message nor a call"),
    "one id for two calls": (status(200, body_of(*TWICE)), "share a call_id"),
    "40 MB": (status(200, body_of(text("x" * 40_000_000))), "8 MiB"),
    "failed": (status(200, body_of(status="failed", output=[])), "status is 'failed'"),
}


def eval_of_ten(gp: Gp, server_url: str, *more: str) -> Ran:
    at = {"model": "m", "base_url": server_url, "api_key": "sk-of-nobody-1"}
    model = {"model_provider": {**at, "type": "responses", "max_reply_mib": 8}}
    rows = [{"question": f"What is {n}+{n}?", "answer": str(2 * n)} for n in range(10)]
    Path("ten.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    told = {"exp_id": "x", "verify": "math", "data": {"dataset": "ten.jsonl"}}
    Path("c.yaml").write_text(json.dumps(told | {"agent": {"model": model}}))
    return gp("eval", "--config", "c.yaml", "--json", *more)


def answering(asked: Asked) -> Action:
    n = int(str(asked.body["input"][-1]["content"]).partition("+")[2].rstrip("?"))
    return status(200, body_of(text(f"\\boxed{{{2 * n}}}")))


@pytest.mark.long_after(3)
@pytest.mark.parametrize(("bad", "says"), FAILURES.values(), ids=FAILURES)
def test_an_unusable_reply_fails_its_own_rollout_and_is_asked_again(
    gp: Gp, bad: Action, says: str
) -> None:
    with serving(lambda asked: bad if "1+1" in str(asked.body) else answering(asked)) as server:
        ran = eval_of_ten(gp, server.url)
        assert scores() == {("ok", 1.0): 9, ("error", None): 1}
        assert says in json.dumps(ran.document), ran.document
        server.script = answering
        paid = len(server.asked)
        ran = eval_of_ten(gp, server.url)
        assert (ran.code, ran.document["score"]["mean"]) == (0, 1.0)
        assert len(server.asked) == paid + 1


REFUSALS = {
    "the other API": (ok("\\boxed{3}"), f"--set {TYPE}=chat.completions"),
    "a page": (html(), "check base_url"),
    "nothing at its path": (status(404, {"detail": "Not Found"}), f"{TYPE}=chat.completions"),
}


@pytest.mark.long_after(1)
@pytest.mark.parametrize(("bad", "hint"), REFUSALS.values(), ids=REFUSALS)
def test_an_endpoint_of_another_kind_stops_the_run(gp: Gp, bad: Action, hint: str) -> None:
    with serving(lambda _: bad) as server:
        ran = eval_of_ten(gp, server.url)
        assert ran.code == 3
        assert hint in ran.err
        assert {reward for _, reward in scores()} <= {None}
        server.script = answering
        assert eval_of_ten(gp, server.url).document["score"]["mean"] == 1.0


def test_events_out_of_order_are_put_in_order(gp: Gp) -> None:
    first = {**DONE, "output_index": 0, "item": text("\\boxed{9}? No:")}
    second = {**DONE, "output_index": 1, "item": text("\\boxed{2}")}
    events = sse(second, first, {"type": "response.created", "response": body_of()}, END)
    with serving(lambda asked: events if "1+1" in str(asked.body) else answering(asked)) as server:
        ran = eval_of_ten(gp, server.url)
    assert (ran.code, ran.document["score"]["mean"]) == (0, 1.0)


@pytest.mark.long_after(1)
@pytest.mark.parametrize("written", ["responses", "${oc.env:UTU_LLM_TYPE,chat.completions}"])
def test_an_agent_is_exported_with_the_api_that_its_run_went_on_with(
    gp: Gp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    project = Project(tmp_path)
    practice = ("practice", "-c", "c.yaml", "--db", project.db.name, "--set")
    assert gp(*practice, "practice.epochs=1").code == 0
    monkeypatch.setenv("UTU_LLM_TYPE", "responses")
    ran = gp(*practice, f"evaluation.{TYPE}={written}")
    assert ran.code == 0, ran.err
    for name, says in {"a.yaml": "type: responses", "a.json": '"type": "responses"'}.items():
        assert gp("export-agent", "--db", project.db.name, "-o", name).code == 0
        assert says in Path(name).read_text()
