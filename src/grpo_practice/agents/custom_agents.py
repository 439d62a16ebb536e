"""`type: python` and `type: command`: a program of the user's own plays the rollout."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Protocol

from grpo_practice.agents import RolloutContext
from grpo_practice.agents.clock import Clock
from grpo_practice.agents.simple import answer_of, failed, outcome_of, played
from grpo_practice.calls import Reply
from grpo_practice.canonical import clean
from grpo_practice.chat_server.proxy import Guest, Proxy
from grpo_practice.chat_server.relay import Relay
from grpo_practice.chat_server.server import ChatRequest, RequestError
from grpo_practice.errors import (
    AgentError,
    ContentFilterError,
    ContextOverflowError,
    EndpointError,
    is_transient,
)
from grpo_practice.redact import redactor
from grpo_practice.types import Trajectory

API_KEY = "in-rollout"
"""What programs are given for a key: the address itself says who asks."""
GRACE_S = 5.0
"""Longest wait for a program that was told to end."""


@dataclass(frozen=True, slots=True)
class ProgramContext:
    """What a program is told besides question and system prompt."""

    base_url: str
    """Where it asks its model: an OpenAI-compatible address, for this rollout only."""
    api_key: str
    """Sent nowhere; client libraries want one."""
    model: str
    """The configured model."""
    attempt: int
    """Which of the attempts at this question: 0, 1, …"""
    seed: int
    """For whatever the program draws: the same where the rollout is gone on with."""
    limit_s: float
    """Seconds the rollout may take, waits for the endpoint not counted."""


class Program(Protocol):
    """The user's code, as it is called.

    Raises:
        AgentError: It failed. Whatever it started has ended.
    """

    async def __call__(self, question: str, system: str, context: ProgramContext) -> str:
        """Its answer; '' where it has none. Ends soon when it is cancelled."""
        ...


class CustomAgent:
    """Plays a rollout by running a program (an `Agent`).

    What the program asks at its address goes through the ledger. It ends with the rollout's time.

    Args:
        program: It.
        proxy: Where it asks; being served.
        notice: Told what a person should know.
    """

    def __init__(self, program: Program, proxy: Proxy, notice: Callable[[str], None]) -> None:
        self._program, self._proxy, self._notice = program, proxy, notice
        self._deaf = False

    async def __call__(self, question: str, system: str, context: RolloutContext) -> Trajectory:
        """Answer the question.

        Raises:
            GrpoPracticeError: Why no request of it was answered any more; the run stops.
        """
        relay = Relay(context.chat)
        game = _Game(relay, context.limit_s)
        try:
            with self._proxy.address(Guest(context.chat.model, game.ask)) as url:
                told = ProgramContext(
                    base_url=url,
                    api_key=API_KEY,
                    model=context.chat.model,
                    attempt=context.scope.address.attempt,
                    seed=context.scope.seed(),
                    limit_s=context.limit_s,
                )
                answer = await self._ended(self._program(question, system, told), game)
            return game.answered(answer)
        except (TimeoutError, AgentError) as e:
            return game.failed(e)
        finally:
            await relay.aclose()

    async def _ended(self, program: Coroutine[Any, Any, str], game: "_Game") -> str:
        """What the program answered. It has ended, also where it was not to go on."""
        work = asyncio.create_task(program)
        over = asyncio.create_task(game.clock.over())
        try:
            await asyncio.wait((work, over, game.stopped), return_when=asyncio.FIRST_COMPLETED)
            if game.stopped.done():
                raise game.stopped.result()
            if not work.done():
                raise TimeoutError
            return work.result()
        finally:
            over.cancel()
            work.cancel()
            ended, deaf = await asyncio.wait((work,), timeout=GRACE_S)
            _ = [task.exception() for task in ended if not task.cancelled()]  # it is looked at
            if deaf and not self._deaf:
                self._deaf = True
                self._notice("the agent does not end when it is cancelled: it is left to itself")


class _Game:
    """One play of a rollout: what was asked in it, and what ended it."""

    def __init__(self, relay: Relay, limit_s: float) -> None:
        self._relay, self.clock = relay, Clock(limit_s)
        self.stopped = asyncio.get_running_loop().create_future()
        """Has what ended the play before the program did."""
        self._lost: EndpointError | None = None
        """Why the last request got no answer."""

    async def ask(self, asked: ChatRequest) -> Reply:
        """The reply to what the program asks.

        Raises:
            RequestError: There is none.
        """
        try:
            with self.clock.asking() as took:
                reply = await self._relay(asked, limit_s=self.clock.left_s)
                took(reply.seconds)
        except (RequestError, asyncio.CancelledError):
            raise
        except EndpointError as e:
            self._lost = e
            raise _request_error(e) from None
        except Exception as e:  # noqa: BLE001 - whatever it is, the program is not to blame
            if not self.stopped.done():
                self.stopped.set_result(e)
            raise RequestError("the rollout ends here", status=503, kind="server_error") from None
        self._lost = None
        return reply

    def answered(self, answer: str) -> Trajectory:
        """The rollout with that answer."""
        if self._lost is not None and not isinstance(
            self._lost, ContextOverflowError | ContentFilterError
        ):  # what it says is of a request that got no answer
            return self._with(failed(self._lost, self.clock.limit_s, [], self._relay.replies), "")
        text = redactor.text(clean(answer))
        outcome, why = outcome_of(Reply({"role": "assistant", "content": text}))
        return self._with(played(outcome, [], self._relay.replies, error=why), answer_of(text))

    def failed(self, error: TimeoutError | AgentError) -> Trajectory:
        """The rollout that ended without an answer: for what the endpoint did, where it did."""
        why = self._lost if self._lost and isinstance(error, AgentError) else error
        return self._with(failed(why, self.clock.limit_s, [], self._relay.replies), "")

    def _with(self, ended: Trajectory, response: str) -> Trajectory:
        said = self._relay.transcript
        tools = sum(message.get("role") == "tool" for message in said)
        return replace(ended, response=response, transcript=said, tool_calls=tools)


def _request_error(error: EndpointError) -> RequestError:
    """Why a request got no answer, as its library knows such things."""
    if isinstance(error, ContextOverflowError):
        return RequestError(str(error), param="messages", code="context_length_exceeded")
    if isinstance(error, ContentFilterError):
        return RequestError(str(error), code="content_filter")
    status = error.status or 502
    if status >= 400 and not is_transient(status):
        return RequestError(str(error), status=status)
    return RequestError(str(error), status=502, kind="server_error")
