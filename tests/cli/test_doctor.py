"""`doctor`: each thing that would go wrong is found before it costs, with its exit code."""

import json
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.cli.terminal.consoles import out
from grpo_practice.config import load_practice
from grpo_practice.core import processes
from grpo_practice.run.doctor import machine
from grpo_practice.run.doctor.endpoints import models_of
from tests.cli.conftest import Gp, Ran, gp
from tests.contract.endpoint.actions import Script, always, error, ok
from tests.contract.endpoint.server import serving
from tests.contract.project import CONFIG

__all__ = ["gp"]

KEY = "sk-proj-a-key-that-nobody-has-1234"
TOOL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}


def write(folder: Path, questions: int = 6, **files: str) -> None:
    rows = [
        json.dumps({"question": f"What is {n} + 1?", "answer": n + 1}) for n in range(questions)
    ]
    (folder / "test.jsonl").write_text("\n".join(rows))
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)


def found(ran: Ran, about: str) -> list[tuple[str, str]]:
    return [(f["severity"], f["sentence"]) for f in ran.document["findings"] if f["about"] == about]


def ask(gp: Gp, script: Script, *words: str, model: str = "m-1") -> tuple[Ran, Any]:
    with serving(script) as server:
        at = "agent.model.model_provider"
        sets = [f"{at}.base_url={server.url}", f"{at}.api_key={KEY}", f"{at}.model={model}"]
        sets += ["data.dataset=test.jsonl", "verify=math", "exp_id=e", *words]
        Path("e.yaml").write_text("{}")
        words = tuple(word for text in sets for word in ("--set", text))
        return gp("doctor", "--run", "--json", "--config", "e.yaml", *words), server


def test_an_empty_folder_has_no_problem_and_is_left_empty(gp: Gp, tmp_path: Path) -> None:
    ran = gp("doctor", "--json")
    assert (ran.code, ran.document["exit"], ran.document["requests"]) == (0, 0, 0)
    assert [text for state, text in found(ran, "config") if state == "warning"]
    assert list(tmp_path.iterdir()) == []
    warnings = 1 + machine.wal_reset_bug(sqlite3.sqlite_version_info)
    assert f"0 problems, {warnings} warning" in gp("doctor").out


@pytest.mark.parametrize("name", ["/proc/self/statm", "nowhere"])
def test_a_system_that_limits_no_memory_is_said(
    gp: Gp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(processes, "STATM", tmp_path / name)
    ((state, text),) = found(gp("doctor", "--json"), "python")
    limited = processes.STATM.exists()
    assert (state, "memory of workers is not limited" in text) == ("ok", not limited)


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 9), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 53, 0), False),
    ],
)
def test_a_sqlite_that_may_damage_its_log_is_pointed_out(
    gp: Gp, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], affected: bool
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    ran = gp("doctor", "--json")
    ((state, text),) = found(ran, "sqlite")
    assert (ran.code, state, "WAL-reset bug" in text) == (
        0,
        "warning" if affected else "ok",
        affected,
    )


def test_an_endpoint_is_asked_two_tiny_requests_that_no_ledger_keeps(
    gp: Gp, tmp_path: Path
) -> None:
    write(tmp_path)
    script = always(ok({"role": "assistant", "content": "4", "tool_calls": [TOOL]}, usage={}))
    ran, server = ask(gp, script, "concurrency=1")
    assert ran.code == 0, ran.err
    assert "2 tiny requests" in ran.err
    assert [len(a.body.get("tools", [])) for a in server.asked] == [0, 1]
    states = found(ran, "student")
    assert any(s == "ok" and "model m-1 at" in t and "answered; latency" in t for s, t in states)
    assert ("ok", "tool calls work (chat.completions)") in states
    assert ("ok", "seed accepted") in states
    assert any(s == "warning" and "price is unknown" in t for s, t in states)
    assert any(s == "warning" and "max_tokens is not set" in t for s, t in states)
    (hint,) = (f["hint"] for f in ran.document["findings"] if "price is unknown" in f["sentence"])
    assert hint.startswith("add prices: {'m-1': ")
    assert any(s == "warning" and "token counts" in t for s, t in states)
    (hint,) = (f["hint"] for f in ran.document["findings"] if "max_tokens" in f["sentence"])
    assert hint == "set agent.model.model_settings.max_tokens"
    assert not list(tmp_path.glob("*.db"))


def test_what_an_endpoint_does_otherwise_than_it_was_asked_is_a_warning(
    gp: Gp, tmp_path: Path
) -> None:
    write(tmp_path)
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 30,
        "completion_tokens_details": {"reasoning_tokens": 25},
    }

    def script(asked: Any) -> Any:
        if "seed" in asked.body:
            return error(
                400, "Unsupported parameter: 'seed'", {}, param="seed", code="unsupported_parameter"
            )
        return ok("4", usage=usage, model="another-model")

    ran, _ = ask(gp, script, "agent.model.model_settings.max_tokens=64")
    assert ran.code == 0, ran.out
    told = " ".join(text for _, text in found(ran, "student"))
    assert "a reply may have 64 tokens (agent.model.model_settings.max_tokens)" in told
    assert "does not accept `seed`" in told
    assert "accepts no seed" in told
    assert "answers as 'another-model'" in told
    assert "tokens counted (9 in, 30 out)" in told
    assert "seed accepted" not in told
    assert "25 of 30 tokens" in told
    assert "did not call a tool" in told


def test_1_12_a_refused_key_is_exit_3_and_the_key_is_not_shown(gp: Gp, tmp_path: Path) -> None:
    write(tmp_path)
    ran, server = ask(gp, lambda a: error(401, f"bad key {a.headers['authorization']}"))
    assert (ran.code, ran.document["exit"], len(server.asked)) == (3, 3, 1)
    assert any(s == "problem" and "refused the API key" in t for s, t in found(ran, "student"))
    assert KEY not in ran.out + ran.err


def test_an_endpoint_that_is_not_there_is_exit_3(gp: Gp, tmp_path: Path) -> None:
    write(tmp_path)
    at = "agent.model.model_provider"
    for url, said in (
        ("http://127.0.0.1:9", "cannot reach"),
        ("http://nobody.invalid/v1", "cannot resolve nobody.invalid"),
    ):
        sets = [f"{at}.base_url={url}", f"{at}.model=m", "data.dataset=test.jsonl", "verify=math"]
        (tmp_path / "e.yaml").write_text("{}")
        ran = gp("doctor", "--json", "-c", "e.yaml", *(w for text in sets for w in ("--set", text)))
        assert ran.code == 3
        assert any(said in text for _, text in found(ran, "student")), ran.out


def test_a_key_that_goes_out_in_clear_is_a_warning() -> None:
    from grpo_practice.llm.endpoint import Endpoint
    from grpo_practice.run.doctor.endpoints import _in_clear

    for url, key, warned in (
        ("http://api.example.com/v1", KEY, True),
        ("https://api.example.com/v1", KEY, False),
        ("http://api.example.com/v1", None, False),
        ("http://127.0.0.1:8000/v1", KEY, False),
    ):
        assert bool(_in_clear("student", Endpoint(url, key))) is warned


def test_each_model_is_asked_once(tmp_path: Path) -> None:
    at = "evaluation.agent.model.model_provider"
    flags = [f"{at}.model=m", f"{at}.base_url=http://a/v1", "evaluation.verify=judge"]
    (tmp_path / "c.yaml").write_text(CONFIG)
    config = load_practice(tmp_path / "c.yaml", flags, {}).config
    asked = [(role, m.model_provider.base_url) for role, m in models_of(config)]
    assert asked == [("student, teacher, judge", "http://a/v1")]


def test_a_config_that_cannot_be_used_is_exit_2(gp: Gp, tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text("verify: mth\ndata: {dataset: test.jsonl}\nagnet: {}\n")
    ran = gp("doctor", "--json", "--config", "e.yaml")
    assert ran.code == 2
    assert any("agnet" in text for _, text in found(ran, "config"))


def test_a_dataset_that_is_not_there_is_exit_4(gp: Gp, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    ran = gp("doctor", "--json", "--config", "c.yaml")
    assert ran.code == 4
    assert found(ran, "practice data") == [("problem", "there is no dataset 'train' yet")]


def test_a_database_that_is_none_or_that_others_can_read(gp: Gp, tmp_path: Path) -> None:
    gp("doctor")
    path = tmp_path / "grpo-practice.db"
    path.write_text("no database at all, but long enough to be looked at" * 20)
    path.chmod(0o644)
    ran = gp("doctor", "--json")
    assert ran.code == 7
    path.unlink()
    write(tmp_path)
    assert gp("data", "upload", "test.jsonl", "--name", "d").code == 0
    path.chmod(0o640)
    tmp_path.chmod(0o777)
    ran = gp("doctor", "--json")
    assert ran.code == 2  # no run yet, so no configuration
    assert ("warning", f"{path.name} can be read by other users") in found(ran, "database")
    assert any("can replace" in text for _, text in found(ran, "folder"))


def test_a_database_of_a_development_version_is_not_touched(gp: Gp, tmp_path: Path) -> None:
    path = tmp_path / "grpo-practice.db"
    write(tmp_path)
    gp("data", "upload", "test.jsonl", "--name", "d")
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 7")
    before = path.read_bytes()
    ran = gp("doctor", "--json")
    assert ran.code == 7
    assert any("made by a development version" in text for _, text in found(ran, "database"))
    assert path.read_bytes() == before


def test_2_42_an_env_file_that_others_can_read_is_pointed_out(gp: Gp, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"UTU_LLM_API_KEY={KEY}\nLD_PRELOAD=/evil.so\n")
    (tmp_path / ".env").chmod(0o644)
    ran = gp("doctor", "--json")
    told = " ".join(text for state, text in found(ran, ".env") if state == "warning")
    assert "chmod 600" in told
    assert "LD_PRELOAD" in told
    assert KEY not in ran.out


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ("tmpfs / ext4 rw 0 0\nhost:/x {at} nfs4 rw 0 0\n", "nfs4"),
        ("tmpfs / ext4 rw 0 0\nhost:/x {at}/other nfs4 rw 0 0\n", "ext4"),
        ("", None),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(
    tmp_path: Path, lines: str, kind: str | None
) -> None:
    mounts, folder = tmp_path / "mounts", tmp_path / "a b" / "c"
    folder.mkdir(parents=True)
    at = str(folder.parent.resolve()).replace(" ", r"\040")
    mounts.write_text(lines.format(at=at))
    assert machine.file_system(folder, mounts) == kind
    assert machine.file_system(folder, tmp_path / "none") is None


def test_a_socks_proxy_is_a_problem_and_nothing_is_sent_to_it(
    gp: Gp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    monkeypatch.setenv("NO_PROXY", "")
    with serving(always(ok("4"))) as proxy:
        monkeypatch.setenv("ALL_PROXY", proxy.url.replace("http://", "socks5://"))
        ran, server = ask(gp, always(ok("4")))
        assert [text for _, text in found(ran, "student") if "ALL_PROXY names a SOCKS" in text]
        assert ran.code != 0
        assert len(proxy.asked) == len(server.asked) == 0


def test_where_a_key_goes_is_told_once_and_before_anything_is_sent(gp: Gp, tmp_path: Path) -> None:
    write(tmp_path)
    with serving(always(ok("4"))) as server:
        text = f"UTU_LLM_MODEL=m\nUTU_LLM_BASE_URL={server.url}\nUTU_LLM_API_KEY={KEY}\n"
        Path(".env").write_text(text)
        Path("e.yaml").write_text("{data: {dataset: test.jsonl}, verify: math}")
        ran = gp("doctor", "--config", "e.yaml")
        route = "UTU_LLM_API_KEY (.env) goes to http://127.0.0.1"
        assert (ran.err.count(route), ran.out.count(route)) == (1, 0)
        assert ran.err.index(route) < ran.err.index("sending")
        assert [text for _, text in found(gp("doctor", "-c", "e.yaml", "--json"), "keys")]


@pytest.mark.parametrize("width", [80, 120])
def test_a_long_check_is_wrapped_under_itself(
    gp: Gp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, width: int
) -> None:
    monkeypatch.setattr(out, "_force_terminal", True)
    monkeypatch.setattr(out, "_width", width)
    write(tmp_path, e_yaml="{agent: {model: {model_provider: {model: sim}}}}")
    sets = ("--set", "data.dataset=test.jsonl", "--set", "verify=math")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", gp("doctor", "-c", "e.yaml", *sets).out).splitlines()
    assert any(line.startswith(" " * 9) and "hint" not in line for line in lines)
    for line in lines[:-1]:
        assert line.startswith(("ok ", "warning ", "problem ", " " * 9)), line
        assert len(line) <= width


@pytest.mark.parametrize("where", ["alone", "config", "run"])
def test_an_agent_s_file_is_looked_at_and_not_run(gp: Gp, tmp_path: Path, where: str) -> None:
    model = "model: {model_provider: {model: sim}}"
    write(
        tmp_path,
        e_yaml=f"{{exp_id: e, data: {{dataset: test.jsonl}}, verify: math, agent: {{{model}}}}}",
    )
    if where == "run":
        assert gp("eval", "-c", "e.yaml", "--limit", "1").code == 0
    own = f"type: command\ncommand: [touch, ran]\nagent: {{name: theirs}}\n{model}\n"
    Path("theirs.yaml").write_text(own)
    more = ("--agent", "theirs.yaml", *(("-c", "e.yaml") if where == "config" else ()))
    refused = gp("config", "validate", *more)
    assert (refused.code, "theirs.yaml:2: agent.command" in refused.err) == (2, True)
    shown = gp("config", "validate", *more, "--trust", "theirs.yaml")
    assert shown.code == 0, shown.err
    assert "theirs" in shown.out.partition("agent")[2].splitlines()[0]
    after = shlex.split(shown.out.splitlines()[-1].removeprefix("next: grpo-practice "))
    assert after[0] == ("doctor" if where == "alone" else "eval")
    assert gp("doctor", *more).code == 0
    assert "theirs" in gp("config", "show", *more).out
    assert not Path("ran").exists()
    assert (where == "run") == Path("grpo-practice.db").exists()
    Path("theirs.yaml").write_text(own.replace("command: [touch, ran]", "comand: x"))
    assert gp("doctor", *more).code == 2
