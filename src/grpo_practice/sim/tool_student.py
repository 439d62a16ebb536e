"""The simulated student with tools: it explains its approach, calls tools, then answers.

The first turn determines the outcome, exactly as in the same request without tools. The student
adopts the output of its program; results of web tools do not change its answer. In the task
`calls`, it knows the answer, and only its calls of the tool `record` may be wrong.

In tasks of many turns, it thinks at length and reads long results, and reveals its method only
once, in one of three places: in the text of an early turn, in the middle of its thinking, or in the
output of a program. Shortening the conversation may therefore remove the method; careful shortening
removes it less often.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from grpo_practice.sim.questions import MadeQuestion, find
from grpo_practice.sim.request import SimRequest
from grpo_practice.sim.student import guess, letter_for, play, program, way
from grpo_practice.sim.world import World, unit

PYTHON, SEARCH, READ, RECORD = "execute_python_code", "search", "web_qa", "record"
"""Tools that the student knows."""
FEWEST, MOST = 6, 12
"""Range of the number of programs that it runs before it answers."""
IN_WORDS, IN_THOUGHT = 0.4, 0.3
"""Probability that the text or the thinking reveals the method; otherwise a program prints it."""
THOUGHT = (600, 2_400)
"""Range of the number of characters of thinking in a turn."""
ROWS = (60, 180)
"""Range of the number of lines that a program prints, each of about 30 characters."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function call, with its arguments in JSON."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class SimTurn:
    """Text, calls and thinking of one turn."""

    text: str
    calls: tuple[Call, ...] = ()
    thought: str = ""


def works(asked: SimRequest, world: World) -> bool:
    """Return True if the question takes many turns: the task is `tools`, and Python is offered."""
    offered = PYTHON in asked.tools or PYTHON in asked.called
    return world.task == "tools" and offered and find(asked.first.asked) is not None


def work(asked: SimRequest, world: World) -> SimTurn:
    """Return the next turn: the student thinks and runs a program, or gives its answer."""
    first = asked.first
    question = find(first.asked)
    if question is None:
        raise ValueError("there is nothing to work at")
    answer, lines = way(question, first, world)
    calls = FEWEST + int(unit(world.seed, "calls", first.sha) * (MOST - FEWEST + 1))
    if asked.turns >= calls or PYTHON not in asked.tools:
        said = f"Step {asked.turns + 1}: The programs leave no doubt, and I stay with {answer}."
        return SimTurn(f"{said}\n\n\\boxed{{{letter_for(question, answer, asked, world)}}}")
    return _step(question, answer, lines[1:], (asked, first), calls, world)


def _step(
    question: MadeQuestion,
    answer: int | str,
    telling: list[str],
    requests: tuple[SimRequest, SimRequest],
    calls: int,
    world: World,
) -> SimTurn:
    asked, first = requests
    place = unit(world.seed, "place", first.sha)
    late = unit(world.seed, "when", first.sha)
    # In words, the method is in one of the first two turns; otherwise in any turn.
    at = int(late * (2 if place < IN_WORDS else calls))
    now = asked.turns == at
    # Seeded by request and turn, so that repeating a turn gives the same reply.
    rng = Random(f"{world.seed}|work|{first.sha}|{asked.turns}")
    thought = _thought(rng, rng.randint(*THOUGHT))
    said = [f"Step {asked.turns + 1}: I run a program and look at what it prints."]
    printed = None
    if now and place < IN_WORDS:
        said += telling
    elif now and place < IN_WORDS + IN_THOUGHT:
        middle = thought.find("\n", len(thought) // 2) + 1
        thought = "\n".join([thought[:middle].rstrip(), *telling, thought[middle:]])
    elif now:
        said += telling[:-1]
        printed = telling[-1]
    # Only the first program computes the answer; the others just make the conversation longer.
    code = program(question, answer) if not asked.turns else ""
    return SimTurn(
        "\n".join(said), (Call(PYTHON, json.dumps({"code": _code(rng, code, printed)})),), thought
    )


def _thought(rng: Random, chars: int) -> str:
    """Return at least this many characters of thinking that lead nowhere."""
    lines, length = list[str](), 0
    while length < chars:
        a, b = rng.randint(11, 99), rng.randint(11, 99)
        lines.append(f"What about {a} times {b}? That is {a * b}, and it does not settle it yet.")
        length += len(lines[-1])
    return "\n".join(lines)


def _code(rng: Random, first: str, printed: str | None) -> str:
    """Return a program that prints a long table, with an optional line in it or after it."""
    rows, a, b = rng.randint(*ROWS), rng.randint(11, 99), rng.randint(11, 99)
    lines = [first] if first else []
    after = rows if rng.random() < 0.5 else rows // 2
    table = f'print(f"row {{i}}: {{i * {a}}} and {{i * i + {b}}}, checked")'
    lines.append(f"for i in range(1, {rows + 1}):\n    {table}")
    # Split the line, so that it appears only in the output and not in the program.
    if printed is not None:
        word, _, rest = printed.partition(" ")
        lines.append(f'    if i == {after}:\n        print("{word}" + " " + {rest!r})')
    return "\n".join(lines)


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
    known = {PYTHON, SEARCH, READ, RECORD} | {call.name for call in _dictated_calls(asked)}
    return bool(asked.tools & known or asked.results)


def turn(asked: SimRequest, world: World) -> SimTurn:
    """Return the next turn: tool calls while an offered tool is unused, and then the answer."""
    if works(asked, world):
        return work(asked, world)
    question = find(asked.asked)
    if question is not None and world.task == "calls" and RECORD in {*asked.tools, *asked.called}:
        return _recorded(question, asked, world)
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


def _recorded(question: MadeQuestion, asked: SimRequest, world: World) -> SimTurn:
    """Return the right answer, after one right call; after a slip, the call is wrong or made twice.

    Only the calls therefore show which experiences help.
    """
    if asked.turns:
        return SimTurn(f"Step 2: It is recorded.\n\n\\boxed{{{question.answer}}}")
    answer, lines = way(question, asked, world)
    twice = answer == question.slips[1]
    call = _call(RECORD, number=str(question.answer if twice else answer))
    return SimTurn("\n".join(lines), (call, call) if twice else (call,))


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
    calls = []
    for name, given in _TOLD.findall(asked.asked):
        values = _GIVEN.findall(given)
        numbers = {k: int(v) if v.removeprefix("-").isdecimal() else v for k, v in values}
        calls.append(Call(name, json.dumps(numbers)))
    return calls


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
