"""`grpo-practice serve` as a person runs it: what it says, its end, and what it refuses."""

import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

import pytest
import yaml

from tests.contract.command import Gp
from tests.contract.documented import fails_with_a_document
from tests.contract.serving import SIM, Q, agent_file, both
from tests.processes import HANG_S, program

RECORD = ("--agent", "agent.yaml", "--record", "rec")
KIT = {"python_executor": {"mode": "builtin", "name": "python_executor"}}


@contextmanager
def running(folder: Path, *words: str) -> Iterator[tuple["subprocess.Popen[str]", str, list[str]]]:
    """Give the command in a process of its own, its URL, and what it has said so far."""
    quiet = ("UTU_", "JUDGE_", "OPENAI_", "GRPO_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(quiet)} | {"NO_COLOR": "1"}
    with subprocess.Popen(
        program("serve", "--port", "0", *words),
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = list[str]()
        try:
            for line in process.stderr:
                said.append(line)
                if line.startswith("to use it"):
                    break
            found = next((w for line in said for w in line.split() if w.startswith("http:")), "")
            yield process, found.rstrip(","), said
        finally:
            process.kill()


def ended(process: "subprocess.Popen[str]", number: signal.Signals) -> tuple[str, list[str]]:
    """Send the signal, and return what the process printed and said until its end, in order."""
    process.send_signal(number)
    out, err = process.communicate(timeout=HANG_S)
    assert process.returncode == 0, err
    return out, err.splitlines()


def ask(url: str, text: str) -> str:
    body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    request = Request(f"{url}/chat/completions", body, {"content-type": "application/json"})
    with build_opener(ProxyHandler({})).open(request, timeout=HANG_S) as came:
        said: str = json.load(came)["choices"][0]["message"]["content"]
        return said


def _what_was_recorded_is_shown_and_becomes_a_dataset(demo: Gp, answer: str) -> None:
    assert "recorded" in demo("runs", "list").out
    assert "2 answered requests in 2 conversations" in demo("runs", "show", "rec").out
    assert demo("runs", "show", "rec", "--json").document["traffic"] == {
        "requests": 2,
        "conversations": 2,
        "failed": 0,
    }
    done = demo("data", "upload", "--from-run", "rec", "--name", "asked", "--dedup")
    assert done.code == 0, done.err
    assert "asked (revision 1) holds 1 row" in done.out
    row = demo("data", "show", "asked", "--json").document["rows"][0]
    assert (row["question"], row["answer"], row["source"]) == ("What is 1 plus 2?", None, "rec")
    assert row["meta"]["response"] == answer
    assert demo("db", "check").code == 0
    assert demo("eval", "--rejudge", "--verify", "math", "--run", "rec").code == 2
    assert (
        "is a recorded run, so it does not produce a library"
        in demo("export-agent", "--run", "rec").err
    )


def _what_the_run_does_not_take_is_refused(demo: Gp) -> None:
    refused = demo("serve", "--port", "0", *RECORD)
    assert refused.code == 2
    assert "recorded with a different agent" in refused.err
    assert "agent.agent.instructions" in refused.err
    refusals = (
        (("serve", "--port", "0", *RECORD[:3], "demo"), "demo is a run of kind practice"),
        (("serve", "--port", "0", *RECORD[:3], "a/b"), "cannot be the name of a run"),
        (
            ("practice", "--config", "practice.yaml", "--exp-id", "rec"),
            "rec is a recorded run, so it cannot be played",
        ),
        (("data", "upload", "--from-run", "demo", "--name", "x"), "demo is a run of kind practice"),
        (
            ("data", "upload", "--from-run", "rec", "--name", "x", "--shape", "alpaca"),
            "need a FILE",
        ),
    )
    ran = [(demo(*words), said) for words, said in refusals]
    assert [(one.code, said in one.err, one.err) for one, said in ran if said not in one.err] == []
    assert {one.code for one, _ in ran} == {2}


@pytest.mark.long
@pytest.mark.slow
def test_an_agent_is_served_and_recorded_until_a_signal(demo: Gp, tmp_path: Path) -> None:
    agent_file(tmp_path, "", provider=SIM)
    with running(tmp_path, *RECORD, "--json") as (process, url, said):
        assert said == [
            f"serving math_agent (2 experiences) at {url}, forwarding to the simulated endpoint in"
            " this program (sim) until Ctrl-C\n",
            "recording all requests as run rec in grpo-practice.db\n",
            f"to use it: export OPENAI_BASE_URL={url} OPENAI_API_KEY=unused\n",
        ]
        port = int(url.rsplit(":", 1)[1].removesuffix("/v1"))
        if (sockets := Path(f"/proc/{process.pid}/net/tcp")).exists():
            rows = [row.split() for row in sockets.read_text("utf-8").splitlines()]
            ours = [row[1] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")]
            assert ours == [f"0100007F:{port:04X}"], "of this machine alone"
        answer = ask(url, "What is 1 plus 2?")
        ask(url, "What is 1 plus 2?")
        second = demo("serve", "--port", "0", *RECORD)
        assert (second.code, "rec" in second.err) == (5, True), "two do not record into one run"
        out, last = ended(process, signal.SIGINT)
    assert last == [
        "stopped: 2 requests, 0 errors, 2 recorded",
        "next: grpo-practice runs show rec",
    ]
    assert json.loads(out) == {
        "schema": "grpo-practice.serve/1",
        "url": url,
        "name": "math_agent",
        "experiences": 2,
        "model": "sim",
        "passing_on_to": "the simulated endpoint in this program",
        "simulated": True,
        "run": "rec",
        "next": None,
        "exit": None,
    }
    _what_was_recorded_is_shown_and_becomes_a_dataset(demo, answer)
    other = agent_file(tmp_path, "", provider=SIM, instructions="Something else.", toolkits=KIT)
    _what_the_run_does_not_take_is_refused(demo)
    # Another name takes the other agent; it ends by another signal.
    with running(tmp_path, "--agent", other.name, "--record", "rec2") as (process, _, said):
        assert said[0].startswith("note: its toolkits (python_executor) are not served")
        out, last = ended(process, signal.SIGTERM)
        assert (out, last[0]) == ("", "stopped: 0 requests, 0 errors, 0 recorded")
    empty = demo("data", "upload", "--from-run", "rec2", "--name", "x")
    assert "rec2 contains no question" in empty.err
    assert demo("runs", "delete", "rec", "--yes").code == 0
    assert "rec " not in demo("runs", "list").out
    assert demo("data", "show", "asked").code == 0


def test_what_cannot_be_served_is_said(gp: Gp, tmp_path: Path) -> None:
    agent_file(tmp_path, "", provider=SIM)
    (tmp_path / "practice.yaml").write_text("practice: {epochs: 1}\nevaluation: {}\n")
    done = gp("serve", "--agent", "practice.yaml")
    assert done.code == 2
    assert "error: practice.yaml is a practice config, not an agent file" in done.err
    assert "hint: `grpo-practice export-agent" in done.err
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = gp("serve", "--agent", "agent.yaml", "--port", port)
    assert done.code == 2
    assert f"error: cannot listen on port {port}: Address already in use" in done.err
    agent_file(tmp_path, f"http://localhost:{port}/v1")
    done = gp("serve", "--agent", "agent.yaml", "--port", port)
    assert done.code == 2
    assert "requests would loop forever" in done.err


async def test_the_exported_agent_is_served_as_it_was_measured(demo: Gp, tmp_path: Path) -> None:
    assert demo("export-agent", "--run", "demo", "-o", "shipped.yaml").code == 0
    shipped = demo("export-agent", "--run", "demo", "--format", "json").document
    agent = yaml.safe_load((tmp_path / "shipped.yaml").read_text("utf-8"))["agent"]
    async with both(tmp_path, instructions=agent["instructions"]) as (up, place):
        assert place.report.document()["experiences"] == len(shipped["experiences"]) > 0
        for theirs in ([], [{"role": "system", "content": shipped["instructions"]}]):
            await place.ask(*theirs, Q)
            assert up.messages == [{"role": "system", "content": shipped["system_prompt"]}, Q]


@pytest.mark.parametrize("agent", ["practice.yaml", "nowhere.yaml"])
def test_a_failure_is_a_document_too(demo: Gp, agent: str) -> None:
    fails_with_a_document(demo, ("serve", "--agent", agent))
