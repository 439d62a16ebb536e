"""Each exit code, how a command comes to it, what it says last, and that its hint helps."""

import os
import shlex
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.contract.advice import commands_in
from tests.contract.command import Gp
from tests.contract.conftest import Start
from tests.contract.endpoint.actions import Script, always, error, ok, stall
from tests.contract.endpoint.server import serving
from tests.processes import HANG_S, until

CONFIG = ("--config", "practice.yaml")
SCORE = "def f(sample):\n    if sample.response == sample.correct_answer: return 1.0\n    {}\n"
RAISES, RETURNS = SCORE.format('raise ValueError("no")'), SCORE.format("return 0.0")


@dataclass(frozen=True)
class Row:
    """One way to an exit code."""

    code: int
    words: tuple[str, ...]
    says: str
    """Part of the line that begins with `error: `."""
    hint: str
    """The last line on stderr, after `hint: `; '' where the error says all."""
    then: str = ""
    """What a person types after that, and it works; '' for the command that the hint names."""
    mend: Callable[[], object] = lambda: None
    """What the hint says to do first."""


def eval_of(*words: str) -> tuple[str, ...]:
    """Return an evaluation of four questions that nothing has asked yet."""
    return ("eval", *CONFIG, "--exp-id", "x", "--dataset", "practice", "--limit", "4", *words)


def write(name: str, text: str) -> None:
    """Write a file of the current folder."""
    Path(name).write_text(text, "utf-8")


ROWS = {
    "success": Row(0, ("runs", "list"), "", ""),
    "most rollouts failed": Row(
        1,
        eval_of("--verify", "score.py:f"),
        "8 of the 8 rollouts of x/eval/verify=score.py:f failed, more than",
        "all answers are stored: fix the cause and run the same command again",
        then=shlex.join(("grpo-practice", *eval_of("--verify", "score.py:f"))),
        mend=lambda: write("score.py", RETURNS),
    ),
    "no such option": Row(
        2, ("eval", "--nmae", "x"), "No such option: --nmae", "grpo-practice eval --help"
    ),
    "nobody to ask": Row(
        2,
        ("runs", "delete", "demo"),
        "Cannot ask: stdin is not a terminal",
        "add --yes",
        then="grpo-practice runs delete demo --yes",
    ),
    "no such run": Row(
        2,
        ("experiences", "list", "--run", "nobody"),
        "there is no run 'nobody'",
        "runs: demo, demo/eval",
        then="grpo-practice experiences list --run demo",
    ),
    "no such experience": Row(
        2,
        ("experiences", "show", "E99"),
        "E99",
        "grpo-practice experiences list",
    ),
    "another configuration": Row(
        2,
        ("practice", *CONFIG, "--set", "practice.grpo_n=4"),
        "",
        "undo the change, give the run another exp_id, or add --restart-step N to play from",
        then=shlex.join(("grpo-practice", "practice", *CONFIG)),
    ),
    "a bad row": Row(
        4,
        ("data", "upload", "bad.jsonl", "--name", "x"),
        "bad.jsonl:2: the question ('question') is empty",
        "",
        then="grpo-practice data upload bad.jsonl --name x --skip-bad",
    ),
    "a cap": Row(
        6,
        eval_of("--max-requests", "1"),
        "paused by --max-requests 1",
        "all replies are stored; to continue: grpo-practice eval --config practice.yaml",
    ),
    "no database": Row(
        7,
        ("runs", "list", "--db", "practice.yaml"),
        "the database practice.yaml is not a database",
        "name another file with --db",
        then="grpo-practice runs list --db grpo-practice.db",
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_command_ends_with_its_code_and_the_hint_helps(demo: Gp, row: Row) -> None:
    write("score.py", RAISES)
    write("bad.jsonl", '{"question": "What is 1 + 1?", "answer": 2}\n{"question": ""}\n')
    ran = demo(*row.words)
    lines = ran.err.splitlines()
    assert ran.code == row.code, ran.err
    if row.code:
        assert not ran.out
        assert any(line.startswith("error: ") and row.says in line for line in lines), ran.err
    if row.hint:
        assert lines[-1].startswith(f"hint: {row.hint}"), ran.err
        row.mend()
        (then,) = [row.then] if row.then else commands_in(lines[-1])
        done = demo(*shlex.split(then)[1:])
        assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("script", "says", "hint"),
    [
        (always(error(401, "invalid API key")), "refused the API key", "UTU_LLM_API_KEY"),
        (always(error(404, "no model m", code="model_not_found")), "no model m", "check `model`"),
    ],
    ids=["key", "model"],
)
def test_an_endpoint_that_refuses_for_good_ends_with_3_and_the_same_command_goes_on(
    demo: Gp, monkeypatch: pytest.MonkeyPatch, script: Script, says: str, hint: str
) -> None:
    monkeypatch.setenv("UTU_LLM_API_KEY", "sk-nobody-has-this-1")
    words = ("eval", "--model", "m", "--dataset", "test", "--verify", "math", "--limit", "2")
    with serving(script) as server:
        monkeypatch.setenv("UTU_LLM_BASE_URL", server.url)
        ran = demo(*words)
    assert ran.code == 3, ran.err
    assert says in ran.err
    assert hint in ran.err.splitlines()[-1]
    with serving(always(ok("24"))) as server:
        monkeypatch.setenv("UTU_LLM_BASE_URL", server.url)
        assert demo(*words).code == 0
        assert len(server.asked) == 2


def asking(server_url: str) -> tuple[str, ...]:
    """Return an evaluation at a server that never answers."""
    data = ("--dataset", "test", "--verify", "math", "--limit", "2", "--exp-id", "slow")
    return ("eval", "--model", "m", "--base-url", server_url, *data)


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_run_with_128_and_its_number_and_it_can_go_on(
    demo: Gp, gp_process: Start, number: signal.Signals
) -> None:
    answered = ok("24")
    with serving(lambda asked: answered if asked.n == 1 else stall()) as server:
        words = [*asking(server.url), "--concurrency", "1"]
        running = gp_process(*words)
        until(lambda: len(server.asked) >= 2, running)
        running.send_signal(number)
        running.send_signal(number)  # the second one waits for nothing
        _, err = running.communicate(timeout=HANG_S)
        assert running.returncode == 128 + number, err
    assert "stopped; all answers so far are stored" in err
    last = err.splitlines()[-1]
    assert last.startswith("hint: to continue: grpo-practice eval --model m")
    with serving(always(answered)) as server:
        (command,) = commands_in(last)
        again = shlex.split(command)[1:]
        again[again.index("--base-url") + 1] = server.url
        done = demo(*again)
        assert done.code == 0, done.err
        assert len(server.asked) == 1, "the answer that was paid for is not asked for again"


@pytest.mark.long
def test_a_run_that_another_command_plays_is_locked(demo: Gp, gp_process: Start) -> None:
    with serving(always(stall())) as server:
        running = gp_process(*asking(server.url))
        until(lambda: server.asked, running)
        ran = demo(*asking(server.url))
        assert ran.code == 5, ran.err
        assert "slow" in ran.err
        running.kill()
        running.wait()
    with serving(always(ok("24"))) as server:
        done = demo(*asking(server.url))
    assert done.code == 0, done.err


def test_output_that_nobody_reads_ends_with_141_and_is_no_error(
    demo: Gp, gp_process: Start
) -> None:
    reads, writes = os.pipe()
    os.close(reads)
    running = gp_process("export-agent", "--run", "demo", stdout=writes)
    os.close(writes)
    _, err = running.communicate(timeout=HANG_S)
    assert (running.returncode, err) == (128 + signal.SIGPIPE, "")
