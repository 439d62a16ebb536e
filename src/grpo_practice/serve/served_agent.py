"""What is served: an agent's system prompt, and how it comes to stand in front of a request."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from grpo_practice.calls import Message
from grpo_practice.prompts.system import HEADING

_SYSTEM = ("system", "developer")
_ENTRY = re.compile(r"^\[E\d+\] ", re.MULTILINE)
_BLOCK = f"{HEADING}\n\n[E"


@dataclass(frozen=True, slots=True)
class ServedAgent:
    """An agent, as far as it is served: its model is asked under its prompt."""

    name: str
    model: str
    prompt: str
    """The system prompt, byte for byte as it was measured: instructions and library."""

    @property
    def base(self) -> str:
        """The instructions without the library that practice put behind them."""
        return _divided(self.prompt)[0]

    @property
    def experiences(self) -> int:
        """How many entries that library has."""
        return len(_ENTRY.findall(_divided(self.prompt)[1]))

    def messages(self, theirs: Sequence[Message]) -> list[Message]:
        """A client's messages, with the agent's prompt as the first and in one system message.

        A system message that is the agent's own, with its library or without, is replaced by the
        prompt; any other one goes on behind it.
        """
        if not self.prompt:
            return list(theirs)
        first, rest = theirs[0], theirs[1:]
        if first.get("role") not in _SYSTEM:
            return [{"role": "system", "content": self.prompt}, *theirs]
        text = _text(first.get("content"))
        if text in ("", self.base, self.prompt):
            return [{"role": "system", "content": self.prompt}, *rest]
        return [{**first, "role": "system", "content": self._before(first["content"])}, *rest]

    def theirs(self, messages: Sequence[Message]) -> list[Message]:
        """What `messages` made of a client's, without the agent's prompt."""
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

    def _before(self, content: Any) -> Any:
        """The prompt, and behind it the content of another system message: a text, or parts."""
        if isinstance(content, str):
            return f"{self.prompt}\n\n{content}"
        return [{"type": "text", "text": f"{self.prompt}\n\n"}, *content]


def _divided(prompt: str) -> tuple[str, str]:
    """Instructions and library block of a prompt; the block is '' where there is none."""
    at = prompt.rfind(_BLOCK)
    if at < 0:
        return prompt, ""
    return prompt[:at].removesuffix("\n\n"), prompt[at:]


def _text(content: Any) -> str | None:
    """The text of a message's content; None where it is something else."""
    match content:
        case None:
            return ""
        case str():
            return content
        case [{"text": str(text)}]:
            return text
        case _:
            return None
