import re
from pathlib import Path

import pytest

from grpo_practice.config.reading.env import read_environment
from grpo_practice.config.reading.load import load_eval
from grpo_practice.config.trust.word import Trust
from grpo_practice.core.errors import ConfigError
from tests.config.files import write


def test_only_known_names_are_loaded_and_the_process_wins(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {
            ".env": "UTU_LLM_MODEL=file\nexport JUDGE_LLM_MODEL='j'\nHF_TOKEN=h\nPATH=/evil\n"
            "LD_PRELOAD=/evil.so\nOPENAI_API_KEY=k${PATH}\n"
        },
    )
    path.chmod(0o600)
    env = read_environment({"UTU_LLM_MODEL": "process", "PATH": "/bin"}, tmp_path)
    assert env["UTU_LLM_MODEL"] == "process"
    assert env["PATH"] == "/bin"
    assert "LD_PRELOAD" not in env
    assert env["OPENAI_API_KEY"] == "k${PATH}"
    assert (env.origin("UTU_LLM_MODEL"), env.origin("HF_TOKEN")) == ("the environment", str(path))
    assert len(env.notices) == 1
    assert "PATH, LD_PRELOAD" in env.notices[0]


@pytest.mark.parametrize(("mode", "warned"), [(0o600, False), (0o640, True), (0o604, True)])
def test_a_file_others_can_read_is_pointed_out(tmp_path: Path, mode: int, warned: bool) -> None:
    path = write(tmp_path, {".env": "UTU_LLM_API_KEY=k\n"})
    path.chmod(mode)
    assert any("chmod 600" in n for n in read_environment({}, tmp_path).notices) is warned


@pytest.mark.parametrize("marker", ["pyproject.toml", ".git/HEAD"])
def test_the_search_ends_at_the_root_of_the_project(tmp_path: Path, marker: str) -> None:
    write(tmp_path, {".env": "UTU_LLM_MODEL=outside\n", f"repo/{marker}": "", "repo/a/b/f": ""})
    below = tmp_path / "repo" / "a" / "b"
    assert dict(read_environment({}, below)) == {}
    write(tmp_path / "repo", {".env": "UTU_LLM_MODEL=inside\n"})
    assert read_environment({}, below)["UTU_LLM_MODEL"] == "inside"


def test_without_a_project_only_this_folder_is_read(tmp_path: Path) -> None:
    write(tmp_path, {".env": "UTU_LLM_MODEL=above\n", "a/f": ""})
    assert dict(read_environment({}, tmp_path / "a")) == {}
    assert read_environment({}, tmp_path)["UTU_LLM_MODEL"] == "above"


def test_a_file_that_is_not_text_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"UTU_LLM_MODEL=\xff\n")
    with pytest.raises(ConfigError, match=r"cannot read .*\.env"):
        read_environment({}, tmp_path)


DOTENV = (
    "UTU_LLM_MODEL=m-1\nUTU_LLM_BASE_URL=http://127.0.0.1:9/v1\nUTU_LLM_API_KEY=sk-1234567890\n"
)
WORDS = ["data.dataset=d", "verify=exact"]


@pytest.mark.parametrize(
    ("name", "line"), [("UTU_LLM_MODEL", 1), ("UTU_LLM_BASE_URL", 2), ("UTU_LLM_API_KEY", 3)]
)
def test_a_variable_that_is_empty_in_the_environment_is_named_as_what_hides_the_file(
    tmp_path: Path, name: str, line: int
) -> None:
    (tmp_path / ".env").write_text(DOTENV)
    env = read_environment({name: ""}, tmp_path, trust=Trust())
    said = f"{name} is empty in the environment, which overrides {tmp_path}/.env:{line}"
    assert any(said in notice for notice in env.notices)
    if name != "UTU_LLM_API_KEY":  # without a key the endpoint may answer
        with pytest.raises(ConfigError) as caught:
            load_eval(None, WORDS, env)
        assert caught.value.hint == f"{said}: unset {name}"
    unset = read_environment({}, tmp_path, trust=Trust())
    assert not any("is empty" in notice for notice in unset.notices)
    assert load_eval(None, WORDS, unset).config.student.model_provider.model == "m-1"


@pytest.mark.parametrize("moved", ["UTU_LLM_BASE_URL", "UTU_LLM_API_KEY"])
def test_a_url_and_a_key_of_two_places_are_refused_with_both_ways_out(
    tmp_path: Path, moved: str
) -> None:
    values = dict(line.split("=", 1) for line in DOTENV.splitlines())
    process = {moved: values[moved]}
    (tmp_path / ".env").write_text(
        "".join(f"{name}={value}\n" for name, value in values.items() if name != moved)
    )
    env = read_environment(process, tmp_path, trust=Trust())
    with pytest.raises(ConfigError, match="is named elsewhere") as caught:
        load_eval(None, WORDS, env)
    hint = "grpo-practice trust --host 127.0.0.1:9 --key UTU_LLM_API_KEY"
    assert caught.value.hint == hint
    (name,) = re.findall(r"; or set (\w+) in the environment too$", str(caught.value))
    both = read_environment(process | {name: values[name]}, tmp_path, trust=Trust())
    assert load_eval(None, WORDS, both).config.student.model_provider.key == "sk-1234567890"
