"""What a program asks in its own words, asked through the ledger."""

import asyncio
import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from grpo_practice.calls import Chat, Message, Reply, conversations
from grpo_practice.canonical import canon, hashable
from grpo_practice.chat_server.server import ChatRequest, RequestError, one_reply
from grpo_practice.errors import ConfigError
from grpo_practice.llm.ledgered import AgentChat, Play
from grpo_practice.llm.params import canonical_params
from grpo_practice.redact import redactor
from grpo_practice.text import strip_think


@dataclass(slots=True)
class _Place:
    """One and the same request, as often as it was made."""

    taken: set[int] = field(default_factory=set)
    """Which resamples were answered, or are being."""
    left: dict[int, asyncio.Task[Reply]] = field(default_factory=dict)
    """Those that nobody waits for any more: whoever asked them is gone."""


class Relay:
    """Asks what a program sends, in one play of a scope.

    The configured settings are laid under what it sets itself. The seed is the scope's, whatever
    it says; where it repeats a request, it gets another sample. A request that it gave up, and
    makes again, is the same one, and is paid once.

    Args:
        chat: The configured model, asked at the scope.
    """

    def __init__(self, chat: AgentChat) -> None:
        self._chat, self._play = chat, Play(said_mark)
        self._places = defaultdict[bytes, _Place](_Place)
        self._tasks = set[asyncio.Task[Reply]]()
        self.replies = list[Reply]()
        """In the order they came."""

    async def __call__(self, asked: ChatRequest, *, limit_s: float | None = None) -> Reply:
        """The stored reply, or a new one that is committed.

        Where the caller is cancelled, the request goes on and its reply is kept.

        Raises:
            RequestError: It cannot be asked as it is written.
            TimeoutError: `limit_s` was reached.
            EndpointError, EndpointRefusedError, PausedError: As from any `Chat`.
        """
        asked = one_reply(asked)
        name, params = asked.model or self._chat.model, self._params(asked.settings)
        place = self._places[_same(name, params, asked)]
        if place.left:
            r, task = place.left.popitem()
        else:
            r = next(r for r in itertools.count() if r not in place.taken)
            place.taken.add(r)
            made = self._ask(self._chat.with_model(name, params, self._play), asked, r, limit_s)
            task = asyncio.create_task(made)
            task.add_done_callback(lambda task: self._done(place, r, task))
            self._tasks.add(task)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                place.left[r] = task
            raise

    async def _ask(self, chat: Chat, asked: ChatRequest, r: int, limit_s: float | None) -> Reply:
        reply = await chat(asked.messages, tools=asked.tools, r=r, limit_s=limit_s)
        self.replies.append(reply)
        return reply

    def _done(self, place: _Place, r: int, task: asyncio.Task[Reply]) -> None:
        """A request that failed is made again as the one it was."""
        self._tasks.discard(task)
        if task.cancelled() or task.exception() is not None:
            place.taken.discard(r)
            place.left.pop(r, None)

    def _params(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The configured params, under those that the program sets."""
        own = {key: value for key, value in settings.items() if key != "seed"}
        try:
            params, _ = canonical_params({"extra_body": own})
        except ConfigError as e:
            raise RequestError(
                str(e).removeprefix("model_settings").lstrip(".: ").removeprefix("extra_body.")
            ) from None
        return {**self._chat.params, **params}

    @property
    def transcript(self) -> list[Message]:
        """All that was said, as it is read back from the store."""
        said = canon(conversations(self._play.turns)).decode()
        messages: list[Message] = json.loads(redactor.text(said))
        return messages

    async def aclose(self) -> None:
        """Nothing is asked any more."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _same(name: str, params: Mapping[str, Any], asked: ChatRequest) -> bytes:
    """Equal for equal requests."""
    return hashlib.sha256(canon([name, params, asked.tools, asked.messages])).digest()


def said_mark(before: bytes, message: Message) -> bytes:
    """Equal where the same was said up to there.

    Programs send replies back in words of their own: without keys they do not know, without what
    was thought, with other settings. The conversation goes on all the same.
    """
    said = _said(message) if message.get("role") == "assistant" else hashable(message)
    return hashlib.sha256(before + canon(said)).digest()


def _said(message: Message) -> list[Any]:
    """What an assistant said and called."""
    text = Reply(message).content
    calls = message.get("tool_calls")
    called = [
        [call.get("id"), function.get("name"), function.get("arguments")]
        for call in (calls if isinstance(calls, list) else [])
        if isinstance(call, dict) and isinstance(function := call.get("function"), dict)
    ]
    return [(strip_think(text) or "").strip(), called]
