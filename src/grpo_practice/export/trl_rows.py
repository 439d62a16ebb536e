"""Conversion of settled attempts to rows for TRL's trainers, in TRL's conversational format."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grpo_practice.core.calls import Message, content_texts
from grpo_practice.core.prompts.system import HEADING, without_block

DataFormat = Literal["sft", "dpo"]
LeftOut = Literal[
    "no reward",
    "no complete answer",
    "a question that an evaluation uses",
    "a lower reward",
    "no single conversation",
    "a message whose content is not text",
    "a paraphrase of the library",
    "an unfinished group",
    "no better and worse attempt at the same prompt",
]
"""Reasons for leaving attempts out, as shown to the user."""
EQUAL = 1e-9
"""Rewards that differ by less than this are equal, because they are floats."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A settled attempt with a conversation that can be trained on."""

    run: str
    step: int
    slot: int
    attempt: int
    """Number of the attempt, starting at 0."""
    number: int | None
    """Number of the question in the run's dataset, starting at 1."""
    reward: float
    finished: bool
    """Whether the attempt ended by itself instead of being cut off."""
    simulated: bool
    prompt: Sequence[Message]
    """Messages before the model's first message."""
    completion: Sequence[Message]
    """Messages from the model's first one to its last one."""
    tools: Sequence[Mapping[str, Any]] = ()

    @property
    def origin(self) -> dict[str, Any]:
        """Columns of every row that identify the question."""
        return {"run": self.run, "step": self.step, "number": self.number, "slot": self.slot}

    @property
    def offered(self) -> dict[str, str]:
        """Column with the attempt's tools, if it had any."""
        # JSON text: in a nested column, every tool would get the parameters of all tools.
        return {"tools": json.dumps(list(self.tools))} if self.tools else {}

    def answers_the_same_as(self, other: "Attempt") -> bool:
        """Return whether both attempts had the same prompt and the same tools."""
        return (self.prompt, self.tools) == (other.prompt, other.tools)


def plain_messages(messages: Sequence[Message]) -> list[Message] | None:
    """Convert messages to the form of TRL's chat templates; None if one has more than text."""
    plain = [_plain(message) for message in messages]
    return None if None in plain else [message for message in plain if message is not None]


def _plain(message: Message) -> Message | None:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    if not all(isinstance(part, dict) and "text" in part for part in parts):
        return None
    role = message.get("role", "assistant")
    # Chat templates know only the older name.
    role = "system" if role == "developer" else role
    kept: Message = {"role": role, "content": "".join(content_texts(content))}
    for key in ("reasoning_content", "tool_call_id", "name"):
        if isinstance(message.get(key), str):
            kept[key] = message[key]
    if message.get("tool_calls"):
        kept["tool_calls"] = [_tool_call(call) for call in message["tool_calls"]]
    return kept


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a tool call, with its arguments as a mapping if they are valid JSON."""
    function = call.get("function") or {}
    arguments: Any = function.get("arguments", "")
    try:
        # Templates encode mappings as JSON themselves; JSON text would be encoded twice.
        read = json.loads(arguments)
    except (TypeError, ValueError):
        read = None
    arguments = read if isinstance(read, dict) else arguments
    known = {"name": function.get("name", ""), "arguments": arguments}
    return {**({"id": call["id"]} if call.get("id") else {}), "type": "function", "function": known}


def without_library(prompt: Sequence[Message], system: str) -> list[Message] | None:
    """Return the prompt without the experiences; None if a program has rephrased them.

    `system` is the system prompt that the agent received.
    """
    bare = without_block(system) if HEADING in system else system
    kept = list[Message]()
    for message in prompt:
        # Replace within the text, because a program may have added to the prompt.
        text = message["content"].replace(system, bare) if system else message["content"]
        if HEADING in text:
            return None
        if text or message["role"] != "system":
            kept.append({**message, "content": text})
    return kept


def sft_row(attempt: Attempt) -> dict[str, Any]:
    """Return the training row of an attempt."""
    return {
        "messages": [*attempt.prompt, *attempt.completion],
        **attempt.offered,
        **attempt.origin,
        "attempt": attempt.attempt,
        "reward": attempt.reward,
        "simulated": attempt.simulated,
    }


def dpo_rows(group: Sequence[Attempt], most: int) -> list[dict[str, Any]]:
    """Return pairs of a group's attempts: best and worst, second best and second worst, etc.

    Each attempt is in at most one pair. The chosen attempt has the higher reward and ended by
    itself. Attempts with equal rewards keep their order.
    """
    best = sorted((a for a in group if a.finished), key=lambda a: (-a.reward, a.attempt))
    if not best:
        return []
    # Attempts at one question may have used different libraries.
    alike = [a for a in group if a.answers_the_same_as(best[0])]
    worst = sorted(alike, key=lambda a: (a.reward, a.attempt))
    pairs = zip((a for a in best if a in alike), worst, strict=False)
    better = [(c, r) for c, r in pairs if c.reward - r.reward > EQUAL]
    return [_pair(chosen, rejected) for chosen, rejected in better[:most]]


def _pair(chosen: Attempt, rejected: Attempt) -> dict[str, Any]:
    return {
        "prompt": [*chosen.prompt],
        "chosen": [*chosen.completion],
        "rejected": [*rejected.completion],
        **chosen.offered,
        **chosen.origin,
        "chosen_attempt": chosen.attempt,
        "rejected_attempt": rejected.attempt,
        "chosen_reward": chosen.reward,
        "rejected_reward": rejected.reward,
        "simulated": chosen.simulated,
    }
