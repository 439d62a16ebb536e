"""Model calls backed by the ledger: looked up before sending, committed before use."""

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

from grpo_practice.core.calls import Chat, Entry, Ledger, Message, Reply, Request, Scope, Send, Turn
from grpo_practice.core.errors import ContextOverflowError, EndpointError
from grpo_practice.core.events import CallFinished, CallStarted, Emit, span
from grpo_practice.core.hashing import Chain, canon, clean_json
from grpo_practice.llm.reply_bound import ReplyBound

if TYPE_CHECKING:
    from grpo_practice.llm.batch import Batches


@dataclass(frozen=True, slots=True)
class Model:
    """The model of one role, with its settings and its endpoint."""

    name: str
    params: Mapping[str, Any]
    """Canonical body keys that can change the answer, without the seed."""
    send: Send
    bound: ReplyBound = field(default_factory=ReplyBound, compare=False)
    batches: "Batches | None" = None
    """Batches in which its requests are sent; None sends each request at once."""


def ledgered(model: Model, ledger: Ledger, emit: Emit) -> Callable[[Scope], "LedgeredChat"]:
    """Return a function that opens a conversation at a scope; each is a new play of the scope."""
    head = Head(model.name, model.params)
    return lambda scope: LedgeredChat(model, head, ledger, emit, scope, Play())


Mark = Callable[[bytes, Message], bytes]
"""Function from the mark before a message (b"" before the first) to the mark after it; equal inputs
give equal marks.
"""


class Play:
    """Requests of one play of a scope: how often each was made, and which one continues which.

    Args:
        mark: Determines which answered request another one continues. By default this is the hash
            chain, so that settings, tools and every message must be equal.
    """

    __slots__ = ("_asked", "_placed", "depth", "mark", "states", "turns")

    def __init__(self, mark: Mark | None = None) -> None:
        self.mark = mark
        self._asked = defaultdict[bytes, set[int]](set)
        self._placed = 0
        self.states = dict[bytes, tuple[int, int]]()
        """Mark after a call's reply → (call_id, number of messages up to it)."""
        self.turns = list[Turn]()
        """Answered model calls."""
        self.depth = 0
        """`turn` of a model call made now; concurrent calls share it."""

    def place(self, request_hash: bytes) -> tuple[int, int]:
        """Return the smallest free `nth` of this request, and how many requests preceded it."""
        taken, before = self._asked[request_hash], self._placed
        nth = next(n for n in itertools.count() if n not in taken)
        taken.add(nth)
        self._placed += 1
        return nth, before

    def free(self, request_hash: bytes, nth: int) -> None:
        """Release the `nth` of an unanswered request, so that a repetition is the same request."""
        self._asked[request_hash].discard(nth)

    def answered(self, turn: Turn, state: bytes, messages: int) -> None:
        """Record an answered call; a request that begins with all its messages continues it."""
        self.states[state] = (turn.call_id, messages)
        self.turns.append(turn)
        self.depth = max(self.depth, turn.order[0] + 1)


class AgentChat(Chat, Protocol):
    """A conversation at a rollout's scope; the agent may set another model and settings."""

    @property
    def model(self) -> str:
        """Name of the configured model."""
        ...

    @property
    def params(self) -> Mapping[str, Any]:
        """Configured settings by canonical name, without the seed."""
        ...

    def with_model(self, name: str, params: Mapping[str, Any], play: Play) -> Chat:
        """Return a conversation with this model at the same scope; `play` records its calls."""
        ...


class Head:
    """`{model, params, tools}` in canonical JSON; everything but seed and tools is encoded once."""

    __slots__ = ("_after", "_before", "_stored")

    def __init__(self, name: str, params: Mapping[str, Any]) -> None:
        # Canonical JSON sorts its keys, so the seed belongs between these two parts.
        before = canon({k: v for k, v in params.items() if k < "seed"})[1:-1]
        after = canon({k: v for k, v in params.items() if k > "seed"})[1:-1]
        start = b'{"model":' + canon(name) + b',"params":{' + before
        self._before = start + b"," * bool(before)
        self._after = b"," * bool(after) + after + b"}"
        self._stored = start + b"," * bool(before and after) + after + b"}"

    def hashed(self, seed: int, tools: Sequence[Mapping[str, Any]]) -> bytes:
        """Return the head with the seed among its params."""
        # Must equal canon() of the whole byte for byte: all stored hashes depend on it.
        return b'%b"seed":%d%b%b}' % (self._before, seed, self._after, self._tools(tools))

    def stored(self, tools: Sequence[Mapping[str, Any]]) -> bytes:
        """Return the head without the seed, so that one stored copy serves a whole stage."""
        return self._stored + self._tools(tools) + b"}"

    def _tools(self, tools: Sequence[Mapping[str, Any]]) -> bytes:
        return b',"tools":' + canon(list(tools)) if tools else b""


class LedgeredChat:
    """A conversation with a model in one play of one scope (an `AgentChat`)."""

    __slots__ = ("_emit", "_head", "_ledger", "_model", "play", "scope")

    def __init__(
        self, model: Model, head: Head, ledger: Ledger, emit: Emit, scope: Scope, play: Play
    ) -> None:
        """Bind the chat to its `head` and `play`; other chats may share `play`."""
        self._model, self._head, self._ledger, self._emit = model, head, ledger, emit
        self.scope, self.play = scope, play

    @property
    def model(self) -> str:
        """Name of the model."""
        return self._model.name

    @property
    def params(self) -> Mapping[str, Any]:
        """Settings of the model, without the seed."""
        return self._model.params

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        r: int = 0,
        limit_s: float | None = None,
    ) -> Reply:
        """Return the stored reply, or request a new one and commit it."""
        seed = self.scope.seed(r)
        try:
            spelt = [canon(message) for message in messages]
        except UnicodeEncodeError:  # from a lone surrogate
            messages = clean_json(messages)
            spelt = [canon(message) for message in messages]
        request = Request(self._model.name, {**self._model.params, "seed": seed}, messages, tools)
        chain = Chain(self._head.hashed(seed, tools))
        states = [chain.add(message, text) for message, text in zip(messages, spelt, strict=True)]
        request_hash, turn = chain.state[:16], self.play.depth
        # Before any await: concurrent equal requests must get their nth in the order they were
        # made.
        nth, _ = self.play.place(request_hash)
        mark = self.play.mark
        marks = list(accumulate(messages, mark, initial=b""))[1:] if mark else states
        # Find the call that this request continues and the number of messages it covers. Prefer
        # the longest match: a shorter one would store messages a second time.
        before = (self.play.states[m] for m in reversed(marks) if m in self.play.states)
        prev, known = next(before, (None, 0))
        address = self.scope.address
        try:
            with span(self._emit, CallStarted(address, self.model)):
                stored = await self._ledger.get(address, request_hash, nth)
                send = self._sender(request_hash, nth, r)
                reply = await self._send(send, request, r, limit_s) if stored is None else stored
            self._model.bound.record(reply)
            # No await between the event and queueing the entry: a cancellation there would make
            # the counts of events and entries differ.
            self._emit(
                CallFinished(address, self.model, reply.usage, reply.seconds, reply.replayed)
            )
            if stored is None:
                entry = Entry(
                    address=address,
                    request_hash=request_hash,
                    nth=nth,
                    turn=turn,
                    prev_call_id=prev,
                    head=self._head.stored(tools),
                    messages=b"[" + b",".join(spelt[known:]) + b"]",
                    name=self._model.name,
                    reply=reply,
                )
                reply = replace(reply, call_id=await self._ledger.put(entry))
        except EndpointError:
            self.play.free(request_hash, nth)
            raise
        said = Turn(
            reply.call_id, prev, (turn, request_hash, nth), [*messages[known:], reply.message]
        )
        after = mark(marks[-1], reply.message) if mark else chain.add(reply.message)
        self.play.answered(said, after, len(messages) + 1)
        return reply

    def with_model(self, name: str, params: Mapping[str, Any], play: Play) -> "LedgeredChat":
        """Return a conversation with this model at the same endpoint and scope."""
        model, head = replace(self._model, name=name, params=params), Head(name, params)
        return LedgeredChat(model, head, self._ledger, self._emit, self.scope, play)

    def _sender(self, request_hash: bytes, nth: int, r: int) -> Send:
        model = self._model
        # A repetition has no company, and would wait for a day alone.
        if model.batches is None or r:
            return model.send
        return partial(model.batches.send, (self.scope.address, request_hash, nth), model.send)

    async def _send(self, send: Send, request: Request, r: int, limit_s: float | None) -> Reply:
        bounded = self._model.bound.bounded(request, self.scope.address.stage, r)
        try:
            try:
                return await send(bounded, limit_s=limit_s)
            except ContextOverflowError:
                if bounded is request:
                    raise
                # Some servers reject a bound if the prompt leaves no room for it.
                reply = await send(request, limit_s=limit_s)
                self._model.bound.is_on = False
                return reply
        except BaseException as e:
            # Record a cancelled request too, since it may have been billed; the client sets the
            # cause.
            lost = e if isinstance(e, EndpointError) else e.__cause__
            if isinstance(lost, EndpointError):
                self._ledger.fail(self.scope.address, lost)
            raise
