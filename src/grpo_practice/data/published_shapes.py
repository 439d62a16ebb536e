"""Common formats of training and evaluation sets, and how to read a row of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from grpo_practice.core.errors import DataError
from grpo_practice.data.cells import unpacked
from grpo_practice.data.chat_format import (
    ChatQuestion,
    is_conversation,
    question_of,
    turns_of,
)
from grpo_practice.data.choice_options import Options

Fields = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Parts:
    """Parts of one row."""

    question: ChatQuestion
    """The row's question; its `answer` and `system` are used if no other column provides them."""
    answer: Any
    """Answer, not yet validated; None if the row has no answer."""
    used: frozenset[str]
    """Columns that are consumed and therefore not copied to meta."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    options: Options | None = None
    """Options to choose the answer from."""
    filled: bool = False
    """Whether the template added text to the question."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A dataset format that is recognised by its columns."""

    title: str
    """Common name of the format."""
    says: str
    """Sentence that explains which columns are the question and the answer."""
    fits: Callable[[Fields], bool]
    """Predicate: whether a row has the columns of this format."""
    read: Callable[[Fields], Parts]
    """Reader that returns a row's parts, or raises a DataError that names the key."""


def text_or_turns(value: object, key: str) -> ChatQuestion:
    """Read a question from text, or from a conversation that lacks a final answer.

    Raises:
        DataError: The value is neither text nor a conversation.
    """
    if isinstance(value, list) or is_conversation(value):
        return question_of(turns_of(value, key), key)
    return ChatQuestion(_text(value, key), None, None, several=False)


def _text(value: object, key: str) -> str:
    if not isinstance(value, str):
        kind = "missing" if value is None else f"of type {type(value).__name__}, not text"
        raise DataError(f"{key!r} is {kind}")
    if not value.strip():
        raise DataError(f"{key!r} is empty")
    return value


def _conversation(fields: Fields) -> Parts:
    # If a row has both keys, `messages` counts only if it is a conversation.
    shared = "conversations" in fields and not is_conversation(fields.get("messages"))
    key = "conversations" if shared else "messages"  # ShareGPT's name, and OpenAI's
    found = question_of(turns_of(fields.get(key), key), key)
    return Parts(found, found.answer, frozenset({key}))


def _alpaca(fields: Fields) -> Parts:
    question = _text(fields.get("instruction"), "instruction")
    more = fields.get("input")
    if more is not None and not isinstance(more, str):
        raise DataError(f"'input' is of type {type(more).__name__}, not text")
    if more and more.strip():
        question = f"{question}\n\n{more}"
    found = ChatQuestion(question, None, None, several=False)
    history = fields.get("history")
    if history:
        found = question_of(_earlier(history, question), "history")
    used = {"instruction", "input", "output", "history"}
    return Parts(found, fields.get("output"), frozenset(used))


def _earlier(history: object, question: str) -> Any:
    """Convert the pairs `[[asked, answered], …]`, followed by the question, into turns."""
    pairs: list[Any] = history if isinstance(history, list) else [history]
    if not all(
        isinstance(p, list) and len(p) == 2 and all(isinstance(t, str) for t in p) for p in pairs
    ):
        raise DataError("'history' is not a list of pairs of texts")
    spoken = [
        {"role": role, "content": text}
        for pair in pairs
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]
    return turns_of([*spoken, {"role": "user", "content": question}], "history")


def _completed(fields: Fields) -> Parts:
    question = text_or_turns(fields.get("prompt"), "prompt")
    answer, label = _last_reply(fields.get("completion"), "completion"), fields.get("label")
    if not isinstance(label, bool):
        return Parts(question, answer, frozenset({"prompt", "completion"}))
    meta: dict[str, Any] = {"label": label}
    if not label:  # a completion labelled as bad must not become the reference answer
        meta["rejected"], answer = answer, None
    return Parts(question, answer, frozenset({"prompt", "completion", "label"}), meta)


def _preferred(fields: Fields) -> Parts:
    chosen = fields.get("chosen")
    if "prompt" in fields:
        question = text_or_turns(fields["prompt"], "prompt")
    else:
        question = question_of(turns_of(chosen, "chosen"), "chosen")
    rejected = _last_reply(fields.get("rejected"), "rejected")
    used = frozenset({"prompt", "chosen", "rejected"})
    return Parts(question, _last_reply(chosen, "chosen"), used, {"rejected": rejected})


def _last_reply(value: object, key: str) -> Any:
    """Return a text unchanged, or the assistant's last message of a conversation."""
    if not isinstance(value, list) and not is_conversation(value):
        return value
    last = turns_of(value, key)[-1]
    if last.role != "assistant":
        raise DataError(f"the last turn of {key!r} is not the assistant's")
    return last.text


TRUTHS = ("ground_truth", "target", "answer")
"""Keys that hold the answer if the ground truth is an object."""


def _verl(fields: Fields) -> Parts:
    question = text_or_turns(fields.get("prompt"), "prompt")
    model = unpacked(fields.get("reward_model"))
    if not isinstance(model, dict):
        kind = "missing" if model is None else "not an object"
        raise DataError(f"'reward_model' is {kind}")
    rest = {key: value for key, value in model.items() if key != "ground_truth"}
    meta = {"reward_model": rest} if rest else {}
    answer = _truth(model.get("ground_truth"))
    return Parts(question, answer, frozenset({"prompt", "reward_model"}), meta)


def _truth(value: object) -> Any:
    """Extract the answer from a ground truth, which may be JSON-encoded, even twice.

    A JSON list is decoded only if its elements are strings; the interval `[0, 1]` and the number
    `12` stay text.
    """
    found = unpacked(value)
    if isinstance(found, dict):
        key = next((key for key in TRUTHS if key in found), None)
        if key is not None:
            return _truth(found[key])
        if isinstance(value, str):
            return value  # for example test cases of a program, which its verify function parses
        raise DataError(
            f"'reward_model.ground_truth' is an object without any of {', '.join(TRUTHS)}",
            hint="say where the answer is: --map answer=reward_model.ground_truth.KEY",
        )
    if isinstance(value, str) and isinstance(found, list):
        return found if found and all(isinstance(v, str) for v in found) else value
    return value


SHAPES: Mapping[str, Shape] = {
    "alpaca": Shape(
        "Alpaca",
        "the question is 'instruction' with 'input' below it, the answer 'output'",
        lambda fields: "instruction" in fields and "output" in fields,
        _alpaca,
    ),
    "chat": Shape(
        "a chat",
        "the answer is the last turn of 'messages' or 'conversations' if it is the assistant's,"
        " the question everything before it",
        lambda fields: "conversations" in fields or is_conversation(fields.get("messages")),
        _conversation,
    ),
    "evals": Shape(
        "OpenAI evals",
        "the question is 'input', the answer 'ideal'",
        lambda fields: "input" in fields and "ideal" in fields,
        lambda fields: Parts(
            text_or_turns(fields.get("input"), "input"),
            fields.get("ideal"),
            frozenset({"input", "ideal"}),
        ),
    ),
    "trl": Shape(
        "TRL prompt and completion",
        "the question is 'prompt', the answer 'completion' unless its 'label' is false",
        lambda fields: "prompt" in fields and "completion" in fields,
        _completed,
    ),
    "preference": Shape(
        "TRL preference",
        "the question is 'prompt', or else everything before the last turn of 'chosen'; the answer"
        " is that turn",
        lambda fields: (
            "chosen" in fields
            and "rejected" in fields
            and ("prompt" in fields or is_conversation(fields["chosen"]))
        ),
        _preferred,
    ),
    "verl": Shape(
        "verl",
        "the question is 'prompt', the answer 'reward_model.ground_truth'",
        lambda fields: "prompt" in fields and "reward_model" in fields,
        _verl,
    ),
}
"""Formats by the name that `--shape` takes."""
