"""A ledger in memory, and tools that count."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_practice.core.calls import Address, Entry, Reply, Scope
from grpo_practice.core.errors import EndpointError
from grpo_practice.core.events import Event
from grpo_practice.rollout.tools import Output, Tool
from grpo_practice.rollout.tools.toolbox import Toolbox

SCOPE = Scope(Address(1, 0, 0, 0, "play"), 0, "", 0)
ANY = {"type": "object", "properties": {}}


@dataclass
class FakeLedger:
    """Keeps what it is given; what is stored before a play is replayed in it."""

    entries: list[Entry] = field(default_factory=list)

    async def get(self, address: Address, request_hash: bytes, nth: int) -> Reply | None:
        await asyncio.sleep(0)
        for entry in self.entries:
            if (entry.address, entry.request_hash, entry.nth) == (address, request_hash, nth):
                return replace(entry.reply, replayed=True)
        return None

    async def put(self, entry: Entry) -> int:
        await asyncio.sleep(0)
        self.entries.append(entry)
        return len(self.entries)

    def fail(self, address: Address, error: EndpointError) -> None:
        raise AssertionError("no model is asked")


@dataclass
class Counter:
    """A tool with a state: it adds up what it is told; `off` makes its answers differ."""

    done: list[str] = field(default_factory=list)
    """What was really called, over all sessions."""
    opened: int = 0
    off: int = 0

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Any]:
        self.opened += 1
        total = self.off

        async def call(name: str, arguments: Mapping[str, Any]) -> Output:
            nonlocal total
            await asyncio.sleep(0)
            self.done.append(name)
            total += arguments.get("n", 0)
            return Output(str(total))

        yield call

    def tool(self, name: str = "add") -> Tool:
        async def run(arguments: Mapping[str, Any], at: Scope) -> Output:
            raise AssertionError("its session answers")

        return Tool(name, "Adds.", ANY, run, session=self.session)


def box(*tools: Tool, ledger: FakeLedger, events: list[Event] | None = None) -> Toolbox:
    return Toolbox(tools, ledger, (events if events is not None else []).append)
