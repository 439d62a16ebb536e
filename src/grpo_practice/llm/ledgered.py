"""Puts the ledger behind every model call: looked up first, committed before it is used."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from grpo_practice.calls import Chat, Entry, Ledger, Message, Reply, Request, Scope, Send
from grpo_practice.canonical import Chain, canon, clean_json
from grpo_practice.errors import EndpointError
from grpo_practice.events import CallFinished, Emit


@dataclass(frozen=True, slots=True)
class Model:
    """How one role asks: which model, with which settings, through which endpoint."""

    name: str
    params: Mapping[str, Any]
    """Canonical body keys that can change the answer, without the seed."""
    send: Send


def ledgered(model: Model, ledger: Ledger, emit: Emit) -> Callable[[Scope], Chat]:
    """Opens a conversation at a scope. Each opening is one play of that scope."""
    head = Head(model.name, model.params)
    return lambda scope: LedgeredChat(model, head, ledger, emit, scope, Play())


class Play:
    """What is known of one play of a scope: how often what was asked, and what continues what."""

    __slots__ = ("asked", "states", "turn")

    def __init__(self) -> None:
        self.asked: Counter[bytes] = Counter()
        self.states = dict[bytes, tuple[int, int]]()
        """Chain state after a call's reply → (call_id, how many messages that is)."""
        self.turn = 0

    def place(self, request_hash: bytes) -> tuple[int, int]:
        """`nth` and `turn` of a request that is made now."""
        nth, turn = self.asked[request_hash], self.turn
        self.asked[request_hash] += 1
        self.turn += 1
        return nth, turn


class Head:
    """`{model, params, tools}` in canonical JSON; all of it but seed and tools is spelt once."""

    __slots__ = ("_after", "_before", "_stored")

    def __init__(self, name: str, params: Mapping[str, Any]) -> None:
        before = canon({k: v for k, v in params.items() if k < "seed"})[1:-1]
        after = canon({k: v for k, v in params.items() if k > "seed"})[1:-1]
        start = b'{"model":' + canon(name) + b',"params":{' + before
        self._before = start + b"," * bool(before)
        self._after = b"," * bool(after) + after + b"}"
        self._stored = start + b"," * bool(before and after) + after + b"}"

    def hashed(self, seed: int, tools: Sequence[Mapping[str, Any]]) -> bytes:
        """With the seed among the params."""
        return b'%b"seed":%d%b%b}' % (self._before, seed, self._after, self._tools(tools))

    def stored(self, tools: Sequence[Mapping[str, Any]]) -> bytes:
        """Without the seed, so that it is stored once for a stage."""
        return self._stored + self._tools(tools) + b"}"

    def _tools(self, tools: Sequence[Mapping[str, Any]]) -> bytes:
        return b',"tools":' + canon(list(tools)) if tools else b""


class LedgeredChat:
    """A model, asked in one play of one scope (a `calls.Chat`)."""

    __slots__ = ("_emit", "_head", "_ledger", "_model", "_play", "_scope")

    def __init__(
        self, model: Model, head: Head, ledger: Ledger, emit: Emit, scope: Scope, play: Play
    ) -> None:
        """`head` is the model's; `play` may be shared with others that are asked in it."""
        self._model, self._head, self._ledger, self._emit = model, head, ledger, emit
        self._scope, self._play = scope, play

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        r: int = 0,
        limit_s: float | None = None,
    ) -> Reply:
        """The stored reply, or a new one that is committed. See `calls.Chat`."""
        seed = self._scope.seed(r)
        try:
            spelt = [canon(message) for message in messages]
        except UnicodeEncodeError:  # a lone surrogate
            messages = clean_json(messages)
            spelt = [canon(message) for message in messages]
        request = Request(self._model.name, {**self._model.params, "seed": seed}, messages, tools)
        chain = Chain(self._head.hashed(seed, tools))
        states = [chain.add(message, text) for message, text in zip(messages, spelt, strict=True)]
        request_hash = chain.state[:16]
        nth, turn = self._play.place(request_hash)

        reply = await self._ledger.get(self._scope.address, request_hash, nth)
        if reply is None:
            reply = await self._send(request, limit_s)
            prev, known = self._continues(states)
            entry = Entry(
                address=self._scope.address,
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
        self._play.states[chain.add(reply.message)] = (reply.call_id, len(messages) + 1)
        stage = self._scope.address.stage
        self._emit(CallFinished(stage, reply.usage, reply.seconds, reply.replayed))
        return reply

    async def _send(self, request: Request, limit_s: float | None) -> Reply:
        try:
            return await self._model.send(request, limit_s=limit_s)
        except BaseException as e:
            lost = e if isinstance(e, EndpointError) else e.__cause__
            if isinstance(lost, EndpointError):
                self._ledger.fail(self._scope.address, lost)
            raise

    def _continues(self, states: Sequence[bytes]) -> tuple[int | None, int]:
        """The call whose conversation goes on here, and how many messages it covers."""
        for state in reversed(states):
            if state in self._play.states:
                return self._play.states[state]
        return None, 0
