"""A conversation as datasets write it: what is asked in it, and what the assistant said last."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from grpo_practice.data.cells import unpacked
from grpo_practice.errors import DataError

Role = Literal["system", "user", "assistant", "tool"]

ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "example_user": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "model": "assistant",
    "function_call": "assistant",
    "example_assistant": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
}
"""Roles by the names that are in use."""
SHOWN = 40
"""Characters of a strange name that a message shows."""


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One message."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class ChatQuestion:
    """A conversation, taken apart."""

    question: str
    """The user's text; where there are several turns, all of them, each under its speaker."""
    answer: str | None
    """The assistant's text, if the last turn is theirs."""
    system: str | None
    several: bool
    """Whether the question is made of more than one turn."""


def is_conversation(value: object) -> bool:
    """Return whether it is a list of messages, or one packed into a text (a cell of a table)."""
    value = unpacked(value)
    return (
        isinstance(value, list)
        and value != []
        and all(isinstance(m, dict) and ("role" in m or "from" in m) for m in value)
    )


def turns_of(value: object, key: str) -> list[ChatTurn]:
    """Read the messages in order.

    Raises:
        DataError: It is no list of messages, or one holds something other than text.
    """
    value = unpacked(value)
    if not isinstance(value, list) or not value:
        kind = "missing" if value is None else "empty" if value == [] else "not a list of messages"
        raise DataError(f"{key!r} is {kind}")
    return [_turn(message, f"{key}[{i}]") for i, message in enumerate(value)]


def _turn(message: object, key: str) -> ChatTurn:
    if not isinstance(message, dict):
        raise DataError(f"{key!r} is not a message, but of type {type(message).__name__}")
    said = message.get("role", message.get("from"))
    name = message.get("name") if said == "system" else None  # evals writes its examples so
    role = ROLES.get(name if isinstance(name, str) and name in ROLES else str(said).lower())
    if role is None:
        raise DataError(f"{key!r} has the role {str(said)[:SHOWN]!r}, none of {', '.join(ROLES)}")
    text = _content(message.get("content", message.get("value")), key)
    calls = message.get("tool_calls")
    if isinstance(calls, list) and calls:
        text = "\n".join(filter(None, [text, *map(_call, calls)]))
    return ChatTurn(role, text)


def _content(content: object, key: str) -> str:
    match content:
        case None:
            return ""
        case str():
            return content
        case list():
            return "\n".join(_part(part, key) for part in content)
        case _:
            raise DataError(f"the content of {key!r} is of type {type(content).__name__}, not text")


def _part(part: object, key: str) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    if not isinstance(text, str):
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        raise DataError(
            f"the content of {key!r} has a part of type {str(kind)[:SHOWN]!r}, not text"
        )
    return text


def _call(call: object) -> str:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict):
        return "(calls a tool)"
    arguments = function.get("arguments")
    spelt = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"(calls {function.get('name')} with {spelt})"


def question_of(turns: Sequence[ChatTurn], key: str) -> ChatQuestion:
    """Take a conversation apart: the question is all before the assistant's last turn.

    Raises:
        DataError: Nothing is asked in it.
    """
    system = "\n\n".join(t.text for t in turns if t.role == "system" and t.text.strip())
    rest = [turn for turn in turns if turn.role != "system"]
    answer = rest.pop().text if rest and rest[-1].role == "assistant" else None
    if not any(turn.role == "user" and turn.text.strip() for turn in rest):
        raise DataError(f"{key!r} has no text of the user before the answer")
    several = len(rest) > 1
    spoken = (f"{turn.role.capitalize()}: {turn.text}" for turn in rest)
    question = "\n\n".join(spoken) if several else rest[0].text
    return ChatQuestion(question, answer, system or None, several)
