"""Programs of the user's own, case by case: what one returns, prints, asks or breaks."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from tests.contract.own import Own
from tests.contract.own_cases import PROGRAM
from tests.contract.project import Said, served

TOOL_CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ERRORS: dict[str, Said] = {
    "422": (422, {"error": {"message": "odd"}}),
    "overflow": (400, {"error": {"code": "context_length_exceeded", "message": "too long"}}),
    "filter": (400, {"error": {"code": "content_filter", "message": "not that"}}),
}


def model(n: int, body: dict[str, Any]) -> Said:
    """Answer as the last message asks."""
    last = body["messages"][-1]
    text = last["content"]
    if text in ERRORS:
        return ERRORS[text]
    message: dict[str, Any] = {"role": "assistant", "content": "half"}
    if last["role"] == "tool":
        message["content"] = "42"
    elif text == "tool":
        message |= {"content": None, "tool_calls": [TOOL_CALL]}
    elif text == "long":
        message["content"] = "word " * 300
    elif text == "seed":
        message["content"] = f"{body['seed']}"
    finish = "tool_calls" if message.get("tool_calls") else "stop"
    choice = {"index": 0, "message": message, "finish_reason": finish}
    usage = {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3}
    return 200, {"model": "m", "choices": [choice], "usage": usage}


Row = tuple[str, str]
ANYWHERE: dict[str, Row] = {
    "given": ("ok", "given True sim 0 True"),
    "two_turns": ("ok", "half half"),
    "streams": ("ok", "True"),
    "models": ("ok", "sim"),
    "told": ("ok", "422:None 400:context_length_exceeded 400:content_filter"),
    "guesses": ("ok", "8"),
    "refused_words": ("ok", "True True True"),
    "resamples": ("ok", "4"),
    "own_settings": ("ok", "half"),
    "tools": ("ok", "42"),
    "lost": ("error.provider", "odd"),
    "overflow": ("context_overflow", "too long"),
    "filtered": ("content_filter", "not that"),
    "lost_but_answers": ("error.provider", "odd"),
    "lost_then_raises": ("error.agent", "KeyError"),
    "nothing": ("empty", ""),
    "blank": ("empty", ""),
    "thinks": ("truncated", ""),
    "number": ("error.agent", "int, not text"),
    "long": ("ok", "x" * (2**20 - 100)),
}
"""Case → outcome, and the answer or a part of the error, wherever the program runs."""
IN_PYTHON: dict[str, Row] = {
    "floods": ("error.agent", "mine.py:{name} returned more than 1,024 KiB"),
    "number": ("error.agent", "mine.py:{name} returned int, not text"),
    "raises": ("error.agent", "mine.py:{name} raised KeyError at mine.py:"),
    "leaves": ("error.agent", "mine.py:{name} raised SystemExit at mine.py:"),
    "surrogate": ("error.agent", "raised ValueError at mine.py:"),
    "own_text": ("ok", "mine"),
    "own_error": ("error.agent", "raised Odd at mine.py:"),
}
IN_A_WORKER: dict[str, Row] = {
    "exits": ("error.agent", "the process of mine.py:solve ended with exit code 3"),
    "killed": ("error.agent", "was terminated by SIGKILL (it may have run out of memory"),
    "crashes": ("error.agent", "was terminated by SIGSEGV"),
    "prints": ("error.agent", "printed more than 1,024 KiB"),
    "forks": ("ok", "the parent"),
    "pools": ("ok", "[1, 2]"),
    "writes": ("ok", "utf-8"),
    "environment": ("ok", "[]"),
}
IN_A_COMMAND: dict[str, Row] = {
    "floods": ("error.agent", "printed more than 1,024 KiB"),
    "raises": ("error.agent", "ended with exit code 1: "),
    "leaves": ("error.agent", "ended with exit code 3"),
    "exits": ("error.agent", "ended with exit code 3"),
    "killed": ("error.agent", "was terminated by SIGKILL"),
    "prints": ("error.agent", "printed more than 1,024 KiB"),
    "environment": ("ok", "[]"),
    "folder": ("ok", "True"),
    "raw_last": ("ok", "é 42"),
    "raw_lines": ("ok", "42"),
    "raw_null": ("empty", ""),
    "raw_number": ("error.agent", 'printed JSON without "answer"'),
    "raw_word": ("error.agent", 'printed forty-two, not {{"answer": "…"}}'),
    "raw_nothing": ("error.agent", "printed nothing, not"),
    "raw_int": ("error.agent", "printed the answer int, not text"),
    "raw_deep": ("error.agent", "not {{"),
    "raw_bytes": ("error.agent", "not {{"),
    "complains": ("error.agent", "ended with exit code 3: xxx"),
}
PYTHON = "agent.type=python"
PLACES: dict[str, tuple[list[str], dict[str, Row]]] = {
    "thread": ([PYTHON, "agent.function=mine.py:solve", "agent.workers=0"], IN_PYTHON),
    "loop": ([PYTHON, "agent.function=mine.py:on_loop"], IN_PYTHON),
    "workers": ([PYTHON, "agent.function=mine.py:solve"], IN_PYTHON | IN_A_WORKER),
    "command": (["agent.type=command", f"agent.command=[{sys.executable}, mine.py]"], IN_A_COMMAND),
}


# The programs leave their clients open, as users do; the interpreter closes them at some time.
@pytest.mark.long
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
async def test_each_case_ends_as_it_should_wherever_it_runs(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UTU_LLM_API_KEY", "sk-canary")
    project = Own(tmp_path)
    (project.folder / "mine.py").write_text(PROGRAM, "utf-8")
    overrides, own = PLACES[place]
    few = ("given", "two_turns", "nothing", "number", "long", "own_settings", "tools")
    rows = {case: ANYWHERE[case] for case in (few if place == "command" else ANYWHERE)} | own
    # So many that end well that the others are no reason to stop.
    questions = [
        *rows,
        *(f"given {n}" for n in range(4 * sum("error" in row[0] for row in rows.values()))),
    ]
    Workspace(project.db).datasets.upload(
        "cases", [{"question": question, "answer": "42"} for question in questions]
    )
    configured = "agent.model.model_settings={temperature: 0.7, max_tokens: 5, top_p: 1.0}"
    settings = (configured, "verify=exact", "concurrency=4")
    async with served(model) as endpoint:
        key = endpoint.override().removeprefix("evaluation.")
        await project.evaluate(*overrides, key, *settings, "data.dataset=cases")
    found = {
        question: (outcome if not reason else f"{outcome}.{reason}", said or "", turns, tools)
        for question, outcome, reason, said, turns, tools in project.query(
            """SELECT question, outcome, reason, coalesce(error, response), turns, tool_calls
                 FROM v_rollouts JOIN rollout_bodies USING (rollout_id)
                 JOIN samples USING (sample_id)"""
        )
    }
    name = "on_loop" if place == "loop" else "solve"
    misses = {
        case: (want, found[case][0], found[case][1][:300])
        for case, want in rows.items()
        if found[case][0] != want[0]
        or (want[0] == "ok" and found[case][1] != want[1])
        or want[1].format(name=name) not in found[case][1]
        or len(found[case][1]) > 2_600 > len(want[1])
    }
    assert not misses
    assert (found["two_turns"][2], found["tools"][2:]) == (2, (2, 1))
    assert not (project.folder / "ran").exists(), "no code of a program is run here"
    (told,) = [text for text in project.notices if "sends its own" in text]
    for said in ("temperature 0.1 (configured: 0.7)", "model 'gpt-x' (configured: 'sim')"):
        assert said in told
    assert not re.search("max_tokens|top_p|stop", told), "equal, or not configured: no news"
    assert "docs/agents.md" in told
    shown = {
        one.document()["question"]: [message["role"] for message in one.document()["transcript"]]
        for one in Workspace(project.db).rollouts("toy/eval")
    }
    assert shown["tools"] == ["user", "assistant", "tool", "assistant"]
    assert json.dumps(endpoint.bodies).count("gp-rollout-") == 0
    assert os.environ["UTU_LLM_API_KEY"] == "sk-canary"
