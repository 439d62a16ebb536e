"""`eval` and `practice` as a person types them; one that is killed is a process of its own."""

import json
import os
import shlex
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from grpo_practice.llm import client
from grpo_practice.llm.client import Client
from grpo_practice.sim.questions import questions
from tests.cli.conftest import Gp
from tests.contract.endpoint.server import on_a_thread
from tests.contract.project import CONFIG, served
from tests.fakes import FakeSleep
from tests.processes import until

SERVER = """
import asyncio
from grpo_practice.rollout.chat_server.sim_server import serve
asyncio.run(serve(0, latency_s=0.01, on_ready=lambda port: print(port, flush=True)))
"""


class Shell:
    """A folder in which commands are typed."""

    def __init__(self, folder: Path, gp: Gp) -> None:
        self.folder = folder
        self.gp = gp
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("UTU_", "OPENAI_"))}
        self.env = {**kept, "NO_COLOR": "1", "COLUMNS": "100"}
        samples = questions(24, 0)
        for name, part in (("train", samples[:12]), ("test", samples[12:])):
            rows = [json.dumps({"question": s.question, "answer": s.answer}) for s in part]
            (folder / f"{name}.jsonl").write_text("\n".join(rows))
        (folder / "math.yaml").write_text(CONFIG)

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "grpo_practice", *words],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def type(self, *words: str, code: int = 0) -> tuple[str, str]:
        ran = self.gp(*words)
        assert ran.code == code, ran.err
        return ran.out, ran.err

    def json(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.type(*words, "--json", code=code)[0])

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        db = sqlite3.connect(self.folder / "grpo-practice.db")
        try:
            return db.execute(sql).fetchall()
        finally:
            db.close()


@pytest.fixture
def shell(tmp_path: Path, gp: Gp) -> Shell:
    shell = Shell(tmp_path, gp)
    datasets = Workspace(tmp_path / "grpo-practice.db").datasets
    for name in ("train", "test"):
        datasets.upload(name, tmp_path / f"{name}.jsonl")
    return shell


def test_the_three_commands_do_the_sensible_thing_as_typed(shell: Shell) -> None:
    shell.type("practice", "--config", "math.yaml")
    out, _ = shell.type("eval", "--restart-step", "0")
    assert "toy/eval" in out
    out, _ = shell.type("eval", "--restart-step", "1")
    assert shell.query("SELECT count(*) FROM branches WHERE run_id = 'toy/eval'") == [(2,)]
    agent, _ = shell.type("export-agent")
    (shell.folder / "a.yaml").write_text(agent)
    report = shell.json("eval", "--agent", "a.yaml")
    assert report["run"] == "toy/eval/a"
    (sha,) = shell.query(
        "SELECT DISTINCT t.body FROM rollouts JOIN texts t ON sha256 = system_sha JOIN branches b"
        " USING (branch_id) WHERE b.run_id = 'toy/eval/a'"
    )[0]
    assert "## Experience from practice" in sha


def test_the_second_practice_goes_on_with_the_first_without_a_config(shell: Shell) -> None:
    first = shell.json("practice", "--config", "math.yaml")
    assert first["requests"]["new"] > 0
    again = shell.json("practice")
    assert again["requests"] == {"new": 0, "failed": 0}
    assert again["library"] == first["library"]
    more = shell.json("practice", "--epochs", "3")
    assert [s["step"] for s in more["steps"]] == list(range(6))
    assert [s["status"] for s in shell.json("practice")["steps"]] == ["closed"] * 6


@pytest.mark.long
def test_a_finished_restart_names_the_command_that_continues_and_is_not_paid_again(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def typed(*words: str) -> tuple[str, str, int]:
        monkeypatch.setattr("sys.argv", ["grpo-practice", *words])
        before = shell.query("SELECT count(*) FROM calls")[0][0]
        out, err = shell.type(*words)
        return out, err, shell.query("SELECT count(*) FROM calls")[0][0] - before

    practice = ("practice", "--config", "math.yaml")
    shell.type(*practice)
    out, _, paid = typed(*practice, "--restart-step", "1")
    assert paid > 0
    (line,) = [line for line in out.splitlines() if line.startswith("restarted at step 1")]
    continues = shlex.split(line.partition(": ")[2])
    assert continues == ["grpo-practice", *practice]
    assert typed(*continues[1:])[2] == 0
    _, err, paid = typed(*practice, "--restart-step", "1")
    assert (paid, "--again repeats it" in err) == (0, True)
    assert typed(*practice, "--restart-step", "1", "--again")[2] > 0
    assert typed(*practice, "--restart-step", "0")[2] > 0
    assert typed(*practice, "--restart-step=0")[2] > 0


def test_an_eval_whose_questions_failed_names_the_command_that_asks_only_those(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def second(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        return (400, {"error": {"message": "odd"}}) if n == 2 else None

    with on_a_thread(served(second)) as endpoint:
        url = f"evaluation.agent.model.model_provider.base_url={endpoint.url}"
        words = ["eval", "--config", "math.yaml", "--set", url, "--restart-step", "0"]
        monkeypatch.setattr("sys.argv", ["grpo-practice", *words])
        out, _ = shell.type(*words)
        (line,) = [line for line in out.splitlines() if line.startswith("next: ")]
        command, asks = line.removeprefix("next: ").split(" (")
        assert asks == "retries only the 1 rollout that failed)"
        assert "--restart-step" not in command
        asked = len(endpoint.bodies)
        shell.type(*shlex.split(command)[1:])
        assert len(endpoint.bodies) == asked + 1


@pytest.mark.long
def test_a_killed_run_ends_with_the_library_of_one_that_was_not(
    shell: Shell, tmp_path: Path
) -> None:
    whole = shell.json("practice", "--config", "math.yaml", "--exp-id", "whole")
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        url = f"http://127.0.0.1:{server.stdout.readline().strip()}/v1"
        words = ["practice", "--config", "math.yaml", "--set"]
        words.append(f"evaluation.agent.model.model_provider.base_url={url}")
        with shell.start(*words) as process:
            sql = "SELECT count(*) >= 40 FROM calls JOIN branches USING (branch_id)"
            until(lambda: shell.query(f"{sql} WHERE run_id = 'toy'")[0][0], process)
            alive = shell.json("runs", "show", "toy")["run"]["status"]
            process.send_signal(signal.SIGKILL)
        with closing(sqlite3.connect(shell.folder / "grpo-practice.db")) as db, db:
            # Its number is another process's by now, which lives.
            db.execute("UPDATE invocations SET pid = ? WHERE run_id = 'toy'", (os.getpid(),))
        listed = {run["name"]: run["status"] for run in shell.json("runs", "list")["runs"]}
        shown, _ = shell.type("runs", "show", "toy")
        after = shell.json(*words)
        server.kill()
    assert alive == "running"
    assert listed == {"toy": "interrupted", "whole": "done"}
    assert "practice, interrupted" in shown
    assert shown.splitlines()[-1].startswith("next: grpo-practice practice --config math.yaml")
    assert after["requests"]["new"] < whole["requests"]["new"]
    assert shell.query("PRAGMA integrity_check") == [("ok",)]
    libraries = [
        shell.query(
            "SELECT s.step, hex(l.sha256) FROM v_steps s JOIN libraries l"
            f" ON l.library_id = s.library_out WHERE s.run_id = '{run}' ORDER BY 1"
        )
        for run in ("toy", "whole")
    ]
    assert libraries[0] == libraries[1] != []


def test_a_score_needs_no_config(shell: Shell) -> None:
    flags = ["--model", "sim", "--dataset", "test", "--verify", "math"]
    report = shell.json("eval", *flags, "-k", "2")
    assert report["run"] == "test/eval/model=sim/verify=math"
    assert report["score"]["planned"] == 24
    assert report["simulated"] is True


def test_a_flag_with_an_empty_text_is_none(shell: Shell) -> None:
    named = ["--dataset", "", "--exp-id", "", "--config", "math.yaml", "--dry-run"]
    assert shell.json("eval", *named, "--base-url", "")["run"] == "toy/eval"
    assert shell.json("practice", *named, "--from", "")["run"] == "toy"


def test_a_few_answers_are_shown_and_not_asked_again(shell: Shell) -> None:
    out, _ = shell.type("eval", "--config", "math.yaml", "--limit", "2", "--show")
    assert out.count("right answer: ") >= 2
    assert out.count("boxed") >= 2
    report = shell.json("eval", "--config", "math.yaml")
    assert report["requests"]["new"] == 10


def test_another_library_is_a_start(shell: Shell) -> None:
    shell.json("practice", "--config", "math.yaml")
    report = shell.json(
        "practice", "--config", "math.yaml", "--exp-id", "next", "--epochs", "1", "--from", "toy:1"
    )
    assert [s["step"] for s in report["steps"]] == [0, 1]
    (cause,) = shell.query("SELECT cause FROM libraries WHERE run_id = 'next' ORDER BY 1 LIMIT 1")
    assert cause == ("import",)


def test_a_library_written_by_hand_is_a_start(shell: Shell) -> None:
    Path("hand.yaml").write_text("- 'Check: Add again.'\n", "utf-8")
    flags = ("--config", "math.yaml", "--epochs", "1")
    shell.json("practice", *flags, "--from", "hand.yaml")
    texts = shell.query("SELECT t.text FROM experience_texts t ORDER BY experience_id LIMIT 1")
    assert texts == [("Check: Add again.",)]
    Path("hand.yaml").unlink()
    assert shell.json("practice", *flags)["requests"]["new"] == 0


@pytest.mark.long_after(5)
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["practice"], 2, "no run to resume"),
        (["eval"], 2, "dataset"),
        (["practice", "--config", "nope.yaml"], 2, "nope.yaml"),
        (["practice", "--config", "math.yaml", "--dataset", "gone"], 4, "no dataset 'gone'"),
        (["practice", "--config", "math.yaml", "--grpo-n", "1"], 2, "grpo"),
        (["practice", "--config", "math.yaml", "--restart-step", "2"], 2, "0 steps recorded"),
        (["eval", "--config", "math.yaml", "--verify", "mth"], 2, "math"),
        (["practice", "--config", "math.yaml", "--set", "practice.grop_n=3"], 2, "grpo_n"),
        (["practice", "--config", "math.yaml", "--from", "nobody"], 2, "nobody"),
        (["practice", "--config", "math.yaml", "--from", "gone.yaml"], 2, "gone.yaml"),
        (["eval", "--rejudge"], 2, "--verify"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else None,
)
def test_bad_input_is_one_sentence_and_its_code(
    shell: Shell, gp: Gp, words: list[str], code: int, said: str
) -> None:
    ran = gp(*words)
    assert (ran.code, said in ran.err, "Traceback" in ran.err) == (code, True, False), ran.err
    told = gp(*words, "--json")
    assert told.document["schema"] == "grpo-practice.error/1"
    assert told.code == told.document["exit"] == code


def test_an_endpoint_that_is_not_there_ends_with_3_and_what_is_stored_stays(
    shell: Shell, gp: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = FakeSleep()
    monkeypatch.setattr(client, "Client", partial(Client, sleep=slept))
    nowhere = [
        "--base-url",
        "http://127.0.0.1:9/v1",
        "--set",
        "agent.model.model_provider.api_key=k",
    ]
    ran = gp("eval", "--config", "math.yaml", *nowhere)
    assert (ran.code, "127.0.0.1:9" in ran.err, slept.slept != []) == (3, True, True), ran.err
    assert gp("eval", "--config", "math.yaml", "--json").document["score"]["scored"] == 12


def test_what_has_no_effect_is_said_with_v(shell: Shell) -> None:
    words = ["eval", "--config", "math.yaml", "--set", "db_url=x"]
    assert "db_url" not in shell.type(*words)[1]
    assert "db_url is ignored" in shell.type(*words, "-v")[1]
