"""A simulated endpoint that acts as student, teacher and judge, and uses only the request.

Replies do not depend on order or time: the same messages with the same `seed` get the same reply.
In a world with drift, replies also depend on the number of requests answered before, which the
transports count. Lessons from this endpoint do not apply to real models; they show that the
machinery works.
"""

import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from grpo_practice.core.stages import Stage
from grpo_practice.core.text import CHARS_PER_TOKEN
from grpo_practice.sim.merge_teacher import merge, propose, write_directly
from grpo_practice.sim.questions import solve
from grpo_practice.sim.request import SimRequest, read
from grpo_practice.sim.student import play, request_fails
from grpo_practice.sim.teacher import compare, summarise
from grpo_practice.sim.teacher_prompts import stage_of as stage_shown
from grpo_practice.sim.tool_student import SimTurn, plays_with_tools, turn
from grpo_practice.sim.world import World

__all__ = ["DEFAULT", "MODEL", "World", "answer", "fails", "stage_of"]

MODEL = "sim"
DEFAULT = World()

VOICES: Mapping[Stage, Callable[[SimRequest, World], str]] = {
    "play": play,
    "summarise": summarise,
    "compare": compare,
    "propose": propose,
    "merge": merge,
    "direct": write_directly,
    "judge": lambda asked, _world: grade(asked),
    "tool": lambda asked, _world: read_page(asked),
}
"""Function that writes the reply for each stage."""


def answer(body: Any, world: World = DEFAULT, served: int = 0) -> dict[str, Any]:
    """Return the chat completion object for the JSON body of a request.

    `served` is the number of requests answered before.

    Raises:
        ValueError: The body is not a chat request; the message gives the reason.
    """
    asked = read(body, served)
    said = _reply(asked, world)
    most = None if asked.max_tokens is None else 4 * asked.max_tokens
    calls = sum(len(call.name) + len(call.arguments) for call in said.calls)
    length = len(said.thought) + len(said.text) + calls
    # Thinking comes first, so a limit cuts the text before it cuts the thinking.
    if most is not None and length > most:
        thought = said.thought[:most]
        said = SimTurn(said.text[: most - len(thought)], thought=thought)
        length, finish = most, "length"
    else:
        finish = "tool_calls" if said.calls else "stop"
    tokens_in, tokens_out = _count(asked.length), _count(length)
    return {
        # Derived or constant, so that the same request always gets exactly the same reply.
        "id": f"chatcmpl-{asked.sha[:24]}",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [{"index": 0, "message": _message(said, asked), "finish_reason": finish}],
        "usage": {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        },
    }


def _reply(asked: SimRequest, world: World) -> SimTurn:
    stage = stage_shown(asked)
    if stage == "play" and plays_with_tools(asked):
        return turn(asked, world)
    if stage not in VOICES:
        raise NotImplementedError(f"the simulated endpoint has no voice for {stage!r}: sim.VOICES")
    return SimTurn(VOICES[stage](asked, world))


def _message(said: SimTurn, asked: SimRequest) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text}
    if said.thought:
        message["reasoning_content"] = said.thought
    if said.calls:
        message["content"] = said.text or None
        message["tool_calls"] = [
            {
                "id": f"call_{asked.sha[:16]}_{n}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for n, call in enumerate(said.calls)
        ]
    return message


def fails(body: Any, world: World, served: int = 0) -> bool:
    """Return whether the world fails this request; if it does, every retry fails, too.

    Raises:
        ValueError: The body is not a chat request.
    """
    asked = read(body, served)
    return stage_shown(asked) == "play" and request_fails(asked, world)


def stage_of(body: Any) -> Stage:
    """Return the stage of a request: `play`, unless its prompt belongs to another stage.

    Raises:
        ValueError: The body is not a chat request.
    """
    return stage_shown(read(body))


def _count(characters: int) -> int:
    """Estimate the number of tokens in a text of this many characters."""
    return -(-characters // CHARS_PER_TOKEN)


_BOX = re.compile(r"\\boxed\{([^{}]*)\}")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_WORD = re.compile(r"\w{3,}")
CHARS = 300
"""Maximum number of characters to quote from a line of a page."""


def grade(asked: SimRequest) -> str:
    """Describe the end of the response, and grade its last box or else its last number.

    Without a reference, the judge solves the question itself if it belongs to this world.
    """
    response = "\n".join(asked.fenced("answer"))
    found = _BOX.findall(response) or _NUMBER.findall(response)
    said = found[-1].strip() if found else None
    references = asked.fenced("reference")
    known = solve("\n".join(asked.fenced("question")))
    if not references and known is not None:
        references = [str(known)]
    right = said is not None and any(_same(said, reference) for reference in references)
    told = "The response gives no answer." if said is None else f"The response ends with {said}."
    return f"{told}\nGRADE: {'CORRECT' if right else 'INCORRECT'}"


def _same(said: str, reference: str) -> bool:
    """Return True for equal numbers, and for texts that are equal apart from case."""
    # Compare as fractions, so that 0.5 equals 1/2 and large numbers are exact.
    try:
        return Fraction(said) == Fraction(reference.strip())
    except (ValueError, ZeroDivisionError):
        return said.casefold() == reference.strip().casefold()


def read_page(asked: SimRequest) -> str:
    """Quote the first line of the page among the lines that share most words with the question."""
    wanted = _words("\n".join(asked.fenced("question")))
    lines = [line.strip() for line in "\n".join(asked.fenced("web")).splitlines() if line.strip()]
    best = max(lines, key=lambda line: len(_words(line) & wanted), default="")
    if not _words(best) & wanted:
        return "The page does not answer the question."
    return f"The page says: {best[:CHARS]}"


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
