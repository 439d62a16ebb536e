"""Whole runs whose rollouts are played by a program of the user's own."""

import os
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.own import MANY, ONCE, Own
from tests.contract.project import changed_keys, served
from tests.contract.test_docs_agents import BLOCK, PAGES


@pytest.fixture
def project(tmp_path: Path) -> Own:
    return Own(tmp_path)


def now(told: Any) -> list[Any]:
    """Return the values that an error names as new."""
    return [change.now for change in told.value.diff]


def hint(told: Any) -> str:
    """Return what an error says to do."""
    return str(told.value.hint)


@pytest.mark.long
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


@pytest.mark.long
async def test_what_was_asked_is_not_asked_again(project: Own) -> None:
    overrides = project.agent(MANY)
    first = await project.evaluate(*overrides)
    assert first.requests.new == 12 * 6
    assert first.outcomes == {"ok": 12}
    assert project.query("SELECT DISTINCT turns FROM rollouts") == [(6,)]
    second = await project.evaluate(*overrides, "pass_k=2")
    assert second.requests.new == 12 * 6
    # Calls that are made at once are each used again, where only the first one of each is lost.
    with closing(sqlite3.connect(project.db)) as db:
        db.executescript(
            """DELETE FROM verdicts; DELETE FROM rollout_bodies; DELETE FROM rollouts;
               UPDATE steps SET status = 'open';
               CREATE TEMP TABLE lost AS SELECT min(call_id) AS id FROM calls
                GROUP BY branch_id, step, slot, attempt;
               DELETE FROM call_bodies WHERE call_id IN (SELECT id FROM lost);
               DELETE FROM calls WHERE call_id IN (SELECT id FROM lost)"""
        )
    project.events.clear()
    again = await project.evaluate(*overrides, "pass_k=2")
    assert again.requests.new == 24
    assert again.outcomes == {"ok": 24}
    assert not [text for text in project.notices if "could not be used" in text]


@pytest.mark.long
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


@pytest.mark.long
async def test_the_sdk_agent_of_the_docs_calls_its_tool(project: Own) -> None:
    blocks = {name: text for name, _, text in BLOCK.findall(PAGES)}
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
    for shown in Workspace(project.db).rollouts("toy/eval"):
        told = [message["role"] for message in shown.document()["transcript"]]
        assert told == ["system", "user", "assistant", "tool", "assistant"]


@pytest.mark.long
async def test_1_64_another_file_is_another_agent(project: Own) -> None:
    overrides = project.agent(ONCE)
    await project.evaluate(*overrides)
    with pytest.raises(Exception, match="a different configuration") as told:
        await project.evaluate(*project.agent(ONCE + "# changed\n"), "pass_k=2")
    assert changed_keys(told.value) == ["agent.sha256"]
    assert now(told) == ["mine.py, which has changed"]
    assert "--restart-step 0 to ask all questions again" in hint(told)
    await project.evaluate(*project.agent(ONCE), "pass_k=2")
    answer = 'import sys; sys.stdin.read(); print(\'{"answer": "42"}\')'
    (project.folder / "agent.py").write_text(answer, "utf-8")
    overrides = ["exp_id=command", "agent.type=command", "agent.command=[python3, agent.py]"]
    assert (await project.evaluate(*overrides)).outcomes == {"ok": 12}
    (project.folder / "agent.py").write_text(answer + "\n", "utf-8")
    with pytest.raises(Exception, match="a different configuration") as told:
        await project.evaluate(*overrides, "pass_k=2")
    assert changed_keys(told.value) == ["agent.sha256"]
    assert now(told) == ["a file of python3 agent.py, which has changed"]


@pytest.mark.long
async def test_a_program_mended_in_a_later_step_goes_on_there(project: Own) -> None:
    broken = ONCE.replace("message =", "assert system.endswith('boxed{}.')\n    message =")
    with pytest.raises(Exception, match="failed") as failed:
        await project.practise(*project.practising(broken))
    assert "(with --restart-step 2 if a file of the agent has changed)" in hint(failed)
    with pytest.raises(Exception, match="a different configuration") as told:
        await project.practise(*project.practising(ONCE))
    assert "--restart-step 2 to keep the steps before it" in hint(told)
    report = await project.practise(*project.practising(ONCE), restart_step=2)
    assert [row.closed for row in report.steps] == [True] * 4


async def test_2_41_what_is_wrong_with_it_is_said_before_it_costs(project: Own) -> None:
    files = {
        "mine.py": ONCE + "NUMBER = 1\ndef user(text): return text\n",
        "broken.py": "def solve(:",
        "exits.py": "import sys; sys.exit(1)",
        "lacks.py": f"import no_such_library.part\n{ONCE}",
        "sdk.py": f"raise ModuleNotFoundError(name='agents.part')\n{ONCE}",
    }
    for name, text in files.items():
        (project.folder / name).write_text(text, "utf-8")
    rows = [
        ("nothing.py:solve", "there is no file nothing.py", ""),
        ("mine.py:nothing", "cannot load it: AttributeError: mine.py does not define nothing", ""),
        ("mine.py:user", "it cannot be called: too many positional", ""),
        ("mine.py:NUMBER", "cannot load it: TypeError", ""),
        ("broken.py:solve", "cannot load it: SyntaxError", ""),
        ("exits.py:solve", "cannot load it: SystemExit", ""),
        ("lacks.py:solve", "cannot load it: ModuleNotFound", "pip install no_such_library"),
        ("sdk.py:solve", "cannot load it: ModuleNotFound", "pip install openai-agents"),
        ("no.such.module:solve", "there is no module no.such.module", ""),
        ("mine_too:solve", "there is no module mine_too", ""),
        ("mine.py", "names no function", ""),
        ("os:system", "it cannot be called", ""),
    ]
    for function, said, advice in rows:
        overrides = ["agent.type=python", f"agent.function={function}"]
        with pytest.raises(Exception, match=re.escape(said)) as told:
            await project.evaluate(*overrides)
        assert hint(told).endswith(advice)
        with pytest.raises(Exception, match=re.escape(said)):
            await project.practise(*(f"evaluation.{override}" for override in overrides))
    for program in ("no-such-program", "./mine.py"):
        with pytest.raises(Exception, match="cannot find an executable program"):
            await project.evaluate("agent.type=command", f"agent.command=[{program}]")
    assert project.count("runs") == 0
    where = "import os\nif 'PYTEST_VERSION' not in os.environ: "
    for text, said in (("raise ValueError('no')", "ValueError"), ("import nothing", "ModuleNot")):
        (project.folder / "mine.py").write_text(f"{where}{text}\ndef solve(*_): return ''\n")
        with pytest.raises(Exception, match=f"a worker process cannot load it: {said}"):
            await project.evaluate("agent.type=python", "agent.function=mine.py:solve")
    assert project.count("rollouts") == 0


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
    with pytest.raises(Exception, match="3 of the 4"):
        await project.practise(*overrides, "practice.max_failed_share=0.5")
    outcomes = project.query("SELECT DISTINCT outcome, reason, strikes FROM rollouts")
    assert outcomes == [("limit", "time", 1)]
    assert sum("was still running" in notice for notice in project.notices) == said
    go_on.touch()  # their threads end


@pytest.mark.long_after(1)
@pytest.mark.parametrize("way", ["def", "async def"])
@pytest.mark.parametrize("answer", ["sorry, I could not reach it", ""])
async def test_an_answer_of_elsewhere_that_never_reached_its_model_is_none(
    tmp_path: Path, way: str, answer: str
) -> None:
    project = Own(tmp_path)
    text = f"{way} solve(*_): return {answer!r}\n"
    far = "agent.proxy.url=http://127.0.0.1:9"
    with pytest.raises(Exception, match=r"can its node reach agent\.proxy"):
        await project.evaluate(*project.agent(text), far)
    assert project.query("SELECT DISTINCT outcome FROM rollouts") == [("error",)]
    near = await project.evaluate(*project.agent(text), "agent.proxy.url=null")
    assert near.outcomes == {"ok" if answer else "empty": 12}  # here it may know the answers


async def test_a_program_that_reaches_its_address_and_asks_nothing_knows_the_answers(
    tmp_path: Path,
) -> None:
    project = Own(tmp_path)
    words = project.agent("def solve(*_): return 'I know'\n")
    # Any setting of agent.proxy lets answers be doubted, and workers say there that they begin.
    report = await project.evaluate(*words, "agent.proxy.insecure=true", "agent.workers=2")
    assert report.outcomes == {"ok": 12}
