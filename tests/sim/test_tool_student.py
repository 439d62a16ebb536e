"""Tasks that take many turns: what is said, where, and how long it all gets."""

import json
import re
from collections import Counter
from functools import cache

import pytest

from grpo_practice.core.prompts.files import FINAL
from grpo_practice.llm.sim import encode
from grpo_practice.sim import World, answer
from grpo_practice.sim.questions import questions
from tests.sim.agents import Played, Tool, play, run_code
from tests.sim.stages import EMPTY, INSTRUCTIONS, ask, reward, transcript_text
from tests.sim.stages import play as play_plainly

WORLD = World(task="tools")
PYTHON: dict[str, Tool] = {"execute_python_code": run_code}
SAMPLES = questions(40, 0, "tools")
METHOD = re.compile(r"Method [a-z]+-[0-9a-f]+: [^.\n\\]+\.")


@cache
def runs() -> list[tuple[str, int, Played]]:
    return [
        (s.question, seed, play(s.question, PYTHON, seed=seed, world=WORLD, system=INSTRUCTIONS))
        for s in SAMPLES
        for seed in range(5)
    ]


@pytest.mark.long
def test_a_run_takes_many_turns_and_ends_with_the_answer_it_had_from_the_start() -> None:
    calls = [len(played.calls) for _, _, played in runs()]
    assert (min(calls), max(calls)) == (6, 12)
    for question, seed, played in runs():
        plain = play_plainly(question, EMPTY, seed)
        assert played.answer.rpartition("{")[2] == plain.rpartition("{")[2]
        assert not METHOD.search(played.answer)


@pytest.mark.long
def test_the_conversations_of_a_group_are_long() -> None:
    texts = [len(transcript_text(played.messages)) for _, _, played in runs()]
    groups = [sum(texts[i : i + 5]) for i in range(0, len(texts), 5)]
    assert min(groups) > 100_000
    assert max(groups) < 500_000
    results = [len(m["content"]) for _, _, p in runs() for m in p.messages if m["role"] == "tool"]
    assert min(results) > 1_000
    assert (
        max(len(m.get("reasoning_content", "")) for _, _, p in runs() for m in p.messages) > 2_000
    )


@pytest.mark.long
def test_the_telling_line_stands_once_in_words_thoughts_or_results() -> None:
    places = dict.fromkeys(("content", "reasoning_content", "tool"), 0)
    for _, _, played in runs():
        found = [
            "tool" if message["role"] == "tool" else part
            for message in played.messages
            for part in ("content", "reasoning_content")
            if METHOD.search(message.get(part) or "")
        ]
        assert len(found) == 1, "and not in the program that prints it"
        places[found[0]] += 1
        arguments = [given["code"] for _, given in played.calls]
        assert not any(METHOD.search(code) for code in arguments)
    assert all(count > 0.2 * len(runs()) for count in places.values())


def test_it_is_as_often_right_as_without_tools() -> None:
    rights = [(reward(q, p.answer), reward(q, play_plainly(q, EMPTY, s))) for q, s, p in runs()]
    assert all(worked == plain for worked, plain in rights)
    assert 0.3 < sum(worked for worked, _ in rights) / len(rights) < 0.8


def test_out_of_turns_it_answers_at_once() -> None:
    _, seed, played = runs()[0]
    cut = [*played.messages[:6], {"role": "user", "content": FINAL}]
    assert ask(cut, seed, WORLD).rpartition("{")[2] == played.answer.rpartition("{")[2]


def test_thinking_counts_as_tokens_and_is_cut_first() -> None:
    tools = [{"type": "function", "function": {"name": "execute_python_code"}}]
    body = {"messages": [{"role": "user", "content": SAMPLES[0].question}], "tools": tools}
    message = answer(body, WORLD)["choices"][0]["message"]
    cut = answer({**body, "max_tokens": 40}, WORLD)
    assert cut["choices"][0] == {
        "index": 0,
        "message": {
            "role": "assistant",
            "content": "",
            "reasoning_content": message["reasoning_content"][:160],
        },
        "finish_reason": "length",
    }
    assert cut["usage"]["completion_tokens"] == 40


def test_without_a_tool_or_a_question_it_is_played_as_ever() -> None:
    question = SAMPLES[0].question
    assert play_plainly(question, EMPTY, 3, WORLD) == play_plainly(question, EMPTY, 3)
    told = play("Who wrote 12 books in 3 years?", PYTHON, world=WORLD)
    assert "I guess" in told.answer


def test_a_stream_tells_the_thinking_too() -> None:
    tools = [{"type": "function", "function": {"name": "execute_python_code"}}]
    messages = [{"role": "user", "content": SAMPLES[0].question}]
    body = {"messages": messages, "tools": tools, "stream": True}
    told = answer(body, WORLD)
    kind, raw = encode(json.dumps(body).encode(), told)
    events = [json.loads(e[6:]) for e in raw.decode().split("\n\n") if e.startswith("data: {")]
    deltas = [event["choices"][0]["delta"] for event in events]
    whole = told["choices"][0]["message"]
    assert kind.startswith("text/event-stream")
    for part in ("reasoning_content", "content"):
        assert "".join(delta.get(part) or "" for delta in deltas) == whole[part]


def test_a_recorded_answer_is_right_and_only_the_calls_may_be_wrong() -> None:
    world, kinds = World(task="calls"), Counter[str]()
    tools: dict[str, Tool] = {"record": lambda number: "recorded"}
    for sample in SAMPLES:
        for seed in range(3):
            played = play(sample.question, tools, seed=seed, world=world, system=INSTRUCTIONS)
            assert reward(sample.question, played.answer) == 1
            right = [given["number"] == str(sample.answer) for _, given in played.calls]
            kinds[{(True,): "right", (False,): "wrong", (True, True): "twice"}[*right]] += 1
            plain = reward(sample.question, play_plainly(sample.question, EMPTY, seed))
            assert (right == [True]) == (plain == 1)
    assert min(kinds.values()) > 10
    assert len(kinds) == 3
