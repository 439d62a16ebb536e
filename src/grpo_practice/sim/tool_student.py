"""The simulated student with tools: it explains its approach, calls tools, then answers.

The first turn determines the outcome, exactly as in the same request without tools. The student
adopts the output of its program; results of web tools do not change its answer.
"""

import json
import re
from collections.abc import Iterator

from grpo_practice.sim.options import letter_for
from grpo_practice.sim.questions import MadeQuestion, find
from grpo_practice.sim.request import SimRequest
from grpo_practice.sim.student import guess, play, program, way
from grpo_practice.sim.work import PYTHON, READ, SEARCH, Call, SimTurn, work, works
from grpo_practice.sim.world import World, unit

TWICE = 0.25
"""Probability that a turn makes two calls."""

_EXPECTED = re.compile(r"In my head that comes to (-?\w+)\.")
_PRINTED = re.compile(r"^\s*(-?\d+)\s*$", re.MULTILINE)
_LINK = re.compile(r"https?://[^\s<>\"'`)\]}]+")
_NUMBER = re.compile(r"\d{1,9}")
_TOLD = re.compile(r"\bCall the tool `(\w+)`(?: with ([^\n.]*))?")
_GIVEN = re.compile(r"(\w+)=([\w-]+)")


def plays_with_tools(asked: SimRequest) -> bool:
    """Return True if the request offers a tool that the student knows, or has a tool's result."""
    known = {PYTHON, SEARCH, READ} | {call.name for call in _dictated_calls(asked)}
    return bool(asked.tools & known or asked.results)


def turn(asked: SimRequest, world: World) -> SimTurn:
    """Return the next turn: tool calls while an offered tool is unused, and then the answer."""
    if works(asked, world):
        return work(asked, world)
    question = find(asked.asked)
    calls = tuple(_calls(question, asked, world))
    if not calls:
        return SimTurn(_answer(asked, world))
    twice = asked.parallel and unit(world.seed, "twice", asked.sha) < TWICE
    # The method is stated once, in the first turn.
    if asked.called:
        said = ""
    elif question is None:
        said = "Step 1: I do not know this kind of question, so I look around."
    else:
        answer, lines = way(question, asked, world)
        said = "\n".join([*lines, f"Step 2: In my head that comes to {answer}. I check it."])
    return SimTurn(said, calls[: 1 + twice])


def _calls(question: MadeQuestion | None, asked: SimRequest, world: World) -> Iterator[Call]:
    """Yield the calls that are possible now; the first one is always made."""
    wanted = question.text if question else asked.asked[:200]
    yield from (
        c for c in _dictated_calls(asked) if c.name in asked.tools and c.name not in asked.called
    )
    if PYTHON in asked.tools and PYTHON not in asked.called:
        yield from (_call(PYTHON, code=code) for code in _programs(question, asked, world))
    elif SEARCH in asked.tools and SEARCH not in asked.called:
        yield _call(SEARCH, query=wanted)
        yield _call(SEARCH, query=f"how to: {wanted}")
    elif READ in asked.tools and READ not in asked.called:
        links = dict.fromkeys(_LINK.findall("\n".join(asked.results)))
        yield from (_call(READ, url=link.rstrip(".,;"), query=wanted) for link in links)


def _dictated_calls(asked: SimRequest) -> list[Call]:
    """Return the calls that the prompt dictates, as in: Call the tool `add` with a=2, b=2."""
    return [
        Call(name, json.dumps({k: _value(v) for k, v in _GIVEN.findall(given)}))
        for name, given in _TOLD.findall(asked.asked)
    ]


def _value(text: str) -> int | str:
    return int(text) if text.removeprefix("-").isdecimal() else text


def _call(name: str, **arguments: str) -> Call:
    return Call(name, json.dumps(arguments, ensure_ascii=False))


def _programs(question: MadeQuestion | None, asked: SimRequest, world: World) -> list[str]:
    # At most six, to keep programs short for long foreign questions.
    numbers = _NUMBER.findall(question.text if question else asked.asked)[:6]
    look = f"print(sorted([{', '.join(str(int(n)) for n in numbers)}]))"
    if question is None:
        return [f"print({' + '.join(str(int(n)) for n in numbers) or guess(asked, world)})", look]
    return [program(question, way(question, asked, world)[0]), look]


def _answer(asked: SimRequest, world: World) -> str:
    """Return the text of the last turn; a complete solution if the first turn is missing."""
    expected = _EXPECTED.findall(asked.said)
    if not expected:
        return play(asked, world)
    printed = _PRINTED.findall(asked.results[0]) if PYTHON in asked.called and asked.results else []
    answer = (printed or expected)[-1]
    told = f"The program prints {answer}." if printed else f"I stay with {answer}."
    letter = letter_for(find(asked.asked), answer, asked, world)
    return f"Step 3: {told}\n\n\\boxed{{{letter}}}"
