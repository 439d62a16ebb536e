"""Plays rollouts by programs against an endpoint in memory, through the real proxy."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from grpo_practice.core.calls import Address, Reply, Request, Scope, Usage
from grpo_practice.core.errors import EndpointError
from grpo_practice.core.events import silent
from grpo_practice.core.types import Trajectory
from grpo_practice.llm.ledgered import AgentChat, Model, ledgered
from grpo_practice.rollout.agents import RolloutContext
from grpo_practice.rollout.agents.custom_agents import CustomAgent
from grpo_practice.rollout.agents.program_context import ProgramContext
from grpo_practice.rollout.agents.programs import FunctionProgram
from grpo_practice.rollout.chat_server.proxy import Proxy
from tests.late import Late
from tests.rollout.tools.fakes import SCOPE, FakeLedger

if TYPE_CHECKING:
    import openai
else:
    openai = Late("openai")

CONTEXT = ProgramContext("http://127.0.0.1:1/r/x/v1", "in-rollout", "m", 1, 7, 100.0)
"""For programs that ask nothing."""
PYTHON = sys.executable


class Ledger(FakeLedger):
    """Also counts what got no answer."""

    def __init__(self) -> None:
        super().__init__()
        self.failed = list[EndpointError]()

    @override
    def fail(self, address: Address, error: EndpointError) -> None:
        self.failed.append(error)


Said = str | Reply | Exception


@dataclass
class World:
    """A proxy, a ledger, and an endpoint that answers from a function of the request."""

    script: Callable[[Request], Said | Awaitable[Said]] = lambda request: "42"
    ledger: Ledger = field(default_factory=Ledger)
    proxy: Proxy = field(default_factory=Proxy)
    seen: list[Request] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    async def send(self, request: Request, *, limit_s: float | None = None) -> Reply:
        self.seen.append(request)
        await asyncio.sleep(0)
        if limit_s is not None and limit_s <= 0:
            raise TimeoutError("no time left for a request")
        said = self.script(request)
        if not isinstance(said, str | Reply | Exception):
            said = await said
        if isinstance(said, Exception):
            raise said
        if isinstance(said, Reply):
            return said
        return Reply({"role": "assistant", "content": said}, "stop", Usage(2, 0, 1, 0), seconds=1.0)

    async def play(
        self,
        function: Callable[..., Any],
        *,
        limit_s: float = 30.0,
        attempt: int = 0,
        chat: AgentChat | None = None,
    ) -> Trajectory:
        """Play one rollout; the proxy must be served."""
        scope = Scope(replace(SCOPE.address, attempt=attempt), 0, "", 0)
        chat = chat or ledgered(Model("m", {}, self.send), self.ledger, silent)(scope)
        program = FunctionProgram("mine.py:solve", function, self.notices.append)
        agent = CustomAgent(program, self.proxy, self.notices.append)
        return await agent("Q", "S", RolloutContext(chat, scope, limit_s))


def client(context: ProgramContext, **more: Any) -> "openai.AsyncOpenAI":
    return openai.AsyncOpenAI(base_url=context.base_url, api_key=context.api_key, **more)


async def ask(context: ProgramContext, question: str = "Q", **more: Any) -> str:
    """What a program of the simplest kind does."""
    async with client(context) as c:
        messages: Any = [{"role": "user", "content": question}]
        got = await c.chat.completions.create(model=context.model, messages=messages, **more)
        return got.choices[0].message.content or ""
