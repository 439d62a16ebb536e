"""`init`, `config` and `verify`: what needs neither a database nor an endpoint."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.command import Gp
from tests.contract.endpoint.actions import always, ok
from tests.contract.endpoint.server import serving

FILES = {"practice.yaml", ".env.example", "mine.jsonl"}


def test_init_writes_files_that_work_as_they_are(gp: Gp) -> None:
    ran = gp("init", "my-task", "--exp-id", "first")
    assert ran.code == 0
    assert {path.name for path in Path("my-task").iterdir()} == FILES
    assert "next: cd my-task" in ran.out
    assert ran.out.splitlines()[-1] == "next: grpo-practice practice --config practice.yaml"
    sim = ("--set", "evaluation.agent.model.model_provider.model=sim")
    ran = gp("config", "validate", "--config", "my-task/practice.yaml", *sim)
    assert ran.code == 0, ran.err
    assert "experiment  first" in ran.out
    ran = gp("data", "upload", "my-task/mine.jsonl", "--name", "mine", "--verify", "exact")
    assert "verify exact can use every answer" in ran.out


@pytest.mark.long
def test_the_path_of_the_readme_ends_in_a_gain(gp: Gp) -> None:
    assert gp("init", ".").code == 0
    Path(".env").write_text("UTU_LLM_MODEL=sim\n")
    upload = ("data", "upload", "mine.jsonl", "--name", "mine", "--verify", "exact")
    assert gp(*upload).code == 0
    split = gp("data", "split", "mine", "--into", "train=0.5,test=0.5")
    assert split.out.count(" 60  50.0 %") == 2
    assert gp("practice", "--config", "practice.yaml").code == 0
    found = gp("eval", "--run", "my_first_practice", "--arms", "none,filler,full", "--json")
    assert [one["headline"] for one in found.document["conclusions"]] == ["Better", "Better"]
    assert gp("report", "my_first_practice").err.startswith("Better, +")


def test_an_address_that_init_told_to_fill_in_is_no_warning(gp: Gp) -> None:
    assert gp("init", ".").code == 0
    with serving(always(ok("fine"))) as server:
        Path(".env").write_text(f"UTU_LLM_MODEL=m-1\nUTU_LLM_BASE_URL={server.url}\n")
        ran = gp("doctor", "--config", "practice.yaml", "--json")
    found = [
        (f["severity"], f["sentence"]) for f in ran.document["findings"] if f["about"] == "config"
    ]
    assert ("ok", f"m-1 is called at {server.url} (UTU_LLM_BASE_URL in .env)") in found
    assert all(state == "ok" for state, _ in found)
    limits = {(a.stage, a.body["max_tokens"]) for a in server.asked if a.stage != "compare"}
    assert limits == {("play", 2048), ("play", 32)}, "no reply is endless"
    assert all(a.body["max_tokens"] for a in server.asked if a.stage == "compare")
    assert "max_tokens is not set" not in ran.out


def test_init_overwrites_nothing_unless_forced(gp: Gp) -> None:
    Path("mine.jsonl").write_text("precious")
    ran = gp("init")
    assert ran.code == 2
    assert "already contains mine.jsonl" in ran.err
    assert [path.name for path in Path().iterdir()] == ["mine.jsonl"]
    assert Path("mine.jsonl").read_text() == "precious"
    assert gp("init", "--force").code == 0
    assert {path.name for path in Path().iterdir()} == FILES


def test_init_says_which_names_can_be(gp: Gp) -> None:
    assert gp("init", "--exp-id", "a/b").code == 2
    Path("file").touch()
    assert gp("init", "file/x").code == 2
    assert list(Path().iterdir()) == [Path("file")]


def test_config_show_prints_what_would_be_used_without_keys(
    gp: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    gp("init")
    monkeypatch.setenv("UTU_LLM_MODEL", "m-1")
    monkeypatch.setenv("UTU_LLM_BASE_URL", "http://localhost:1/v1")
    monkeypatch.setenv("UTU_LLM_API_KEY", "sk-very-secret")
    words = ("--config", "practice.yaml", "--set", "practice.epochs=7")
    ran = gp("config", "show", *words)
    assert ran.code == 0
    assert "epochs: 7" in ran.out
    assert "model: m-1" in ran.out
    assert "sk-very-secret" not in ran.out
    ran = gp("config", "validate", *words)
    assert "model       m-1 at http://localhost:1/v1" in ran.out
    assert "7 epochs" in ran.out


def test_config_names_the_wrong_key_and_the_ignored_one(gp: Gp) -> None:
    Path("e.yaml").write_text(
        "exp_id: e\nverify: math\ndata: {dataset: d}\ndb_url: x\n"
        "agent: {model: {model_provider: {model: sim}}}\n"
    )
    ran = gp("config", "validate", "-c", "e.yaml")
    assert ran.code == 0, ran.err
    assert "ignored: " in ran.out
    assert "db_url" in ran.out
    assert ran.out.splitlines()[-1] == "next: grpo-practice eval --config e.yaml"
    ran = gp("config", "show", "-c", "e.yaml", "--set", "pass_kk=3")
    assert (ran.code, ran.out) == (2, "")
    assert "did you mean pass_k?" in ran.err


def test_config_without_a_file_is_the_latest_runs(demo: Gp) -> None:
    ran = demo("config", "show")
    assert ran.code == 0
    assert ran.out.startswith("exp_id: demo\npractice:\n")
    assert demo("config", "validate").out.endswith("next: grpo-practice practice\n")


def test_config_without_any_run_is_an_error(gp: Gp) -> None:
    assert gp("config", "show").code == 2


@pytest.mark.parametrize(("said", "reward"), [(r"\boxed{25}", 1.0), (r"\boxed{24}", 0.0)])
def test_verify_scores_one_answer(gp: Gp, said: str, reward: float) -> None:
    words = ("verify", "math", "--answer", "25", "--response", said)
    assert gp(*words).out.startswith(f"reward {reward:.3f}\n")
    document = gp(*words, "--json").document
    assert document["schema"] == "grpo-practice.verdict/1"
    assert document["reward"] == reward
    assert document["extracted"] == said[7:9]


def test_verify_takes_parameters_and_functions_of_ones_own(gp: Gp) -> None:
    Path("score.py").write_text(
        "def check(sample, timeout_score=0, *, worth, **kwargs):\n"
        "    return {'reward': worth, 'reasoning': 'red \\x1b[2J [b]x[/b]'}\n"
    )
    words = ("verify", "score.py:check", "--answer", "1", "--response", "1")
    ran = gp(*words, "--param", "worth=0.25")
    assert ran.code == 0, ran.err
    assert ran.out.startswith("reward 0.250\n")
    assert r"red \x1b[2J [b]x[/b]" in ran.out
    assert gp(*words, "--param", "worth").code == 2


def test_verify_says_what_cannot_be_scored(gp: Gp) -> None:
    ran = gp("verify", "mth", "--answer", "1", "--response", "1")
    assert ran.code == 2
    assert "did you mean math?" in ran.err
    ran = gp("verify", "math", "--answer", " ", "--response", "1")
    assert ran.code == 2
    assert "verify math needs an answer" in ran.err


def test_a_judge_needs_a_model_and_uses_the_one_in_the_environment(
    gp: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("verify", "judge", "--question", "Capital of France?", "--answer", "Paris")
    ran = gp(*words, "--response", "It is Paris, I am sure.")
    assert ran.code == 2
    assert "needs a judge, but none is configured" in ran.err
    monkeypatch.setenv("JUDGE_LLM_MODEL", "sim")
    ran = gp(*words, "--response", "It is Paris, I am sure.", "--json")
    assert ran.code == 0, ran.err
    assert ran.document["reward"] in (0.0, 1.0)


@pytest.mark.long
def test_workers_start_where_temporary_files_have_a_long_path(tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    (tmp_path / "score.py").write_text("def check(sample):\n    return {'reward': 1.0}\n")
    words = ("verify", "score.py:check", "--answer", "1", "--response", "1")
    done = subprocess.run(
        [sys.executable, "-m", "grpo_practice", *words],
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(long)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "reward 1.000" in done.stdout
