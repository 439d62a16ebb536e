"""`trust`: hosts by command, and the list of what is trusted."""

import json
import re
import shlex

import pytest

from tests.contract.hostile.place import Place
from tests.contract.hostile.test_trust import EVAL, OWN_EVAL, by_env, program, sent

__all__ = ["by_env", "program"]


def test_the_way_to_trust_a_host_is_typed_as_it_stands(by_env: Place) -> None:
    shown = by_env.type(*OWN_EVAL).shown
    (command,) = re.findall("^hint: (grpo-practice trust --host .*)$", shown, re.MULTILINE)
    assert by_env.type(*shlex.split(command)[1:]).code == 0
    outcome = by_env.type(*OWN_EVAL)
    assert outcome.code == 0, outcome.shown
    assert sent(by_env)
    listed = by_env.type("trust").shown
    assert f"host  http://127.0.0.1:{by_env.evil.port} for UTU_LLM_API_KEY" in listed


@pytest.mark.parametrize(
    ("typed", "host"),
    [
        ("api.example.com", "https://api.example.com"),
        ("localhost:8000", "http://localhost:8000"),
        ("http://10.0.0.1:80", "http://10.0.0.1"),
    ],
)
def test_a_host_may_be_typed_without_its_scheme(place: Place, typed: str, host: str) -> None:
    for _ in range(2):
        shown = place.type("trust", "--host", typed, "--key", "K_API_KEY").shown
        assert shown.count(f"{host} for K_API_KEY") == 1


@pytest.mark.parametrize(
    "words", [["--host", "a.b"], ["--key", "K"], ["--host", "http://[::1", "--key", "K"]]
)
def test_a_host_without_a_key_or_that_is_none_is_refused(place: Place, words: list[str]) -> None:
    assert place.type("trust", *words).code == 2
    assert "no files from other people" in place.type("trust").shown


@pytest.mark.long
def test_what_is_trusted_is_listed_once_each_and_own_runs_are_counted(program: Place) -> None:
    path = program.folder / "agent.yaml"
    for text in ("./run", "./run --changed"):
        path.write_text(path.read_text().replace("./run", text))
        assert "run" in program.type(*EVAL, "--restart-step", "0", "--trust", "agent.yaml").ran
    text = (program.folder / "own.yaml").read_text()
    for name in "ab":
        own = f"type: command, command: [./run], agent: {{name: {name}, instructions"
        program.put("own.yaml", text.replace("agent: {name: mine, instructions", own))
        program.type("eval", "--config", "own.yaml")
    shown = program.type("trust").shown
    assert shown.count(str(path)) == 1
    assert "  own   2 configs of your own runs and exports\n" in shown
    assert len(json.loads(program.type("trust", "--json").shown)["trusted"]) == 4


def test_a_run_of_ones_own_is_remembered_as_that(program: Place) -> None:
    place = program
    own = "type: command, command: [./run], agent: {"
    text = (place.folder / "own.yaml").read_text().replace("agent: {agent: {", f"agent: {{{own}")
    place.put("own.yaml", text)
    place.type("eval", "--config", "own.yaml")
    shown = place.type("trust").shown
    assert "  own  1 config of your own runs and exports" in shown
    assert "own.yaml" not in shown
