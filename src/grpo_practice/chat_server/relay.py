"""Requests of a program in its own words, made through the ledger."""

import asyncio
import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
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
class _Repeats:
    """The samples of one and the same request."""

    taken: set[int] = field(default_factory=set)
    """Numbers of the resamples that were answered or are being."""
    abandoned: dict[int, asyncio.Task[Reply]] = field(default_factory=dict)
    """Those in flight whose caller is gone."""


class Relay:
    """The requests that a program makes in one play of a scope.

    The program's settings go before the configured ones, but the seed is always the scope's;
    where it repeats a request, it gets another sample. A request that it gave up and makes again
    is the same one, and is paid once.
    """

    def __init__(self, chat: AgentChat) -> None:
        self._chat, self._play = chat, Play(program_mark)
        self._repeats = defaultdict[bytes, _Repeats](_Repeats)
        self._tasks = set[asyncio.Task[Reply]]()
        self.replies = list[Reply]()
        """Replies in the order they came."""
        self.overrides = dict[str, tuple[object, object]]()
        """Key that the program sent in place of a configured one → first value, configured one."""

    async def __call__(self, request: ChatRequest, *, limit_s: float | None = None) -> Reply:
        """Return the stored reply, or a new one that is committed.

        If the caller is cancelled, the request goes on and its reply is kept.

        Raises:
            RequestError: The request cannot be asked as it is written.
            TimeoutError: `limit_s` was reached.
            EndpointError, EndpointRefusedError, PausedError: As from any `Chat`.
        """
        request = one_reply(request)
        name, params = request.model or self._chat.model, self._params(request.settings)
        for key, value, configured in self._overridden(name, params):
            self.overrides.setdefault(key, (value, configured))
        # Without a seed: a repeated request is known by what is asked.
        same = canon([name, params, request.tools, request.messages])
        repeats = self._repeats[hashlib.sha256(same).digest()]
        # First what was given up: it may be paid, and whoever asks again wants that reply.
        if repeats.abandoned:
            r, task = repeats.abandoned.popitem()
        else:
            r = next(r for r in itertools.count() if r not in repeats.taken)
            repeats.taken.add(r)
            chat = self._chat.with_model(name, params, self._play)
            task = asyncio.create_task(self._ask(chat, request, r, limit_s))
            # Kept, since the loop refers to its tasks weakly.
            self._tasks.add(task)

            def done(task: asyncio.Task[Reply]) -> None:
                self._tasks.discard(task)
                if task.cancelled() or task.exception() is not None:
                    # A request that failed and is made again is the one it was.
                    repeats.taken.discard(r)
                    repeats.abandoned.pop(r, None)

            task.add_done_callback(done)
        try:
            return await asyncio.shield(task)  # a caller that goes must not take a paid reply along
        except asyncio.CancelledError:
            # Also if it has just ended: the next one to ask gets its reply.
            if not task.cancelled():
                repeats.abandoned[r] = task
            raise

    async def _ask(self, chat: Chat, request: ChatRequest, r: int, limit_s: float | None) -> Reply:
        reply = await chat(request.messages, tools=request.tools, r=r, limit_s=limit_s)
        self.replies.append(reply)
        return reply

    def _params(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return the configured params, overridden by those of the program."""
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
        """All messages, as they are read back from the store."""
        stored = canon(conversations(self._play.turns)).decode()
        messages: list[Message] = json.loads(redactor.text(stored))
        return messages

    async def aclose(self) -> None:
        """Cancel what is still in flight."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            # Waited for: each puts its failure on record before the rollout is saved.
            await asyncio.wait(tasks)


def program_mark(before: bytes, message: Message) -> bytes:
    """Return the mark after a message: equal for conversations in which the same was said.

    Programs send replies back in their own form: without keys that they do not know, without the
    reasoning, with other settings. The conversation goes on all the same, so only an assistant's
    text and calls count.
    """
    if message.get("role") != "assistant":
        return hashlib.sha256(before + canon(hashable(message))).digest()
    calls = message.get("tool_calls")
    called = [
        [call.get("id"), function.get("name"), function.get("arguments")]
        for call in (calls if isinstance(calls, list) else [])
        if isinstance(call, dict) and isinstance(function := call.get("function"), dict)
    ]
    text = (strip_think(Reply(message).content) or "").strip()
    return hashlib.sha256(before + canon([text, called])).digest()
