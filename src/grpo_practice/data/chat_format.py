"""Conversations in the formats that datasets use, split into question and answer."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from grpo_practice.core.errors import DataError
from grpo_practice.data.cells import unpacked

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
"""Role for each name that datasets use."""
SHOWN = 40
"""Number of characters of an unknown name that a message shows."""


@dataclass(frozen=True, slots=True)
class ChatTurn:
    """One message."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class ChatQuestion:
    """A conversation, split into its parts."""

    question: str
    """The user's text; if there are several turns, all of them, each labelled with its speaker."""
    answer: str | None
    """The assistant's text, if the last turn is the assistant's."""
    system: str | None
    several: bool
    """Whether the question combines more than one turn."""


def is_conversation(value: object) -> bool:
    """Return whether the value is a list of messages, or text (a table cell) that encodes one."""
    value = unpacked(value)
    return (
        isinstance(value, list)
        and value != []
        and all(isinstance(m, dict) and ("role" in m or "from" in m) for m in value)
    )


def turns_of(value: object, key: str) -> list[ChatTurn]:
    """Read the messages in order.

    Raises:
        DataError: The value is not a list of messages, or a message contains anything but text.
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
    # OpenAI evals marks few-shot examples as system messages with a name such as example_user.
    name = message.get("name") if said == "system" else None
    role = ROLES.get(name if isinstance(name, str) and name in ROLES else str(said).lower())
    if role is None:
        raise DataError(
            f"{key!r} has the unknown role {str(said)[:SHOWN]!r}; the known roles are"
            f" {', '.join(ROLES)}"
        )
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
    """Split a conversation: everything before the assistant's last turn is the question.

    Raises:
        DataError: The conversation contains no text from the user before the answer.
    """
    system = "\n\n".join(t.text for t in turns if t.role == "system" and t.text.strip())
    rest = [turn for turn in turns if turn.role != "system"]
    answer = rest.pop().text if rest and rest[-1].role == "assistant" else None
    if not any(turn.role == "user" and turn.text.strip() for turn in rest):
        raise DataError(f"{key!r} has no text from the user before the answer")
    several = len(rest) > 1
    spoken = (f"{turn.role.capitalize()}: {turn.text}" for turn in rest)
    question = "\n\n".join(spoken) if several else rest[0].text
    return ChatQuestion(question, answer, system or None, several)
