"""The simulated student for tasks of many turns: it thinks at length and reads long results.

As everywhere, the first turn determines the outcome. The student reveals its method only once, in
one of three places: in the text of an early turn, in the middle of its thinking, or in the output
of a program. Shortening the conversation may therefore remove the method; careful shortening
removes it less often.
"""

import json
from dataclasses import dataclass
from random import Random

from grpo_practice.sim.options import letter_for
from grpo_practice.sim.questions import MadeQuestion, find
from grpo_practice.sim.request import SimRequest
from grpo_practice.sim.student import program, way
from grpo_practice.sim.world import World, unit

PYTHON, SEARCH, READ = "execute_python_code", "search", "web_qa"
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
