"""A simulated endpoint: a student, a teacher and a judge that answer from the request alone.

Never from order, time or count: the same messages with the same `seed` get the same reply. What
is learnt here says nothing about a real model; it shows that the machinery works.
"""

from collections.abc import Callable, Mapping
from typing import Any

from grpo_practice.calls import Stage
from grpo_practice.sim.judge import grade
from grpo_practice.sim.librarian import merge, propose
from grpo_practice.sim.request import Asked, read
from grpo_practice.sim.student import play
from grpo_practice.sim.teacher import compare, summarise
from grpo_practice.sim.world import World

__all__ = ["DEFAULT", "MODEL", "World", "answer", "stage_of"]

MODEL = "sim"
DEFAULT = World()

_SPEAK: Mapping[Stage, Callable[[Asked, World], str]] = {
    "play": play,
    "summarise": summarise,
    "compare": compare,
    "propose": propose,
    "merge": merge,
    "judge": lambda asked, _world: grade(asked),
}


def answer(body: Any, world: World = DEFAULT) -> dict[str, Any]:
    """The chat completion object that answers the JSON body of a request.

    Raises:
        ValueError: The body is not a chat request; the message says why.
    """
    asked = read(body)
    text = _SPEAK[asked.stage](asked, world)
    whole = text if asked.max_tokens is None else text[: 4 * asked.max_tokens]
    cut, text = len(whole) < len(text), whole
    tokens_in, tokens_out = _count(asked.length), _count(len(text))
    return {
        "id": f"chatcmpl-{asked.sha[:24]}",
        "object": "chat.completion",
        "created": 0,
        "model": MODEL,
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "length" if cut else "stop",
            }
        ],
        "usage": {
            "prompt_tokens": tokens_in,
            "completion_tokens": tokens_out,
            "total_tokens": tokens_in + tokens_out,
        },
    }


def stage_of(body: Any) -> Stage:
    """What a request asks for: to play, unless it shows a stage of distillation or a judgement.

    Raises:
        ValueError: The body is not a chat request.
    """
    return read(body).stage


def _count(characters: int) -> int:
    """About how many tokens they make."""
    return -(-characters // 4)
