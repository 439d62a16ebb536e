"""`grpo-practice serve` as a person runs it."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import ProxyHandler, Request, build_opener

import pytest

from grpo_practice.app.serving import prepare
from tests.cli.conftest import Gp
from tests.processes import HANG_S
from tests.serve.place import BASE, NOTHING, PROMPT, agent_file

pytestmark = pytest.mark.slow
SIM = {"model": "sim", "base_url": None, "api_key": None}


@contextmanager
def running(folder: Path, *words: str) -> Iterator[tuple[subprocess.Popen[str], str, list[str]]]:
    """The command in a process of its own: that, its URL, and what it said so far."""
    quiet = ("UTU_", "JUDGE_", "OPENAI_", "GRPO_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(quiet)} | {"NO_COLOR": "1"}
    command = [sys.executable, "-m", "grpo_practice", "serve", "--port", "0", *words]
    with subprocess.Popen(
        command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
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


def ended(process: subprocess.Popen[str], number: signal.Signals) -> tuple[str, str]:
    """Send the signal, wait for the end, and return what the process printed."""
    process.send_signal(number)
    out, err = process.communicate(timeout=HANG_S)
    return out, err


def ask(url: str, text: str) -> str:
    body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
    request = Request(f"{url}/chat/completions", body, {"content-type": "application/json"})
    with build_opener(ProxyHandler({})).open(request, timeout=HANG_S) as came:
        said: str = json.load(came)["choices"][0]["message"]["content"]
        return said


@pytest.mark.parametrize(
    "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.long)]
)
def test_it_says_what_it_serves_and_ends_in_order(tmp_path: Path, number: signal.Signals) -> None:
    agent_file(tmp_path, "", provider=SIM)
    with running(tmp_path, "--agent", "agent.yaml") as (process, url, said):
        assert said == [
            f"serving math_agent (2 experiences) at {url}, passing on to the simulated endpoint in"
            " this program (sim) until Ctrl-C\n",
            f"to use it: export OPENAI_BASE_URL={url} OPENAI_API_KEY=unused\n",
        ]
        ask(url, "What is 1 plus 2?")
        out, told = ended(process, number)
        assert (process.returncode, out) == (0, "")
        assert told == "stopped: 1 request, 0 errors\n"


def test_its_document_is_there_once_it_answers(tmp_path: Path) -> None:
    agent_file(tmp_path, "", provider=SIM)
    words = ("--agent", "agent.yaml", "--record", "rec", "--json")
    with running(tmp_path, *words) as (process, url, _):
        ask(url, "What is 1 plus 2?")
        out, _ = ended(process, signal.SIGINT)
    assert json.loads(out) == {
        "schema": "grpo-practice.serve/1",
        "url": url,
        "agent": "math_agent",
        "experiences": 2,
        "model": "sim",
        "passing_on_to": "the simulated endpoint in this program",
        "simulated": True,
        "run": "rec",
    }


def test_an_agent_s_tools_and_notices_are_said(tmp_path: Path) -> None:
    kit = {"mode": "builtin", "name": "python_executor"}
    agent_file(tmp_path, "", provider=SIM, toolkits={"python_executor": kit})
    with running(tmp_path, "--agent", "agent.yaml") as (_, _, said):
        assert said[0].startswith("note: its toolkits (python_executor) are not served")


def test_what_was_recorded_is_shown_becomes_a_dataset_and_goes(tmp_path: Path, gp: Gp) -> None:
    agent_file(tmp_path, "", provider=SIM)
    words = ("--agent", "agent.yaml", "--record", "rec")
    with running(tmp_path, *words) as (process, url, said):
        assert "recording what passes as run rec in grpo-practice.db\n" in said
        answer = ask(url, "What is 1 plus 2?")
        ask(url, "What is 1 plus 2?")
        _, told = ended(process, signal.SIGINT)
    assert "stopped: 2 requests, 0 errors, 2 recorded" in told
    assert "next: grpo-practice runs show rec" in told
    listed = gp("runs", "list").out
    assert "rec (simulated)" in listed
    assert "recorded" in listed
    shown = gp("runs", "show", "rec").out
    assert "2 answered requests in 2 conversations" in shown
    assert gp("runs", "show", "rec", "--json").document["passed"] == {
        "requests": 2,
        "conversations": 2,
        "failed": 0,
    }
    done = gp("data", "upload", "--from-run", "rec", "--name", "asked", "--dedup")
    assert done.code == 0, done.err
    assert "asked (revision 1) holds 1 row" in done.out
    row = gp("data", "show", "asked", "--json").document["rows"][0]
    assert (row["question"], row["answer"], row["source"]) == ("What is 1 plus 2?", None, "rec")
    assert row["meta"]["response"] == answer
    assert gp("db", "check").code == 0
    assert gp("eval", "--rejudge", "--verify", "math", "--run", "rec").code == 2
    assert "is a recorded run: it makes no library" in gp("export-agent", "--run", "rec").err
    assert gp("runs", "delete", "rec", "--yes").code == 0
    assert "no runs yet" in gp("runs", "list").out
    assert gp("data", "show", "asked").code == 0


def test_another_agent_is_refused_with_what_differs(tmp_path: Path, gp: Gp) -> None:
    agent_file(tmp_path, "", provider=SIM)
    words = ("--agent", "agent.yaml", "--record", "rec")
    with running(tmp_path, *words) as (process, _, _):
        ended(process, signal.SIGINT)
    agent_file(tmp_path, "", provider=SIM, instructions=BASE)
    done = gp("serve", "--port", "0", *words)
    assert done.code == 2
    assert "recorded with another agent" in done.err
    assert "agent.agent.instructions" in done.err


def test_a_practice_config_is_no_agent_s_file(tmp_path: Path, gp: Gp) -> None:
    (tmp_path / "practice.yaml").write_text("practice: {epochs: 1}\nevaluation: {}\n")
    done = gp("serve", "--agent", "practice.yaml")
    assert done.code == 2
    assert "error: practice.yaml is a practice config, and no agent's file" in done.err
    assert "hint: `grpo-practice export-agent" in done.err


def test_a_port_in_use_is_a_plain_error(tmp_path: Path, gp: Gp) -> None:
    agent_file(tmp_path, "", provider=SIM)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = gp("serve", "--agent", "agent.yaml", "--port", port)
    assert done.code == 2
    assert f"error: cannot listen on port {port}: Address already in use" in done.err


def test_it_does_not_pass_requests_on_to_itself(tmp_path: Path, gp: Gp) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    agent_file(tmp_path, f"http://localhost:{port}/v1")
    done = gp("serve", "--agent", "agent.yaml", "--port", str(port))
    assert done.code == 2
    assert "a request would go round for ever" in done.err


def test_the_exported_agent_is_served_as_it_was_measured(demo: Gp, tmp_path: Path) -> None:
    assert demo("export-agent", "--run", "demo", "-o", "shipped.yaml").code == 0
    agent = prepare(tmp_path / "shipped.yaml", NOTHING).agent
    shipped = demo("export-agent", "--run", "demo", "--format", "json").out
    document = json.loads(shipped)
    assert agent.prompt == document["system_prompt"]
    assert agent.base == document["instructions"]
    assert agent.experiences == len(document["experiences"]) > 0


def test_what_is_listened_on_is_this_machine_alone(tmp_path: Path) -> None:
    agent_file(tmp_path, "", provider=SIM, instructions=PROMPT)
    with running(tmp_path, "--agent", "agent.yaml") as (process, url, _):
        port = int(url.rsplit(":", 1)[1].removesuffix("/v1"))
        sockets = Path(f"/proc/{process.pid}/net/tcp").read_text("utf-8").splitlines()
        listening = [row.split()[1] for row in sockets if f":{port:04X} 00000000:0000 0A" in row]
        assert listening == [f"0100007F:{port:04X}"]


def test_what_says_how_a_file_is_read_is_nothing_for_a_recorded_run(gp: Gp) -> None:
    done = gp("data", "upload", "--from-run", "rec", "--name", "x", "--shape", "alpaca")
    assert done.code == 2
    assert "are for a FILE" in done.err
