"""Errors become one sentence, an exit code, and with --json a document."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from grpo_practice import __version__
from grpo_practice.core.errors import (
    ChangedKey,
    ConfigError,
    DataError,
    EndpointRefusedError,
    FingerprintError,
    GrpoPracticeError,
    LockedError,
    RunFailedError,
    StoppedError,
    StoreError,
    UnderWay,
)
from tests.cli.conftest import Gp, Ran
from tests.processes import HANG_S, program, until

Fail = Callable[[BaseException], None]
GP = [sys.executable, "-m", "grpo_practice"]


@pytest.fixture
def fail_with(monkeypatch: pytest.MonkeyPatch) -> Fail:
    """Makes `init` end with an error."""

    def install(error: BaseException) -> None:
        def raise_it(_: str) -> NoReturn:
            raise error

        monkeypatch.setattr("grpo_practice.cli.first_files.init_files", raise_it)

    return install


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (RunFailedError("x"), 1),
        (ConfigError("x"), 2),
        (FingerprintError("x", []), 2),
        (EndpointRefusedError("x"), 3),
        (DataError("x"), 4),
        (LockedError("x"), 5),
        (StoreError("x"), 7),
        (ValueError("x"), 1),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_each_error_has_its_exit_code(
    gp: Gp, fail_with: Fail, error: BaseException, code: int
) -> None:
    fail_with(error)
    assert gp("init").code == code


def test_an_error_is_a_sentence_and_a_hint_on_stderr(gp: Gp, fail_with: Fail) -> None:
    fail_with(GrpoPracticeError("it [bold]broke[/bold]\x1b[2J", hint="mend \u202eit"))
    assert gp("init") == Ran(1, "", "error: it [bold]broke[/bold]\\x1b[2J\nhint: mend \\u202eit\n")


def test_a_refused_change_shows_each_key_as_it_was_and_is(gp: Gp, fail_with: Fail) -> None:
    fail_with(FingerprintError("changed", [ChangedKey("practice.grpo_n", 5, 8)], hint="undo it"))
    ran = gp("init")
    assert [line.split() for line in ran.err.splitlines()[1:3]] == [
        ["key", "was", "now"],
        ["practice.grpo_n", "5", "8"],
    ]
    assert ran.err.splitlines()[-1] == "hint: undo it"


def test_json_tells_the_error_on_stdout_too(gp: Gp, fail_with: Fail) -> None:
    fail_with(FingerprintError("changed", [ChangedKey("practice.grpo_n", 5, 8)], hint="undo it"))
    ran = gp("init", "--json")
    assert ran.document == {
        "schema": "grpo-practice.error/1",
        "kind": "fingerprint",
        "message": "changed",
        "hint": "undo it",
        "diff": [{"key": "practice.grpo_n", "was": 5, "now": 8}],
        "next": None,
        "exit": ran.code,
    }
    # `demo` has no --json of its own: a command that does not know it is a usage error
    ran = gp("demo", "--json")
    assert ran.document["kind"] == "usage"
    assert (ran.document["exit"], ran.code) == (2, 2)

    ran = gp("runs", "list", "--json")
    assert ran.code == 2
    assert ran.document == {
        "schema": "grpo-practice.error/1",
        "kind": "config",
        "message": "there is no database grpo-practice.db yet",
        "hint": "name another with --db, or start with: grpo-practice init my-task",
        "diff": [],
        "next": None,
        "exit": 2,
    }


def test_an_unexpected_error_has_no_traceback_unless_asked_for(gp: Gp, fail_with: Fail) -> None:
    fail_with(ZeroDivisionError("by zero"))
    ran = gp("init")
    assert ran.err == (
        "error: internal error: ZeroDivisionError: by zero\n"
        "hint: grpo-practice --debug init shows the traceback\n"
    )
    ran = gp("--debug", "init")
    assert "Traceback" in ran.err
    assert "raise error" in ran.err
    assert "locals" not in ran.err
    assert "shows the traceback" not in ran.err


def test_the_hint_is_told_once_beside_a_traceback(gp: Gp) -> None:
    ran = gp("--debug", "runs", "list")
    assert "Traceback" in ran.err
    assert ran.err.count("hint: ") == 1


def test_a_wrong_option_is_a_sentence_and_exit_2(gp: Gp) -> None:
    ran = gp("data", "upload", "--nmae", "x")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: No such option: --nmae")
    assert "hint: grpo-practice data upload --help" in ran.err


def test_a_group_without_a_command_shows_its_help(gp: Gp) -> None:
    ran = gp("data")
    assert ran.code == 2
    assert ran.err.startswith("Usage: grpo-practice data")
    assert "upload" in ran.err


def test_the_version_is_told(gp: Gp) -> None:
    assert gp("--version") == Ran(0, f"grpo-practice {__version__}\n", "")


def test_a_stopped_run_says_how_to_go_on(gp: Gp, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("grpo_practice.run.practice_run.prepare_practice", stop)
    ran = gp("practice", "--config", "a b.yaml", "--again", "--set", "a.api_key=sk-123456789")
    assert ran.code == 130
    assert ran.err.splitlines() == [
        "stopped; all answers so far are stored",
        "hint: to continue: grpo-practice practice --config 'a b.yaml' --set 'a.api_key=***'",
    ]


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, signal.SIGTERM, signal.SIGHUP],
)
def test_a_signal_stops_the_command_with_its_exit_code(tmp_path: Path, number: int) -> None:
    (tmp_path / "slow.py").write_text(
        "import asyncio, pathlib\n"
        "async def check(sample, **kwargs):\n"
        "    pathlib.Path('started').touch()\n"
        "    await asyncio.sleep(1000)\n"
    )
    words = ["verify", "slow.py:check", "--answer", "1", "--response", "1"]
    env = {**os.environ, "UTU_LLM_MODEL": "sim"}
    with subprocess.Popen(
        program(*words), cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True
    ) as process:
        until((tmp_path / "started").exists, process)
        process.send_signal(number)
        _, told = process.communicate(timeout=HANG_S)
    assert process.returncode == 128 + number
    assert told == "stopped\n"


@pytest.mark.long
@pytest.mark.slow
def test_a_closed_pipe_is_no_error(finished_demo: Path) -> None:
    command = f"{' '.join(GP)} experiences list | head -1"
    done = subprocess.run(
        ["bash", "-c", command], cwd=finished_demo, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_help_does_not_wait_for_heavy_libraries() -> None:
    code = (
        "import sys\n"
        "from grpo_practice.main import run\n"
        "run(['practice', '--help'])\n"
        "heavy = {'rich.console', 'httpx', 'numpy', 'scipy',\n"
        "         'sqlite3', 'sympy', 'math_verify', 'aiohttp', 'asyncio', 'yaml', 'jinja2'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_a_batch_that_cannot_be_cancelled_is_told_in_a_sentence(
    gp: Gp, fail_with: Fail, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancel() -> None:
        raise EndpointRefusedError("HTTP 409")

    stopped = StoppedError(signal.SIGINT)
    stopped.batches = [UnderWay("a batch is under way", cancel)]
    fail_with(stopped)
    monkeypatch.setattr("grpo_practice.main.choose", lambda *_: "cancel")
    ran = gp("init")
    assert ran.code == 130
    assert "not cancelled: HTTP 409" in ran.err
    assert "run the same command again to read its replies" in ran.err
