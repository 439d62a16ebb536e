"""Whole runs with an agent of the user's own, through the functions the commands call."""

import json
import os
import sqlite3
import textwrap
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.agents import RolloutContext
from grpo_practice.agents.custom_agents import CustomAgent
from grpo_practice.calls import Address
from grpo_practice.errors import Change, ConfigError, FingerprintError, RunFailedError
from grpo_practice.store import Store, rollouts, steps
from grpo_practice.types import Trajectory
from tests.app.project import Project
from tests.contract.project import served
from tests.contract.test_docs_agents import BLOCK, PAGE

ASK = """
import asyncio, json
from aiohttp import ClientSession

async def ask(context, *messages):
    body = {"model": context.model, "messages": list(messages)}
    async with ClientSession() as session:
        reply = await session.post(context.base_url + "/chat/completions", json=body)
        return (await reply.json())["choices"][0]["message"]

def user(text):
    return {"role": "user", "content": text}
"""
ONCE = """
async def solve(question, system, context):
    message = await ask(context, {"role": "system", "content": system}, user(question))
    return message["content"]
"""
MANY = """
async def solve(question, system, context):
    told = {"role": "system", "content": system}
    several = await asyncio.gather(*(ask(context, told, user(question)) for _ in range(3)))
    notes = await asyncio.gather(*(ask(context, user(f"note {n}: {question}")) for n in range(2)))
    last = [told, user(question), several[0], user("again")]
    return (await ask(context, *last))["content"] + several[0]["content"]
"""


class Own(Project):
    def agent(self, text: str, name: str = "mine.py") -> list[str]:
        """Overrides for an evaluation that is played by this program."""
        (self.folder / name).write_text(ASK + textwrap.dedent(text), "utf-8")
        return ["agent.type=python", f"agent.function={name}:solve"]

    def practising(self, text: str) -> list[str]:
        return [f"evaluation.{override}" for override in self.agent(text)]


@pytest.fixture
def project(tmp_path: Path) -> Own:
    return Own(tmp_path)


async def test_a_program_that_asks_once_is_the_agent_that_asks_once(
    project: Own, tmp_path: Path
) -> None:
    simple = Own(tmp_path / "simple")
    await simple.practise()
    async with served() as endpoint:
        await project.practise(endpoint.override(), *project.practising(ONCE))
        own = endpoint.by_stage["play"]
    assert project.results() == simple.results()
    assert own == 2 * 12 * 3
    temperature = {body["temperature"] for body in endpoint.bodies if "Solve it" in str(body)}
    assert 0.7 in temperature  # that of practice, where the program says none


async def test_what_was_asked_is_not_asked_again(project: Own) -> None:
    overrides = project.agent(MANY)
    first = await project.evaluate(*overrides)
    assert first.requests.new == 12 * 6
    assert first.outcomes == {"ok": 12}
    second = await project.evaluate(*overrides, "pass_k=2")
    assert second.requests.new == 12 * 6


async def test_the_transcript_is_read_back_as_it_was(
    project: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    live, play = dict[Address, Trajectory](), CustomAgent.__call__

    async def seen(
        self: CustomAgent, question: str, system: str, context: RolloutContext
    ) -> Trajectory:
        live[context.scope.address] = await play(self, question, system, context)
        return live[context.scope.address]

    monkeypatch.setattr(CustomAgent, "__call__", seen)
    report = await project.evaluate(*project.agent(MANY))
    with Store(project.db) as store:
        rows = store.read(steps.on_line, report.branch)
        for row in rows:
            found = store.read(rollouts.stored, report.branch, row, transcripts=True)
            for (slot, attempt), (_, rollout) in found.items():
                was = live[Address(row.branch_id, row.plan.step, slot, attempt, "play")]
                told = list(rollout.played.transcript)
                assert told == list(was.transcript)
                assert [m["role"] for m in told].count("assistant") == 6
                assert (rollout.played.turns, rollout.played.usage) == (was.turns, was.usage)
    assert len(live) == 12


async def test_64_rollouts_are_played_at_once(project: Own) -> None:
    text = """
        together, most = 0, 0

        async def solve(question, system, context):
            global together, most
            together += 1
            most = max(most, together)
            message = await ask(context, user(question))
            together -= 1
            return f"{most} {message['content']}"
    """

    async with served() as endpoint:
        key = endpoint.override().removeprefix("evaluation.")
        report = await project.evaluate(
            *project.agent(text), key, "pass_k=8", "concurrency=64", "batch_size=12"
        )
        assert len(endpoint.bodies) == 96
    assert report.outcomes == {"ok": 96}
    said = project.query("SELECT response FROM rollout_bodies")
    assert max(int(text.split()[0]) for (text,) in said) == 64


async def test_the_sdk_agent_of_the_docs_calls_its_tool(project: Own) -> None:
    blocks = {name: text for name, _, text in BLOCK.findall(PAGE.read_text("utf-8"))}
    (project.folder / "sdk_agent.py").write_text(blocks["sdk_agent.py"], "utf-8")

    def hook(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        message: dict[str, Any] = {"role": "assistant", "content": None}
        if body["messages"][-1]["role"] == "user":
            assert [tool["function"]["name"] for tool in body["tools"]] == ["multiply"]
            function = {"name": "multiply", "arguments": '{"a": 6, "b": 7}'}
            message["tool_calls"] = [{"id": f"c{n}", "type": "function", "function": function}]
            message["reasoning_content"] = "I multiply."
        else:
            message["content"] = f"It is \\boxed{{{body['messages'][-1]['content']}}}"
        return 200, {"model": "m", "choices": [{"index": 0, "message": message}]}

    async with served(hook) as endpoint:
        key = endpoint.override().removeprefix("evaluation.")
        own = ["agent.type=python", "agent.function=sdk_agent.py:solve"]
        report = await project.evaluate(*own, key)
        assert len(endpoint.bodies) == 24
        assert endpoint.bodies[0]["messages"][0]["content"].startswith("Solve it.")
    assert report.outcomes == {"ok": 12}
    responses = project.query("SELECT DISTINCT response FROM rollout_bodies")
    assert responses == [("It is \\boxed{42}",)]
    assert project.query("SELECT DISTINCT turns, tool_calls FROM rollouts") == [(2, 1)]
    with Store(project.db) as store:
        row = store.read(steps.on_line, report.branch)[0]
        stored = store.read(
            rollouts.stored,
            report.branch,
            row,
            transcripts=True,
        )
    told = stored[0, 0][1].played.transcript
    assert [m["role"] for m in told] == ["system", "user", "assistant", "tool", "assistant"]


async def test_1_64_another_file_is_another_agent(project: Own) -> None:
    overrides = project.agent(ONCE)
    await project.evaluate(*overrides)
    with pytest.raises(FingerprintError) as told:
        await project.evaluate(*project.agent(ONCE + "# changed\n"), "pass_k=2")
    changed = Change("agent.sha256", "mine.py", "mine.py, which has changed")
    assert told.value.diff == [changed]
    assert "--restart-step 0 to ask all questions afresh" in str(told.value.hint)
    await project.evaluate(*project.agent(ONCE), "pass_k=2")


async def test_1_64_what_a_command_names_belongs_to_it(project: Own) -> None:
    answer = 'import sys; sys.stdin.read(); print(\'{"answer": "42"}\')'
    (project.folder / "agent.py").write_text(answer, "utf-8")
    overrides = ["agent.type=command", "agent.command=[python3, agent.py]"]
    assert (await project.evaluate(*overrides)).outcomes == {"ok": 12}
    (project.folder / "agent.py").write_text(answer + "\n", "utf-8")
    with pytest.raises(FingerprintError, match="another configuration") as told:
        await project.evaluate(*overrides, "pass_k=2")
    was = "a file of python3 agent.py"
    assert told.value.diff == [Change("agent.sha256", was, f"{was}, which has changed")]


async def test_a_program_mended_in_a_later_step_goes_on_there(project: Own) -> None:
    broken = ONCE.replace("message =", "assert system.endswith('boxed{}.')\n    message =")
    with pytest.raises(RunFailedError) as failed:
        await project.practise(*project.practising(broken))
    hint = str(failed.value.hint)
    assert "(with --restart-step 2, where a file of the agent has changed)" in hint
    with pytest.raises(FingerprintError) as told:
        await project.practise(*project.practising(ONCE))
    assert "--restart-step 2 to keep the steps before it" in str(told.value.hint)
    report = await project.practise(*project.practising(ONCE), restart_step=2)
    assert [row.closed for row in report.steps] == [True] * 4


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import no_such_library.part", "pip install no_such_library"),
        ("raise ModuleNotFoundError(name='agents.part')", "pip install openai-agents"),
    ],
)
async def test_a_library_that_is_missing_is_to_be_installed(
    project: Own, line: str, said: str
) -> None:
    with pytest.raises(ConfigError, match="cannot load it: ModuleNotFoundError") as told:
        await project.evaluate(*project.agent(f"{line}\n{ONCE}"))
    assert told.value.hint == f"install it into this environment: {said}"


async def test_a_run_from_before_files_were_looked_at_goes_on(project: Own) -> None:
    await project.evaluate()
    with sqlite3.connect(project.db) as db:
        ((identity,),) = db.execute("SELECT identity FROM branches").fetchall()
        known = json.loads(identity)
        assert known.pop("agent.sha256") is None
        db.execute("UPDATE branches SET identity = ?", (json.dumps(known),))
    assert (await project.evaluate("pass_k=2")).requests.new == 12


async def test_calls_that_are_made_at_once_are_each_used_again(project: Own) -> None:
    overrides = project.agent(MANY)
    await project.evaluate(*overrides)
    with sqlite3.connect(project.db) as db:
        db.executescript(
            """DELETE FROM verdicts; DELETE FROM rollout_bodies; DELETE FROM rollouts;
               UPDATE steps SET status = 'open';
               CREATE TEMP TABLE lost AS SELECT min(call_id) AS id FROM calls GROUP BY step, slot;
               DELETE FROM call_bodies WHERE call_id IN (SELECT id FROM lost);
               DELETE FROM calls WHERE call_id IN (SELECT id FROM lost)"""
        )
    project.events.clear()
    again = await project.evaluate(*overrides)
    assert again.requests.new == 12
    assert again.outcomes == {"ok": 12}
    assert not [text for text in project.notices if "could not be used" in text]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        ("nothing.py:solve", "there is no file nothing.py"),
        ("mine.py:nothing", "cannot load it: AttributeError: there is no nothing in mine.py$"),
        ("mine.py:user", "it cannot be called: too many positional"),
        ("mine.py:NUMBER", "cannot load it: TypeError"),
        ("broken.py:solve", "cannot load it: SyntaxError"),
        ("exits.py:solve", "cannot load it: SystemExit"),
        ("no.such.module:solve", "there is no module no.such.module"),
        ("mine_too:solve", "there is no module mine_too"),
        ("mine.py", "names no function"),
        ("os:system", "it cannot be called"),
    ],
)
async def test_2_41_what_is_wrong_with_it_is_said_before_it_costs(
    project: Own, function: str, said: str
) -> None:
    project.agent(ONCE + "NUMBER = 1\n")
    (project.folder / "broken.py").write_text("def solve(:", "utf-8")
    (project.folder / "exits.py").write_text("import sys; sys.exit(1)", "utf-8")
    overrides = ["agent.type=python", f"agent.function={function}"]
    with pytest.raises(ConfigError, match=said):
        await project.evaluate(*overrides)
    with pytest.raises(ConfigError, match=said):
        await project.practise(*(f"evaluation.{override}" for override in overrides))
    assert project.query("SELECT count(*) FROM runs") == [(0,)]


async def test_2_41_a_program_that_is_not_there_is_said_before_it_costs(project: Own) -> None:
    for program in ("no-such-program", "./mine.py"):
        with pytest.raises(ConfigError, match="there is no program"):
            await project.evaluate("agent.type=command", f"agent.command=[{program}]")
    assert project.query("SELECT count(*) FROM runs") == [(0,)]


async def test_a_module_beside_the_config_is_found_also_while_it_runs(project: Own) -> None:
    package = project.folder / "h4_package"
    package.mkdir()
    (package / "__init__.py").write_text("", "utf-8")
    (project.folder / "h4_late.py").write_text("ANSWER = 'late'", "utf-8")
    text = "def solve(question, system, context):\n    import h4_late\n    return h4_late.ANSWER\n"
    (package / "agent.py").write_text(text, "utf-8")
    report = await project.evaluate("agent.type=python", "agent.function=h4_package.agent:solve")
    assert report.outcomes == {"ok": 12}


async def test_what_it_prints_is_not_among_the_results(
    project: Own, capsys: pytest.CaptureFixture[str]
) -> None:
    overrides = project.agent("def solve(*_):\n    print('hello')\n    return '42'\n")
    await project.evaluate(*overrides, "agent.workers=0")
    out, err = capsys.readouterr()
    assert ("hello" in out, err.count("hello")) == (False, 12)


@pytest.mark.parametrize(
    ("workers", "direct"), [("null", "127.0.0.1"), ("0", "corp.example,127.0.0.1")]
)
async def test_no_proxy_stands_between_it_and_this_machine(
    project: Own, monkeypatch: pytest.MonkeyPatch, workers: str, direct: str
) -> None:
    text = f"""
        import os
        from urllib.request import Request, build_opener

        def solve(question, system, context):
            assert os.environ["no_proxy"] == {direct!r}
            body = json.dumps(dict(messages=[user(question)])).encode()
            asked = Request(context.base_url + "/chat/completions", body)
            with build_opener().open(asked) as reply:  # urlopen would keep the proxy for ever
                return json.load(reply)["choices"][0]["message"]["content"]
    """
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "corp.example")
    monkeypatch.delenv("no_proxy", raising=False)
    report = await project.evaluate(*project.agent(text), f"agent.workers={workers}")
    assert report.outcomes == {"ok": 12}
    assert os.environ["NO_PROXY"] == "corp.example"
    assert "no_proxy" not in os.environ


async def test_a_program_that_fails_is_not_a_wrong_answer(project: Own) -> None:
    text = """
        played = []

        async def solve(question, system, context):
            played.append(question)
            if len(played) % 6 == 0:
                raise ValueError("odd")
            return "42"
    """
    report = await project.evaluate(*project.agent(text))
    assert report.outcomes == {"error.agent": 2, "ok": 10}
    assert (report.score.planned, report.score.scored) == (12, 10)
    assert any("mine.py:solve raised ValueError at mine.py:" in error for error in report.failures)


async def test_the_endpoints_failures_are_not_the_programs(project: Own) -> None:
    def hook(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (422, {"error": {"message": "odd"}}) if n in (2, 5) else None

    async with served(hook) as endpoint:
        key = endpoint.override().removeprefix("evaluation.")
        report = await project.evaluate(*project.agent(ONCE), key)
    assert report.outcomes == {"error.provider": 2, "ok": 10}


@pytest.mark.parametrize(("workers", "said"), [("null", 0), ("0", 1)])
async def test_a_program_out_of_time_is_ended_or_left_to_its_thread_and_said_once(
    project: Own, workers: str, said: int
) -> None:
    go_on = project.folder / "go-on"
    text = f"""
        import os, time

        def solve(*_):
            while not os.path.exists({str(go_on)!r}):
                time.sleep(0.01)
    """
    overrides = [*project.practising(text), "practice.task_timeout=1"]
    overrides += [f"evaluation.agent.workers={workers}"]
    overrides += ["practice.rollout_data_truncate=2", "practice.epochs=1", "practice.grpo_n=2"]
    with pytest.raises(RunFailedError, match="3 of the 4"):
        await project.practise(*overrides, "practice.max_failed_share=0.5")
    outcomes = project.query("SELECT DISTINCT outcome, reason, strikes FROM rollouts")
    assert outcomes == [("limit", "time", 1)]
    assert sum("was still running" in notice for notice in project.notices) == said
    go_on.touch()  # their threads end
