"""The user's word: asked for with the flag that gives it, remembered, and for nothing else."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.hostile import agent_files, databases
from tests.contract.hostile.agent_files import DATA, PROFILE, model
from tests.contract.hostile.data import MODULES
from tests.contract.hostile.place import OWN, Outcome, Place
from tests.contract.hostile.planted import KEY, ROWS, row, shell

EVAL = ("eval", "--agent", "agent.yaml", *DATA)
AGENT = model("api_key: none").replace(PROFILE, PROFILE + "type: command\ncommand: ./run\n")


def refused(outcome: Outcome, *parts: str) -> None:
    """Assert that the command was refused before anything was sent or run, with these words."""
    assert outcome.code == 2, outcome.shown
    assert not outcome.left, outcome.shown
    assert not outcome.ran, outcome.shown
    assert not outcome.asked
    shown = " ".join(outcome.shown.split())
    for part in parts:
        assert part in shown


def line_of(path: Path, text: str) -> str:
    """Return `name:line` of the first line with a text."""
    lines = path.read_text().splitlines()
    return f"{path.name}:{next(n for n, line in enumerate(lines, 1) if text in line)}"


@pytest.fixture
def program(place: Place) -> Place:
    """An agent's file that names a program of its folder."""
    place.put("agent.yaml", AGENT)
    place.put("run", shell(place.mark, "run"), runs=True)
    return place


def files_of(folder: Path) -> set[str]:
    return {path.name for path in folder.rglob("*") if not path.name.startswith("grpo-practice.db")}


def test_a_program_is_refused_with_file_line_key_and_flag(program: Place) -> None:
    outcome = program.type(*EVAL)
    where = line_of(program.folder / "agent.yaml", "command: ./run")
    refused(outcome, where, "command", "--trust agent.yaml")


def test_a_trusted_file_is_remembered_by_its_content(program: Place) -> None:
    before = files_of(program.folder)
    assert "run" in program.type(*EVAL, "--trust", "agent.yaml").ran
    assert "run" in program.type(*EVAL, "--restart-step", "0").ran
    assert files_of(program.folder) == before
    assert str(program.folder / "agent.yaml") in program.type("trust").shown
    shutil.copy(program.folder / "agent.yaml", program.folder / "copy.yaml")
    path = program.folder / "agent.yaml"
    path.write_text(path.read_text().replace("./run", "./run --changed"))
    refused(program.type(*EVAL, "--restart-step", "0"), "--trust agent.yaml")


@pytest.mark.long_after(1)
@pytest.mark.parametrize("word", ["trust", "--trust", "eval"])
def test_a_file_is_asked_for_once_whichever_own_config_it_is_laid_over(
    program: Place, word: str
) -> None:
    program.put("sub/own.yaml", OWN)
    program.put("sub/mine.jsonl", ROWS)
    program.put("sub/run", shell(program.mark, "run"), runs=True)
    below = ("eval", "--config", "sub/own.yaml", "--agent", "agent.yaml")
    first = {
        "trust": ("trust", "agent.yaml"),
        "--trust": (*below, "--trust", "agent.yaml", "--exp-id", "first"),
        "eval": (*EVAL, "--trust", "agent.yaml", "--exp-id", "first"),
    }[word]
    assert "--trust" not in program.type(*first).shown
    for words in (below, EVAL):
        outcome = program.type(*words)
        assert "run" in outcome.ran, outcome.shown


def test_a_stranger_s_database_does_not_choose_the_folder_of_a_trusted_file(
    program: Place,
) -> None:
    databases.given(program, databases.stored(), folder=program.home / "work" / "elsewhere")
    assert program.type("trust", "agent.yaml").code == 0
    refused(program.type("eval", "--agent", "agent.yaml"), "--trust agent.yaml")


@pytest.mark.parametrize("command", [EVAL, ("config", "show", "--config", "own.yaml")])
def test_a_folder_is_no_file_to_trust(program: Place, command: tuple[str, ...]) -> None:
    refused(program.type(*command, "--trust", "."), "grpo-practice trust .")
    assert "no files from other people" in program.type("trust").shown


def test_what_is_remembered_is_in_the_users_own_config_folder(program: Place) -> None:
    program.env["XDG_CONFIG_HOME"] = str(program.home / "elsewhere")
    assert "run" in program.type(*EVAL, "--trust", "agent.yaml").ran
    assert list((program.home / "elsewhere" / "grpo-practice").iterdir())
    assert not (program.home / ".config" / "grpo-practice").exists()


def test_trust_of_one_file_is_not_that_of_another(program: Place) -> None:
    program.put("other.yaml", PROFILE)
    refused(program.type(*EVAL, "--trust", "other.yaml"), "--trust agent.yaml")


def test_a_trusted_file_may_not_take_the_key_of_another_host(place: Place) -> None:
    place.put("agent.yaml", model("api_key: '${oc.env:UTU_LLM_API_KEY}'"))
    outcome = place.type(*EVAL, "--trust", "agent.yaml")
    refused(outcome, f"--trust-host 127.0.0.1:{place.evil.port}")


def test_a_trusted_folder_is_trusted_and_no_other(program: Place) -> None:
    assert program.type("trust", ".").code == 0
    assert "run" in program.type(*EVAL).ran
    other = program.home / "work" / "other"
    shutil.copytree(program.folder, other, ignore=shutil.ignore_patterns("*.db*"))
    program.folder = other
    refused(program.type(*EVAL), "--trust agent.yaml")


def test_a_trusted_folder_does_not_vouch_for_a_link_to_elsewhere(program: Place) -> None:
    mine = program.home / "work" / "mine"
    mine.mkdir()
    (mine / "mine.jsonl").write_text((program.folder / "mine.jsonl").read_text())
    (mine / "run").symlink_to(program.folder / "run")
    (mine / "agent.yaml").symlink_to(program.folder / "agent.yaml")
    program.folder = mine
    assert program.type("trust", ".").code == 0
    refused(program.type(*EVAL), "--trust agent.yaml")


def test_a_folder_that_is_replaced_by_a_link_is_not_trusted(program: Place) -> None:
    mine = program.home / "work" / "mine"
    mine.mkdir()
    stranger, program.folder = program.folder, mine
    assert program.type("trust", ".").code == 0
    mine.rmdir()
    mine.symlink_to(stranger)
    refused(program.type(*EVAL), "--trust agent.yaml")


def test_init_trusts_the_folder_that_it_makes(place: Place) -> None:
    assert place.type("init", "mine").code == 0
    place.folder = place.folder / "mine"
    place.put("agent.yaml", AGENT)
    place.put("run", shell(place.mark, "run"), runs=True)
    words = ("--dataset", "mine.jsonl", "--verify", "exact")
    assert "run" in place.type("eval", "--agent", "agent.yaml", *words).ran


def test_init_in_a_folder_that_is_there_does_not_trust_it(program: Place) -> None:
    assert program.type("init", ".", "--force").code == 0
    refused(program.type(*EVAL), "--trust agent.yaml")


def test_a_database_cannot_claim_to_be_from_a_trusted_folder(place: Place) -> None:
    mine = place.own
    (mine / "run").write_text(shell(place.mark, "run"))
    (mine / "run").chmod(0o755)
    stranger, place.folder = place.folder, mine
    assert place.type("trust", ".").code == 0
    place.folder = stranger
    config = databases.stored(more="type: command\ncommand: [./run, --delete-all]\n")
    databases.given(place, config, folder=mine)
    refused(place.type("eval"), "command")


def test_a_server_and_the_models_code_need_the_word_too(place: Place) -> None:
    for text in (
        agent_files.MCP + "  config: {command: ./run}\n",
        agent_files.PYTHON + "    {backend: subprocess}\n",
    ):
        place.put("agent.yaml", agent_files.kits(text))
        place.put("run", shell(place.mark, "run"), runs=True)
        refused(place.type(*EVAL), "agent.yaml:", "--trust agent.yaml")


@pytest.fixture
def by_env(place: Place) -> Place:
    """A `.env` with a URL, and the key in the environment."""
    del place.env["UTU_LLM_BASE_URL"]
    place.put(".env", "\nUTU_LLM_BASE_URL=@EVIL@/v1\n")
    return place


OWN_EVAL = ("eval", "--config", "own.yaml")


def sent(place: Place) -> bool:
    return KEY.encode() in place.evil.whole


def test_a_host_is_refused_with_file_line_key_and_flag(by_env: Place) -> None:
    host = f"127.0.0.1:{by_env.evil.port}"
    refused(
        by_env.type(*OWN_EVAL),
        ".env:2",
        "UTU_LLM_BASE_URL",
        "UTU_LLM_API_KEY",
        f"--trust-host {host}",
    )


@pytest.mark.parametrize("command", [("config", "show"), ("config", "validate")])
def test_a_look_says_what_a_run_would_refuse(by_env: Place, command: tuple[str, str]) -> None:
    outcome = by_env.type(*command, "--config", "own.yaml")
    refused(outcome, "UTU_LLM_API_KEY", f"--trust-host 127.0.0.1:{by_env.evil.port}")


def test_a_trusted_host_is_remembered(by_env: Place) -> None:
    host = f"127.0.0.1:{by_env.evil.port}"
    assert by_env.type(*OWN_EVAL, "--trust-host", host).code == 0
    assert sent(by_env)
    assert by_env.type(*OWN_EVAL, "--restart-step", "0").code == 0
    assert sent(by_env)
    place = by_env
    place.put(".env", "UTU_LLM_BASE_URL=http://localhost:@EVILPORT@/v1\n")
    refused(place.type(*OWN_EVAL, "--restart-step", "0"), "--trust-host localhost")


def test_one_answer_s_judge_is_announced_and_asked_for_too(by_env: Place) -> None:
    words = ("verify", "judge", "--answer", "4", "--response", "it is 4")
    host = f"127.0.0.1:{by_env.evil.port}"
    by_env.put(".env", "UTU_LLM_BASE_URL=@EVIL@/v1\nUTU_LLM_MODEL=m\n")
    refused(by_env.type(*words), ".env:1", f"--trust-host {host}")
    outcome = by_env.type(*words, "--trust-host", host)
    assert sent(by_env)
    (line,) = [text for text in outcome.before.splitlines() if " goes to " in text]
    assert "UTU_LLM_API_KEY" in line
    assert host in line
    assert line.endswith(".env:1")


def test_a_folder_that_holds_the_home_is_not_trusted(place: Place) -> None:
    for folder in (str(place.home), "/"):
        outcome = place.type("trust", folder)
        assert outcome.code == 2, outcome.shown


def test_machines_name_hosts_in_a_variable(by_env: Place) -> None:
    by_env.env["GRPO_PRACTICE_TRUST_HOSTS"] = f"a.invalid, 127.0.0.1:{by_env.evil.port}"
    assert by_env.type(*OWN_EVAL).code == 0
    assert sent(by_env)
    kept = by_env.home / ".config" / "grpo-practice" / "trusted.jsonl"
    assert '"host"' not in kept.read_text()


@pytest.mark.parametrize(
    "hosts",
    [
        "127.0.0.1:1",
        "0.0.1",
        "evil127.0.0.1",
        "*",
        "",
        ",",
        "localhost",
        "127.0.0.1@x",
        "http://a.invalid/127.0.0.1",
    ],
)
def test_another_host_is_no_word_for_this_one(by_env: Place, hosts: str) -> None:
    by_env.env["GRPO_PRACTICE_TRUST_HOSTS"] = hosts
    refused(by_env.type(*OWN_EVAL), "--trust-host")


@pytest.mark.parametrize("config_home", ["", ".", ".config", "./.config"])
def test_a_folder_cannot_say_that_it_is_trusted(program: Place, config_home: str) -> None:
    """A relative folder for the user's configs would be one of the stranger's."""
    word = json.dumps({"folder": str(program.folder)}) + "\n"
    for folder in ("", ".config/"):
        program.put(f"{folder}grpo-practice/trusted.jsonl", word)
    program.env["XDG_CONFIG_HOME"] = config_home
    refused(program.type(*EVAL), "--trust agent.yaml")


def test_an_own_config_announces_before_its_first_request(place: Place) -> None:
    provider = "{base_url: '@EVIL@/v1',\n  api_key: '${oc.env:GITHUB_TOKEN}'}"
    place.put(
        "own.yaml", f"{OWN}judge_model: {{model_provider: {provider}}}\n".replace("exact", "judge")
    )
    outcome = place.type(*OWN_EVAL)
    assert outcome.announces("GITHUB_TOKEN", outcome.before), outcome.shown
    lines = [line for line in outcome.before.splitlines() if "GITHUB_TOKEN" in line]
    assert len(lines) == 1
    assert not re.search(place.env["GITHUB_TOKEN"], outcome.shown)


def test_an_own_config_runs_what_it_names(place: Place) -> None:
    place.put("run", shell(place.mark, "run"), runs=True)
    place.put(
        "own.yaml", OWN.replace("agent: {agent", "agent: {type: command, command: ./run, agent")
    )
    assert "run" in place.type(*OWN_EVAL).ran
    place.module("score.py", "def check(sample, **_):\n    return {'reward': 1.0}\n")
    place.put(
        "own.yaml", OWN.replace("exact", "score.py:check").replace("exp_id: own", "exp_id: b")
    )
    assert "score.py" in place.type(*OWN_EVAL).ran


def test_no_redirect_takes_a_key_to_another_origin(place: Place) -> None:
    place.good.redirect = place.evil.origin
    outcome = place.type(*OWN_EVAL)
    assert KEY.encode() in place.good.whole
    assert not outcome.asked


@pytest.mark.long_after(3)
@pytest.mark.parametrize(
    "url",
    [
        "@GOOD@@127.0.0.1:@EVILPORT@/v1",
        "@GOOD@\\@127.0.0.1:@EVILPORT@/v1",
        "http://127.0.0.1:@EVILPORT@/@GOOD@/v1",
        "http://127.0.0.1:@EVILPORT@\\@@GOODHOST@/v1",
        "http://127.0.0.1:@EVILPORT@#@@GOODHOST@/v1",
        "http://127.0.0.1:@EVILPORT@?@@GOODHOST@/v1",
        "http://127.0.0.1:@EVILPORT@/\t@@GOODHOST@/v1",
        "HTTP://127.0.0.1:@EVILPORT@/v1",
        "http://127.0.0.1.:@EVILPORT@/v1",
        "http://[::ffff:127.0.0.1]:@EVILPORT@/v1",
        "http://0x7f.1:@EVILPORT@/v1",
        "http://2130706433:@EVILPORT@/v1",
        "http://\uff11\uff12\uff17.0.0.1:@EVILPORT@/v1",
    ],
)
def test_no_spelling_of_a_url_passes_for_the_own_host(place: Place, url: str) -> None:
    """Whichever way another parser reads it."""
    url = url.replace("@GOODHOST@", place.good.origin.partition("//")[2])
    place.env["GRPO_PRACTICE_TRUST_HOSTS"] = place.good.origin.partition("//")[2]
    text = model(
        "base_url: " + json.dumps(place.fill(url)) + "\napi_key: '${oc.env:UTU_LLM_API_KEY}'"
    )
    place.put("agent.yaml", text)
    for words in (EVAL, ("serve", "--agent", "agent.yaml", "--port", "0")):
        outcome = place.type(*words)
        assert not outcome.left, outcome.shown
    place.put("agent.yaml", text.replace("api_key", "# api_key"))
    assert not place.type(*EVAL, "--exp-id", "b").left


@pytest.mark.long
def test_the_program_imports_nothing_of_the_folder(place: Place) -> None:
    """As it is installed, in a process of its own with its workers."""
    for name in (*MODULES, "grpo_practice/__init__"):
        place.module(f"{name}.py")
    place.put("mine.jsonl", row(question="What is x plus x?", answer="2x"))
    place.put("own.yaml", OWN.replace("exact", "math"))
    place.good.says = "\\boxed{x+x}"
    del place.env["TMPDIR"]  # sockets have short names
    program = str(Path(sys.executable).with_name("grpo-practice"))
    for words in (OWN_EVAL, ("doctor", "--config", "own.yaml")):
        done = subprocess.run(
            [program, *words], cwd=place.folder, env=place.env, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        assert not place.mark.exists(), place.mark.read_text()
