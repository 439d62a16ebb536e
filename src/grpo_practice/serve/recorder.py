"""Recorder that writes exchanges to the ledger once they end."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from grpo_practice.core.calls import Address, Entry, Ledger, Message, Reply
from grpo_practice.core.errors import EndpointError
from grpo_practice.core.hashing import Chain, canon, clean_json
from grpo_practice.core.redact import redactor
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.serve.conversations import Conversations, Position, RecordedCall
from grpo_practice.serve.exchange import Exchange, head_of, replies

NOWHERE = -1
"""Conversation number of requests without a response."""


class Recorder:
    """Recorder with a task for each exchange; recording failures do not affect serving.

    `notice` is called with the reason the first time an exchange cannot be recorded.
    """

    def __init__(
        self,
        ledger: Ledger,
        branch_id: int,
        conversations: Conversations,
        endpoint: Endpoint,
        notice: Callable[[str], None],
    ) -> None:
        self._ledger, self._branch_id, self._endpoint = ledger, branch_id, endpoint
        self._conversations, self._notice = conversations, notice
        self._tasks = set[asyncio.Task[None]]()
        self.kept = self.missed = 0
        """Number of recorded exchanges, and of exchanges that could not be recorded."""

    def take(self, exchange: Exchange) -> None:
        """Record the exchange in the background."""
        task = asyncio.create_task(self._keep(exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def drain(self) -> None:
        """Wait until every exchange is stored or counted as missed."""
        # A loop, because new exchanges may arrive while waiting.
        while self._tasks:
            await asyncio.wait(self._tasks)  # `gather` does not yield to the loop if all are done

    async def _keep(self, exchange: Exchange) -> None:
        try:
            try:
                whole = replies(exchange, self._endpoint)
            except EndpointError as e:
                self._ledger.fail(self._at(NOWHERE), e)
            else:
                await asyncio.gather(*self._put(exchange, whole))
            self.kept += 1
        except Exception as e:  # noqa: BLE001 - a recording error must not stop serving
            self.missed += 1
            if self.missed == 1:
                self._notice(f"not everything is recorded: {type(e).__name__}: {e}")

    def _put(self, exchange: Exchange, whole: list[Reply]) -> list[asyncio.Task[int]]:
        """Start a task that writes each reply; later requests can continue it immediately."""
        assert exchange.sent is not None
        body = clean_json(dict(exchange.sent.chat))
        head, messages = head_of(body), body["messages"]
        states = Chain(head).extend(messages)
        head["params"].pop("seed", None)
        stored, request_hash = canon(redactor.value(head)), states[-1][:16]
        place, tasks = self._conversations.position(messages, states), list[asyncio.Task[int]]()
        for nth, reply in enumerate(whole, place.nth):
            entry = Entry(
                address=self._at(place.conversation),
                request_hash=request_hash,
                nth=nth,
                turn=place.turn,
                prev_call_id=None,
                head=stored,
                messages=canon(messages),
                name=body["model"],
                reply=reply,
            )
            task = asyncio.create_task(self._write(entry, place, messages))
            known = RecordedCall(place.conversation, place.turn, nth, task, reply.message)
            task.add_done_callback(partial(_landed, known))
            # Add before writing, because the next request may arrive before the write ends.
            self._conversations.add(request_hash, known)
            tasks.append(task)
        return tasks

    async def _write(self, entry: Entry, place: Position, messages: list[Message]) -> int:
        """Write the entry after the call it continues, so that only new messages are stored."""
        prev = place.prev
        if prev is not None:
            if isinstance(prev.row, asyncio.Task):
                # wait() raises nothing; if that call was not written, this one is stored whole.
                await asyncio.wait([prev.row])
                await asyncio.sleep(0)  # lets its callback set `row`
            if isinstance(prev.row, int):
                new = canon(messages[place.covered :])
                entry = replace(entry, prev_call_id=prev.row, messages=new)
        return await self._ledger.put(entry)

    def _at(self, conversation: int) -> Address:
        # A recorded run has one step and no groups, so its slots number the conversations.
        return Address(self._branch_id, 0, conversation, 0, "play")


def _landed(known: RecordedCall, task: asyncio.Task[int]) -> None:
    """Release the reply once it is stored in the database."""
    if not task.cancelled() and task.exception() is None:
        known.row, known.reply = task.result(), None
