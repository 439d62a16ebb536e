"""Served agent, and the system prompt that it adds to every request."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grpo_practice.core.calls import Message
from grpo_practice.core.prompts.system import HEADING

_SYSTEM = ("system", "developer")
_ENTRY = re.compile(r"^\[E\d+\] ", re.MULTILINE)
_BLOCK = f"{HEADING}\n\n[E"


@dataclass(frozen=True, slots=True)
class ServedAgent:
    """A served agent: a model with a system prompt."""

    name: str
    model: str
    prompt: str
    """System prompt with instructions and library, byte for byte as it was when measured."""

    @property
    def base(self) -> str:
        """Instructions without the library that practice appended."""
        return _split(self.prompt)[0]

    @property
    def experiences(self) -> int:
        """Number of entries in the library."""
        return len(_ENTRY.findall(_split(self.prompt)[1]))

    def messages(self, theirs: Sequence[Message]) -> list[Message]:
        """Return a client's messages with the agent's prompt first, in a single system message.

        If the client's system message is the agent's own, with or without its library, the prompt
        replaces it; any other system message follows the prompt.
        """
        if not self.prompt:
            return list(theirs)
        first, rest = theirs[0], theirs[1:]
        if first.get("role") not in _SYSTEM:
            return [{"role": "system", "content": self.prompt}, *theirs]
        text = _content_text(first.get("content"))
        if text in ("", self.base, self.prompt):
            return [{"role": "system", "content": self.prompt}, *rest]
        before = f"{self.prompt}\n\n"
        match first["content"]:
            case str(text):
                content: Any = before + text
            case parts:  # a list of parts, which keeps its images and their order
                content = [{"type": "text", "text": before}, *parts]
        return [{**first, "role": "system", "content": content}, *rest]

    def theirs(self, messages: Sequence[Message]) -> list[Message]:
        """Return the client's part of messages that were built by `messages`."""
        first, rest = messages[0], list(messages[1:])
        match first.get("content"):
            case str(text) if text == self.prompt:
                return rest
            case str(text) if self.prompt and text.startswith(f"{self.prompt}\n\n"):
                return [{**first, "content": text[len(self.prompt) + 2 :]}, *rest]
            case [{"text": str(text)}, *parts] if text == f"{self.prompt}\n\n":
                return [{**first, "content": parts}, *rest]
            case _:
                return [first, *rest]


def _split(prompt: str) -> tuple[str, str]:
    """Return a prompt's instructions and library block; the block is '' if there is no library."""
    at = prompt.rfind(_BLOCK)  # the last one, because instructions may quote such a block
    if at < 0:
        return prompt, ""
    return prompt[:at].removesuffix("\n\n"), prompt[at:]


def _content_text(content: Any) -> str | None:
    """Return the text of a message's content; None if the content is not a single text."""
    match content:
        case None:
            return ""
        case str():
            return content
        case [{"text": str(text)}]:
            return text
        case _:
            return None
