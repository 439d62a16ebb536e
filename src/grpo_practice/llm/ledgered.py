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
    return lambda scope: LedgeredChat(model, ledger, emit, scope)


class LedgeredChat:
    """One play of one scope (a `calls.Chat`): counts equal requests, knows what continues what."""

    __slots__ = ("_asked", "_emit", "_ledger", "_model", "_scope", "_states", "_turn")

    def __init__(self, model: Model, ledger: Ledger, emit: Emit, scope: Scope) -> None:
        self._model, self._ledger, self._emit, self._scope = model, ledger, emit, scope
        self._asked: Counter[bytes] = Counter()
        self._states = dict[bytes, tuple[int, int]]()
        """Chain state after a call's reply → (call_id, how many messages that is)."""
        self._turn = 0

    async def __call__(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        r: int = 0,
        limit_s: float | None = None,
    ) -> Reply:
        """The stored reply, or a new one that is committed. See `calls.Chat`."""
        params = {**self._model.params, "seed": self._scope.seed(r)}
        request = Request(self._model.name, params, clean_json(messages), tools)
        chain = Chain(request.head)
        states = chain.extend(request.messages)
        request_hash = chain.state[:16]
        nth, turn = self._asked[request_hash], self._turn
        self._asked[request_hash] += 1
        self._turn += 1

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
                head=self._head(request),
                messages=canon(request.messages[known:]),
                name=self._model.name,
                reply=reply,
            )
            reply = replace(reply, call_id=await self._ledger.put(entry))
        self._states[chain.add(reply.message)] = (reply.call_id, len(request.messages) + 1)
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
            if state in self._states:
                return self._states[state]
        return None, 0

    def _head(self, request: Request) -> bytes:
        """`{model, params, tools}` without the seed, so that it is stored once for a stage."""
        head = request.head
        del head["params"]["seed"]
        return canon(head)
