"""Parses a chat request: its texts, its fenced sections and the tools that it offers."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from grpo_practice.core.calls import Message
from grpo_practice.core.fences import CODE
from grpo_practice.core.hashing import digest
from grpo_practice.sim.experience_texts import MARKER

FENCE = re.compile(rf"<<<(\w+)(?: \S+)? ({CODE})\n(.*?)\n\2>>>", re.DOTALL)
_ENTRY = re.compile(r"\b(E\d+)\b[^\n]*?" + MARKER.pattern)


@dataclass(frozen=True, slots=True)
class Fence:
    """Foreign text in a prompt, with the text between it and the previous fence."""

    name: str
    body: str
    before: str


@dataclass(frozen=True, slots=True)
class SimRequest:
    """A parsed chat request."""

    told: str
    """Text of all system and user messages."""
    asked: str
    """Text of the user messages only."""
    length: int
    """Number of characters in all messages."""
    max_tokens: int | None
    sha: str
    """Hex digest of messages and seed; every random decision is derived from it.

    The run's secret is excluded, because the same run in another database has different fence
    codes.
    """
    tools: frozenset[str] = frozenset()
    """Names of the functions that may be called now."""
    parallel: bool = True
    """Whether one turn may call several functions."""
    called: tuple[str, ...] = ()
    """Names of the functions called so far, in order."""
    said: str = ""
    """Text of the assistant's messages."""
    results: tuple[str, ...] = ()
    """Texts that the tools returned, in order."""
    turns: int = 0
    """Number of turns that the assistant has had."""
    seed: int | None = None
    opening: tuple[Message, ...] = ()
    """Messages before the assistant's first turn."""
    served: int = 0
    """Number of requests that the endpoint answered before this one."""

    @property
    def first(self) -> "SimRequest":
        """Request that the assistant's first turn answered."""
        if not self.turns:
            return self
        return read({"messages": list(self.opening), "seed": self.seed}, self.served)

    @property
    def fences(self) -> list[Fence]:
        """Fenced sections of the user messages, in order."""
        found, end = [], 0
        for match in FENCE.finditer(self.asked):
            found.append(Fence(match[1], match[3], self.asked[end : match.start()]))
            end = match.end()
        return found

    @property
    def frame(self) -> str:
        """Text of the user messages outside of all fences."""
        return FENCE.sub("", self.asked) + "\n"

    def fenced(self, name: str) -> list[str]:
        """Return the bodies of all fences with this name, in order."""
        return [fence.body for fence in self.fences if fence.name == name]


def read(body: Any, served: int = 0) -> SimRequest:
    """Parse the JSON body of a chat completion request; `served` requests were answered before it.

    Raises:
        ValueError: The body is not a chat request; the message names the key.
    """
    if not isinstance(body, dict):
        raise ValueError("the body must be a JSON object")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ValueError("'messages' must be a non-empty list")
    texts = [(_role(m), _content(m)) for m in messages]
    limits = [_whole(body, key) for key in ("max_tokens", "max_completion_tokens")]
    if any(limit is not None and limit < 1 for limit in limits):
        raise ValueError("'max_tokens' must be at least 1")
    calls = [call for message in messages for call in _calls(message)]
    return SimRequest(
        told="\n\n".join(text for role, text in texts if role in ("system", "user")),
        asked="\n\n".join(text for role, text in texts if role == "user"),
        length=sum(len(text) for _, text in texts) + sum(len(a) + len(b) for a, b in calls),
        # Clients use either name of the limit; the stricter value applies.
        max_tokens=min((limit for limit in limits if limit is not None), default=None),
        # Tools are excluded, so that a question gets the same answer with and without tools.
        sha=digest({"messages": _keyless(messages), "seed": _whole(body, "seed")}).hex(),
        tools=_tools(body),
        parallel=body.get("parallel_tool_calls") is not False,
        called=tuple(name for name, _ in calls),
        said="\n\n".join(text for role, text in texts if role == "assistant"),
        results=tuple(text for role, text in texts if role == "tool"),
        turns=sum(role == "assistant" for role, _ in texts),
        seed=_whole(body, "seed"),
        opening=tuple(takewhile(lambda m: m["role"] != "assistant", messages)),
        served=served,
    )


def labels(text: str) -> dict[str, str]:
    """Return the experience key of each label, from lines like `[E3] Name: … (#key)`."""
    return dict(_ENTRY.findall(text))


def _keyless(value: Any) -> Any:
    """Return a JSON value with fence codes that do not depend on the key of the run."""
    match value:
        case str():
            return FENCE.sub(_keyless_fence, value) if "<<<" in value else value
        case dict():
            return {k: _keyless(v) for k, v in value.items()}
        case list():
            return [_keyless(v) for v in value]
        case _:
            return value


def _keyless_fence(fence: re.Match[str]) -> str:
    opening, _, _ = fence[0].partition(f" {fence[2]}\n")
    code = hashlib.sha256(fence[3].encode("utf-8", "replace")).hexdigest()[:8]
    return f"{opening} {code}\n{fence[3]}\n{code}>>>"


def _tools(body: Mapping[str, Any]) -> frozenset[str]:
    """Return the functions that a request offers; empty if it forbids calls."""
    offered = body.get("tools") or []
    if not isinstance(offered, list) or not all(isinstance(tool, dict) for tool in offered):
        raise ValueError("'tools' must be a list of objects")
    names = [_named(tool)[0] for tool in offered]
    return frozenset(names if body.get("tool_choice") != "none" else ())


def _calls(message: Message) -> list[tuple[str, str]]:
    """Return name and arguments of each function call in an assistant message."""
    calls = message.get("tool_calls")
    listed = calls if isinstance(calls, list) else []
    return [_named(call) for call in listed if isinstance(call, dict)]


def _named(entry: Mapping[str, Any]) -> tuple[str, str]:
    """Return name and arguments of an offered or called function; '' for missing values."""
    function = entry.get("function")
    given = function if isinstance(function, dict) else {}
    return str(given.get("name") or ""), str(given.get("arguments") or "")


def _whole(body: Mapping[str, Any], key: str) -> int | None:
    value = body.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise ValueError(f"{key!r} must be a whole number, not {value!r}")
    return value


def _role(message: Any) -> str:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(role, str):
        raise ValueError("each of 'messages' must be an object with a 'role'")
    # `developer` is OpenAI's newer name for the system role.
    return "system" if role == "developer" else role


def _content(message: Message) -> str:
    """Return the text of a message, whose content may be a string, null, or a list of parts."""
    content: str | Sequence[Any] | None = message.get("content")
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "\n".join(str(part.get("text", "")) for part in content)
    raise ValueError("'content' of a message must be text, null or a list of parts")
