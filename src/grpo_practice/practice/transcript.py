"""A rollout's conversation as a text that the teacher reads."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from grpo_practice.calls import Message

CHARS = 120_000
"""Characters of a transcript above which results of tools are cut: some 30,000 tokens."""
KEPT = 400
"""Characters that are kept of a result that is cut."""


def transcript_text(messages: Sequence[Message]) -> str:
    """Each turn under its role, with the tools it calls. The experiences stand apart, not here.

    Of a long one every turn of the agent is kept; results of tools are cut, the oldest first.
    """
    turns = [m for m in messages if m.get("role") != "system"]
    texts = [turn_text(m) for m in turns]
    over = sum(map(len, texts)) - CHARS
    for i, message in enumerate(turns):
        if over > 0 and message.get("role") == "tool" and len(texts[i]) > KEPT:
            left = len(texts[i]) - KEPT
            texts[i] = f"{texts[i][:KEPT]} … [{left:,} more characters were cut here]"
            over -= left
    return "\n\n".join(f"[{m.get('role')}]\n{t}" for m, t in zip(turns, texts, strict=True))


def turn_text(message: Message) -> str:
    """What a turn says: what was thought, what was said, and which tools are called with what."""
    parts = [message.get("reasoning_content"), _plain(message.get("content"))]
    said = [p for p in parts if isinstance(p, str) and p.strip()]
    calls = message.get("tool_calls")
    return "\n".join(said + [_call(c) for c in calls] if isinstance(calls, list) else said)


def _plain(content: object) -> object:
    """The text of content that comes in parts."""
    if not isinstance(content, list):
        return content
    parts = (part.get("text") for part in content if isinstance(part, dict))
    return "\n".join(part for part in parts if isinstance(part, str))


def _call(call: Any) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return "calls a tool"
    arguments = function.get("arguments")
    told = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return f"calls {function.get('name')}({_readable(told)})"


def _readable(arguments: str) -> str:
    """The arguments as `name=value`, so that code in them keeps its lines."""
    try:
        given = json.loads(arguments)
    except ValueError:
        return arguments
    if not isinstance(given, dict):
        return arguments
    return ", ".join(f"{k}={v if isinstance(v, str) else json.dumps(v)}" for k, v in given.items())
