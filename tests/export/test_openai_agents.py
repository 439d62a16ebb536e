"""The Python file runs as it is, and no text of the agent is code in it."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from grpo_practice.core.types import Experience, Library
from grpo_practice.export.openai_agents import to_python
from tests.programs.library import ANSWER, answering, text
from tests.reports.sample import AGENT, HOSTILE, agent

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
    source = to_python(exported)
    said, made = values(source)
    assert said == exported.system_prompt
    given_ = {word.arg: word.value for word in made.keywords}
    assert ast.literal_eval(given_["name"]) == name
    kinds = [type(node).__name__ for node in ast.parse(source).body]
    assert kinds == [*["Import"] * 2, *["ImportFrom"] * 2, "Expr", *["Assign"] * 2, "If"]


RUN = """
import json, os, runpy, sys
known = dict(os.environ)
for path, words, env in json.load(sys.stdin):
    os.environ.clear()
    os.environ.update(known | env)
    sys.argv = [path, *words]
    runpy.run_path(path, run_name="__main__")
    print(end="\\0")
"""
"""Runs files one after the other: a process that imports the SDK takes two seconds."""

Run = tuple[str, list[str], dict[str, str]]


def ran(folder: Path, *runs: Run) -> list[str]:
    """Return what each source prints, given words and variables; it knows no other key."""
    paths = [folder / f"agent{n}.py" for n in range(len(runs))]
    for path, (source, *_) in zip(paths, runs, strict=True):
        path.write_text(source)
    given = [[str(path), *rest] for path, (_, *rest) in zip(paths, runs, strict=True)]
    done = subprocess.run(
        [sys.executable, "-P", "-c", RUN],
        input=json.dumps(given),
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\0")[:-1]


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


@pytest.mark.long
def test_files_run_with_the_sdk_and_send_what_was_measured(tmp_path: Path) -> None:
    with answering(text) as (url, bodies), answering(text) as (other, others):
        shipped = agent(model_settings=SETTINGS, endpoint={"base_url": url}, toolkits={"s": {}})
        source = to_python(shipped)
        here = to_python(agent(model_settings={}, endpoint={"base_url": url}))
        nowhere = to_python(agent(model_settings={}))
        keys = {"AGENT_API_KEY": "k", "OPENAI_API_KEY": "other"}
        environment = {"OPENAI_BASE_URL": other, "OPENAI_API_KEY": "k"}
        printed = ran(
            tmp_path,
            (source, ["What is", "6 times 7?"], {}),
            (here, ["Has its own address?"], keys | {"OPENAI_BASE_URL": other}),
            (nowhere, ["Has none?"], environment),
        )
    assert [out.strip() for out in printed] == [ANSWER] * 3
    assert "its tools are not in this file (s)" in source
    body, second = bodies
    assert body["messages"] == [
        {"role": "system", "content": AGENT.system_prompt},
        {"role": "user", "content": "What is 6 times 7?"},
    ]
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("model-a", 0.3, 99)
    assert (body["reasoning_effort"], body["top_k"]) == ("low", 5)
    assert not {"tools", "tool_choice", "parallel_tool_calls"} & set(body)
    assert second["messages"][1]["content"] == "Has its own address?"
    (third,) = others
    assert third["messages"][1]["content"] == "Has none?"


def test_the_model_is_asked_by_the_api_that_the_agent_has() -> None:
    assert "OpenAIResponsesModel(" in to_python(agent(api="responses"))
    assert "OpenAIChatCompletionsModel(" in to_python(AGENT)


@pytest.mark.parametrize("key", [{}, {"api_key": "${oc.env:MY_KEY}"}])
def test_no_file_takes_a_key_of_yours_to_an_address_of_its_own(key: dict[str, str]) -> None:
    """A database of others names any variable and any host; running the file asks nobody."""
    endpoint = {"base_url": "https://llm.example/v1", **key}
    source = to_python(agent(endpoint=endpoint))
    read = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    assert [node.attr for node in read if node.attr in ("environ", "getenv")] == ["environ"]
    assert 'os.environ.get("AGENT_API_KEY", "none")' in source
    named = "# its config takes the key from MY_KEY; this file takes it from AGENT_API_KEY\n"
    assert (named in source) == bool(key)
    assert "OPENAI_API_KEY" not in source
