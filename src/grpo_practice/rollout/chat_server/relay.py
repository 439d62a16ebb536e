"""Sends a program's own requests through the ledger."""

import asyncio
import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from grpo_practice.core.calls import Chat, Message, Reply, conversations
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.hashing import canon, hashable
from grpo_practice.core.redact import redactor
from grpo_practice.core.text import strip_think
from grpo_practice.llm.http_response import decode
from grpo_practice.llm.ledgered import AgentChat, Play
from grpo_practice.llm.params import canonical_params
from grpo_practice.rollout.chat_server.server import ChatRequest, RequestError, one_reply


@dataclass(slots=True)
class _Repeats:
    """The samples drawn for identical requests."""

    taken: set[int] = field(default_factory=set)
    """Numbers of the resamples that have been answered or are in flight."""
    abandoned: dict[int, asyncio.Task[Reply]] = field(default_factory=dict)
    """Resamples in flight whose caller has left."""


class Relay:
    """The requests that a program makes in one play of a scope.

    The program's settings override the configured ones, but the seed is always the scope's. A
    repeated request gets another sample. If a program abandons a request and sends it again, both
    count as the same request, which is paid for once.
    """

    def __init__(self, chat: AgentChat) -> None:
        self._chat, self._play = chat, Play(program_mark)
        self._repeats = defaultdict[bytes, _Repeats](_Repeats)
        self._tasks = set[asyncio.Task[Reply]]()
        self.replies = list[Reply]()
        """Replies in the order of their arrival."""
        self.overrides = dict[str, tuple[object, object]]()
        """Key that the program overrides → the program's first value, and the configured value."""

    async def __call__(self, request: ChatRequest, *, limit_s: float | None = None) -> Reply:
        """Return the stored reply, or send a new request and commit its reply.

        If the caller is cancelled, the request continues and its reply is kept.

        Raises:
            RequestError: The request is invalid.
            TimeoutError: `limit_s` was reached.
            EndpointError, EndpointRefusedError, PausedError: As from any `Chat`.
        """
        request = one_reply(request)
        name, params = request.model or self._chat.model, self._params(request.settings)
        for key, value, configured in self._overridden(name, params):
            self.overrides.setdefault(key, (value, configured))
        # Exclude the seed: a repeated request is identified by its content.
        same = canon([name, params, request.tools, request.messages])
        repeats = self._repeats[hashlib.sha256(same).digest()]
        # Reuse an abandoned request first: it may be billed, and a caller that repeats it wants
        # that reply.
        if repeats.abandoned:
            r, task = repeats.abandoned.popitem()
        else:
            r = next(r for r in itertools.count() if r not in repeats.taken)
            repeats.taken.add(r)
            chat = self._chat.with_model(name, params, self._play)
            task = asyncio.create_task(self._ask(chat, request, r, limit_s))
            # Keep a reference, because the event loop holds its tasks only weakly.
            self._tasks.add(task)

            def done(task: asyncio.Task[Reply]) -> None:
                self._tasks.discard(task)
                if task.cancelled() or task.exception() is not None:
                    # A failed request that is repeated counts as the same request.
                    repeats.taken.discard(r)
                    repeats.abandoned.pop(r, None)

            task.add_done_callback(done)
        try:
            # A caller that leaves must not cancel a request that may be billed.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # Keep it even if it has just ended: the next caller gets its reply.
            if not task.cancelled():
                repeats.abandoned[r] = task
            raise

    async def _ask(self, chat: Chat, request: ChatRequest, r: int, limit_s: float | None) -> Reply:
        reply = await chat(request.messages, tools=request.tools, r=r, limit_s=limit_s)
        self.replies.append(reply)
        return reply

    def _params(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configured params, overridden by the program's own."""
        own = {key: value for key, value in settings.items() if key != "seed"}
        try:
            params, _ = canonical_params({"extra_body": own})
        except ConfigError as e:
            raise RequestError(
                str(e).removeprefix("model_settings").lstrip(".: ").removeprefix("extra_body.")
            ) from None
        return {**self._chat.params, **params}

    def _overridden(
        self, name: str, params: Mapping[str, Any]
    ) -> Iterator[tuple[str, object, object]]:
        if name != self._chat.model:
            yield "model", name, self._chat.model
        for key, configured in self._chat.params.items():
            if params[key] != configured:
                yield key, params[key], configured

    @property
    def transcript(self) -> list[Message]:
        """All messages, in the form in which the store would load them."""
        stored = canon(conversations(self._play.turns)).decode()
        messages: list[Message] = json.loads(redactor.text(stored))
        return messages

    async def aclose(self) -> None:
        """Cancel the requests still in flight."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            # Wait for them: each records its failure before the rollout is saved.
            await asyncio.wait(tasks)


def program_mark(before: bytes, message: Message) -> bytes:
    """Return the mark after a message; conversations with equal content have equal marks.

    Programs send replies back in their own form: without keys that they do not know, without the
    reasoning, with other settings, with other spaces in the arguments of a call. The conversation
    is still the same, so only the text and the calls of an assistant message are compared.
    """
    if message.get("role") != "assistant":
        return hashlib.sha256(before + canon(hashable(message))).digest()
    calls = message.get("tool_calls")
    called = [
        [call.get("id"), function.get("name"), _arguments(function.get("arguments"))]
        for call in (calls if isinstance(calls, list) else [])
        if isinstance(call, dict) and isinstance(function := call.get("function"), dict)
    ]
    text = (strip_think(Reply(message).content) or "").strip()
    return hashlib.sha256(before + canon([text, called])).digest()


def _arguments(text: object) -> object:
    """Return the value of a call's arguments; the text itself if it is not JSON."""
    value = decode(text.encode()) if isinstance(text, str) else None
    return text if value is None else value
