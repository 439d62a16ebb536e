"""The usual ways work, with at most one question ever."""

import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.contract.hostile.data import PRACTICE
from tests.contract.hostile.place import Place
from tests.contract.hostile.planted import KEY

CONFIGS = Path(__file__).parents[3] / "configs"
FLAG = re.compile(r"--trust(?:-host)? \S+")


def questions(place: Place, *commands: Sequence[str]) -> int:
    """Type the commands, giving the word that is asked for; return how often one was."""
    asked = 0
    for words in commands:
        outcome = place.type(*words)
        if outcome.code == 2 and (flag := FLAG.search(" ".join(outcome.shown.split()))):
            asked += 1
            outcome = place.type(*words, *shlex.split(flag[0]))
        assert outcome.code == 0, outcome.shown
        assert not outcome.left, outcome.shown
    return asked


EVAL = ("eval", "--config", "own.yaml")
AGAIN = (
    EVAL,
    ("eval",),
    ("eval", "--restart-step", "0"),
    ("practice", "--config", "p.yaml"),
    ("practice", "--restart-step", "0"),
    ("export-agent", "--run", "mine", "-o", "enhanced.yaml"),
    ("eval", "--config", "own.yaml", "--agent", "enhanced.yaml"),
    ("serve", "--agent", "enhanced.yaml", "--port", "0"),
    ("doctor", "--config", "own.yaml"),
    ("doctor",),
    ("config", "show"),
    ("eval", "--rejudge", "--run", "own/eval", "--verify", "contains"),
)


@pytest.fixture
def own(place: Place) -> Place:
    """The user's own folder, with nothing of the model in the environment."""
    place.put("p.yaml", PRACTICE.replace(", prompts_dir: @PROMPTS@", ", max_failed_share: 1.0"))
    for name in ("UTU_LLM_BASE_URL", "UTU_LLM_API_KEY", "UTU_LLM_MODEL"):
        del place.env[name]
    place.good.says = "4"
    return place


def in_dotenv(place: Place) -> None:
    text = f"UTU_LLM_MODEL=m\nUTU_LLM_BASE_URL=@GOOD@/v1\nUTU_LLM_API_KEY={KEY}\n"
    place.put(".env", text).chmod(0o600)


def in_process(place: Place) -> None:
    at = {"MODEL": "m", "BASE_URL": f"{place.good.origin}/v1", "API_KEY": KEY}
    place.env |= {f"UTU_LLM_{name}": value for name, value in at.items()}


def in_config(place: Place) -> None:
    place.env["OPENAI_API_KEY"] = KEY
    provider = "{model: m, base_url: '@GOOD@/v1', api_key: '${oc.env:OPENAI_API_KEY}'}"
    at = f"model: {{model_provider: {provider}}}"
    for name in ("own.yaml", "p.yaml"):
        text = (place.folder / name).read_text()
        place.put(name, text.replace("agent: {agent: {", f"agent: {{{at}, agent: {{"))


@pytest.mark.long_after(1)
@pytest.mark.parametrize("way", [in_dotenv, in_process])
def test_url_and_key_in_one_place_need_no_question(
    own: Place, way: Callable[[Place], None]
) -> None:
    way(own)
    assert questions(own, EVAL) == 0
    assert KEY.encode() in own.good.whole
    assert questions(own, *AGAIN) == 0


@pytest.mark.long
def test_a_variable_beside_a_url_needs_one_question_at_most(own: Place) -> None:
    in_config(own)
    assert questions(own, *AGAIN) <= 1
    assert "@GOOD@" not in (exported := (own.folder / "enhanced.yaml").read_text())
    assert own.good.origin in exported


REFERENCE = """
# @package _global_
defaults:
  - /model/base@model
  - /tools/search@toolkits.search
  - _self_
agent: {name: searcher, instructions: Answer.}
toolkits: {search: {activated_tools: [search]}}
"""
PROVIDER = """
agent: {name: solver, instructions: Answer.}
model:
  model_provider:
    type: ${oc.env:UTU_LLM_TYPE}
    model: ${oc.env:UTU_LLM_MODEL}
    base_url: ${oc.env:UTU_LLM_BASE_URL}
    api_key: ${oc.env:UTU_LLM_API_KEY}
  model_settings: {temperature: 0.3, extra_args: {timeout: 3000}}
"""


@pytest.mark.long_after(1)
@pytest.mark.parametrize("way", [in_dotenv, in_process])
def test_agent_files_of_the_reference_load_unchanged(
    own: Place, way: Callable[[Place], None]
) -> None:
    way(own)
    own.put("provider.yaml", PROVIDER)
    own.put("reference.yaml", REFERENCE)
    shipped = sorted((CONFIGS / "agents" / "practice").glob("*.yaml"))
    assert shipped
    files = ["provider.yaml", *map(str, shipped)]
    data = ("--dataset", "mine.jsonl", "--verify", "exact")
    for n, file in enumerate(files):
        assert (
            questions(own, ("eval", "--agent", file, *data, "--exp-id", f"e{n}", "--dry-run")) == 0
        )
        assert questions(own, ("serve", "--agent", file, "--port", "0")) == 0
    assert questions(own, ("eval", "--agent", "provider.yaml", *data)) == 0


def test_a_project_of_init_needs_no_question(own: Place) -> None:
    assert own.type("init", "fresh").code == 0
    own.folder = own.folder / "fresh"
    in_dotenv(own)
    own.good.says = "4 <lessons></lessons>"  # doctor asks the teacher for a comparison
    commands = (
        ("data", "upload", "mine.jsonl", "--name", "mine", "--verify", "exact"),
        ("data", "split", "mine", "--into", "train=0.5,test=0.5"),
        ("eval", "--config", "practice.yaml", "--limit", "1"),
        ("eval", "--config", "practice.yaml"),
        ("doctor", "--config", "practice.yaml"),
        ("eval",),
    )
    assert questions(own, *commands) == 0


@pytest.mark.long_after(1)
@pytest.mark.parametrize("way", [in_dotenv, in_process, in_config])
def test_where_a_key_goes_is_one_line_said_where_something_is_sent(
    own: Place, way: Callable[[Place], None]
) -> None:
    way(own)
    for words in (EVAL, ("practice", "--config", "p.yaml")):
        first, again = own.type(*words), own.type(*words)
        (line,) = [text for text in first.shown.splitlines() if own.good.origin in text]
        assert "API_KEY" in line
        assert len(line) <= 80
        assert line in first.before  # and so before the first request
        assert (again.code, " goes to " in again.shown) == (0, False)
        assert line in own.type(*words, "--dry-run").shown
    # The address is not new in this run.
    assert " goes to " not in own.type(*EVAL, "--restart-step", "0").shown
