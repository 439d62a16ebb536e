"""The Python file runs as it is, and no text of the agent is code in it."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grpo_practice.types import Experience, Library
from tests.export.rendered import render
from tests.export.sample import AGENT, HOSTILE, agent
from tests.programs.library import ANSWER, answering, text

TIMEOUT_S = 120


def values(source: str) -> tuple[str, ast.Call]:
    """The instructions, and the call that makes the agent."""
    by_name = {
        node.targets[0].id: node.value
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    }
    assert set(by_name) == {"INSTRUCTIONS", "agent"}
    made = by_name["agent"]
    assert isinstance(made, ast.Call)
    return ast.literal_eval(by_name["INSTRUCTIONS"]), made


@given(name=HOSTILE, instructions=HOSTILE, learnt=st.lists(HOSTILE, min_size=1, max_size=3))
@example('"""', "'''\n\"\"\"\\", ["\\\n')\nimport os\nos.abort()\n# {settings}"])
@example("\n", "{client} %s ${x}", ["# a\rimport os", "\u2028import os"])
def test_no_text_becomes_code(name: str, instructions: str, learnt: list[str]) -> None:
    library = Library(tuple(Experience(n, t) for n, t in enumerate(learnt, 1)), 9, 1)
    exported = agent(name=name, model=name, instructions=instructions, library=library)
    source = render(exported, "openai-agents")
    said, made = values(source)
    assert said == exported.system_prompt
    given_ = {word.arg: word.value for word in made.keywords}
    assert ast.literal_eval(given_["name"]) == name
    kinds = [type(node).__name__ for node in ast.parse(source).body]
    assert kinds == [*["Import"] * 2, *["ImportFrom"] * 2, "Expr", *["Assign"] * 2, "If"]


def ran(source: str, folder: Path, *words: str, **env: str) -> str:
    """What the file prints, in an environment that knows no key but those given."""
    (folder / "agent.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-P", "agent.py", *words],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), **env},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


SETTINGS = {
    "temperature": 0.3,
    "max_tokens": 99,
    "reasoning": {"effort": "low"},
    "extra_body": {"top_k": 5},
    "extra_args": {"timeout": 30},
    "extra_headers": {},
    "tool_choice": "search",
    "parallel_tool_calls": True,
}


def test_it_runs_with_the_sdk_and_sends_what_was_measured(tmp_path: Path) -> None:
    with answering(text) as (url, bodies):
        shipped = agent(model_settings=SETTINGS, endpoint={"base_url": url}, toolkits={"s": {}})
        source = render(shipped, "openai-agents")
        assert ran(source, tmp_path, "What is", "6 times 7?").strip() == ANSWER
    assert "its tools are not in this file (s)" in source
    (body,) = bodies
    assert body["messages"] == [
        {"role": "system", "content": AGENT.system_prompt},
        {"role": "user", "content": "What is 6 times 7?"},
    ]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("model-a", 0.3, 99)
    assert (body["reasoning_effort"], body["top_k"]) == ("low", 5)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)


def test_without_an_address_it_is_asked_where_the_environment_says(tmp_path: Path) -> None:
    with answering(text) as (url, bodies):
        known = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "k"}
        source = render(agent(model_settings={}), "openai-agents")
        assert ran(source, tmp_path, "Well?", **known).strip() == ANSWER
    assert len(bodies) == 1


@pytest.mark.parametrize("key", [{}, {"api_key": "${oc.env:MY_KEY}"}])
def test_no_file_takes_a_key_of_yours_to_an_address_of_its_own(key: dict[str, str]) -> None:
    """A database of others names any variable and any host; running the file asks nobody."""
    endpoint = {"base_url": "https://llm.example/v1", **key}
    source = render(agent(endpoint=endpoint), "openai-agents")
    read = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    assert [node.attr for node in read if node.attr in ("environ", "getenv")] == ["environ"]
    assert 'os.environ.get("AGENT_API_KEY", "none")' in source
    named = "# its config has the key in MY_KEY; this file takes it from AGENT_API_KEY\n"
    assert (named in source) == bool(key)
    assert "OPENAI_API_KEY" not in source


def test_the_key_for_its_address_is_sent_there(tmp_path: Path) -> None:
    with answering(text) as (url, bodies):
        source = render(agent(model_settings={}, endpoint={"base_url": url}), "openai-agents")
        env = {"AGENT_API_KEY": "k", "OPENAI_API_KEY": "other"}
        assert ran(source, tmp_path, "Well?", **env).strip() == ANSWER
    assert len(bodies) == 1
