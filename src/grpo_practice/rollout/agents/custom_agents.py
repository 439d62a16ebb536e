"""`type: python` and `type: command`: the user's own program plays the rollout."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Protocol

from grpo_practice.core.calls import UNASKED, Reply, Scope
from grpo_practice.core.errors import (
    AgentError,
    ContentFilterError,
    ContextOverflowError,
    EndpointError,
    is_transient,
)
from grpo_practice.core.hashing import clean
from grpo_practice.core.played import ToolUse
from grpo_practice.core.redact import redactor
from grpo_practice.core.text import brief, count
from grpo_practice.core.types import Trajectory
from grpo_practice.rollout.agents import RolloutContext
from grpo_practice.rollout.agents.program_context import ProgramContext
from grpo_practice.rollout.agents.simple import answer_of, failed_trajectory, outcome_of, trajectory
from grpo_practice.rollout.agents.slots import Place, Room
from grpo_practice.rollout.chat_server.proxy import Guest, Proxy
from grpo_practice.rollout.chat_server.relay import Relay
from grpo_practice.rollout.chat_server.server import ChatRequest, RequestError

GRACE_S = 5.0
"""Maximum seconds to wait for a program to end after it was asked to."""
SHOWN = 60
"""Number of characters of a setting's value that a notice shows."""
MOSTLY = 0.75
"""Share of the programs' time spent waiting above which a notice suggests more workers."""
UNREACHED = (
    "it answered without calling its model, as all programs so far have: can its node reach"
    " agent.proxy?"
)
"""Error for an answer given without any request, if programs run on other machines."""
SILENT = 3
"""Number of answers without a request after which a notice is shown."""


class Program(Protocol):
    """The user's code as a callable.

    Raises:
        AgentError: The program failed. Every process it started has ended.
    """

    async def __call__(self, question: str, system: str, context: ProgramContext) -> str:
        """Return the program's answer, '' for no answer; end soon after being cancelled."""
        ...


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The place where programs run."""

    workers: int | None = None
    """Number of worker processes, which the programs share; None if there are no workers."""
    elsewhere: bool = False
    """Whether programs may run on a machine that cannot reach this one."""
    begins_within_s: float | None = None
    """Maximum seconds until a program reports that it begins; None if it begins immediately."""


Log = Callable[[Scope, Sequence[ToolUse]], Awaitable[None]]
"""Function that stores the tool calls that a program logged."""


class CustomAgent:
    """An `Agent` that runs a program until the rollout's time is over.

    The program sends its requests to its own address; they go through the rollout's chat. A
    rollout's time starts when its program may run.
    """

    def __init__(
        self,
        program: Program,
        proxy: Proxy,
        notice: Callable[[str], None],
        room: Room | None = None,
        where: "Whereabouts | None" = None,
        log: "Log | None" = None,
    ) -> None:
        self._program, self._proxy, self._notice = program, proxy, notice
        self._log = log
        self._room, self._where = room or Room(), where or Whereabouts()
        self._doubted = self._where.elsewhere
        """Whether programs may run on another machine and none of them has reached its address
        yet.
        """
        self._noticed = False
        self._answers = self._silent = 0
        self._played_s = self._own_s = 0.0
        """Total seconds of all rollouts, and the part of that time in which programs were not
        waiting for their model.
        """
        self._said_waits, self._rollouts = False, 0
        self._overridden = set[str]()
        """Keys set by the program that a notice has already mentioned."""

    async def __call__(self, question: str, system: str, context: RolloutContext) -> Trajectory:
        """Answer the question; raise the error that stops the run if the model is unreachable."""
        async with self._room.place() as place:
            return await self._play(question, system, context, place)

    async def _play(
        self, question: str, system: str, context: RolloutContext, place: Place
    ) -> Trajectory:
        relay, began = Relay(context.chat), monotonic()
        game = _Game(relay, context.limit_s, place, self._where.begins_within_s)
        guest = Guest(context.chat.model, game.ask, game.begin)
        try:
            with self._proxy.address(guest) as invited:
                given = ProgramContext(
                    base_url=invited.base_url,
                    api_key=invited.token,
                    model=context.chat.model,
                    attempt=context.scope.address.attempt,
                    seed=context.scope.seed(),
                    limit_s=context.limit_s,
                )
                answer = await self._run(self._program(question, system, given), game)
            played = game.answered(answer, len(given.logged))
            self._doubted = self._doubted and not game.reached
            if self._doubted:
                raise AgentError(UNREACHED)
            # Not for a failed play: the next one may log other calls.
            if played.answered and given.logged and self._log is not None:
                await self._log(context.scope, given.logged)
            self._count(played)
            return played
        except (TimeoutError, AgentError) as e:
            return game.failed(e)
        finally:
            game.run_clock()
            # Only after the address is closed, so that the program can send no further request.
            await relay.aclose()
            self._tell_overrides(relay)
            self._tell_waits(monotonic() - began, game.clock.own_s)

    def _tell_overrides(self, relay: Relay) -> None:
        """Notify the user once of each configured key that the program overrides."""
        new = {k: v for k, v in relay.overrides.items() if k not in self._overridden}
        if not new:
            return
        self._overridden |= new.keys()
        values = [
            f"{key} {brief(repr(sent), SHOWN)} (configured: {brief(repr(configured), SHOWN)})"
            for key, (sent, configured) in new.items()
        ]
        self._notice(
            f"the agent sends its own {', '.join(values)}, which overrides the config: remove it"
            " from the agent's program, or configure the same value (docs/agents.md)"
        )

    def _tell_waits(self, played_s: float, own_s: float) -> None:
        """Notify the user once if waiting programs occupy the workers and more would help."""
        self._played_s += played_s
        self._own_s += own_s
        self._rollouts += 1
        workers, waited = self._where.workers, 1 - self._own_s / max(self._played_s, 1e-9)
        if not workers or self._said_waits or self._rollouts < 2 * workers or waited < MOSTLY:
            return
        self._said_waits = True
        self._notice(
            f"the agent's {count(workers, 'worker')} waited for its model {waited:.0%} of the time:"
            f" agent.workers: {4 * workers} would play more at once (0: as many as"
            " rollout_concurrency, in threads of this process)"
        )

    def _count(self, played: Trajectory) -> None:
        """Notify the user once if answers arrive without requests, so costs go unrecorded."""
        self._answers += played.outcome == "ok"
        self._silent += played.unasked
        if played.unasked and self._silent == SILENT:
            self._notice(
                f"{self._silent} of the first {self._answers} answers came without a request to"
                f" the rollout's address; {UNASKED}"
            )

    async def _run(self, program: Coroutine[Any, Any, str], game: "_Game") -> str:
        """Return the program's answer; the program has ended, even if an error is raised."""
        work = asyncio.create_task(program)
        over = asyncio.create_task(game.over())
        try:
            await asyncio.wait((work, over, game.stopped), return_when=asyncio.FIRST_COMPLETED)
            if game.stopped.done():
                raise game.stopped.result()
            if not work.done():
                over.result()
                raise TimeoutError
            return work.result()
        finally:
            over.cancel()
            work.cancel()
            ended, deaf = await asyncio.wait((work, over), timeout=GRACE_S)
            # Read the exceptions, or asyncio prints that they were never retrieved.
            _ = [task.exception() for task in ended if not task.cancelled()]
            if deaf and not self._noticed:
                self._noticed = True
                self._notice("the agent does not end when it is cancelled, so it is abandoned")


class _Game:
    """One play of a rollout: its requests, and the error that ended it."""

    def __init__(
        self, relay: Relay, limit_s: float, place: Place, begins_within_s: float | None
    ) -> None:
        self._relay, self.clock, self._place = relay, Clock(limit_s), place
        self._begins_within_s, self._begun = begins_within_s, asyncio.Event()
        self._waits = ExitStack()
        if begins_within_s is None:
            self._begun.set()
        else:
            self._waits.enter_context(self.clock.asking())
        self.reached = False
        """Whether the program has reached its address."""
        self.stopped = asyncio.get_running_loop().create_future()
        """Error that ended the play before the program finished."""
        self._lost: EndpointError | None = None
        """Error of the last request; None if the request was answered."""

    def begin(self) -> None:
        """Start the clock, because the program has reached its address."""
        self.reached = True
        self.run_clock()

    def run_clock(self) -> None:
        """Start the clock."""
        self._begun.set()
        self._waits.close()

    async def over(self) -> None:
        """Wait until the rollout's time is over; raise AgentError if the program does not begin."""
        try:
            async with asyncio.timeout(self._begins_within_s):
                await self._begun.wait()
        except TimeoutError:
            raise AgentError(
                f"the program did not begin within {self._begins_within_s:g} s"
            ) from None
        await self.clock.over()

    async def ask(self, request: ChatRequest) -> Reply:
        """Answer a request from the program, or raise RequestError."""
        try:
            # Stop the clock for this wait as well: a wait for the turn to compute is not the
            # program's own time.
            with self.clock.asking() as took:
                async with self._place.asking():
                    reply = await self._relay(request, limit_s=self.clock.left_s)
                took(reply.own_s)
        except (RequestError, asyncio.CancelledError):
            raise
        except EndpointError as e:
            self._lost = e
            raise _request_error(e) from None
        except Exception as e:  # noqa: BLE001 - no such error is the program's fault
            if not self.stopped.done():
                self.stopped.set_result(e)
            raise RequestError("the rollout has ended", status=503, kind="server_error") from None
        self._lost = None
        return reply

    def answered(self, answer: str, logged: int) -> Trajectory:
        """Return the trajectory with that answer; the program logged this many tool calls."""
        lost = self._lost
        if lost is not None and not isinstance(lost, ContextOverflowError | ContentFilterError):
            # The program answered without the reply it had requested: the endpoint is to blame.
            return self._failed(lost)
        text = redactor.text(clean(answer))
        outcome, why = outcome_of(Reply({"role": "assistant", "content": text}))
        ended = trajectory(outcome, [], self._relay.replies, error=why)
        played = self._with_transcript(ended, answer_of(text))
        # A program may log calls whose results are in its requests, too.
        return replace(played, tool_calls=max(played.tool_calls, logged))

    def failed(self, error: TimeoutError | AgentError) -> Trajectory:
        """Return a trajectory without an answer, blamed on the endpoint if that failed last."""
        return self._failed(self._lost if self._lost and isinstance(error, AgentError) else error)

    def _failed(self, error: TimeoutError | AgentError | EndpointError) -> Trajectory:
        ended = failed_trajectory(error, self.clock.limit_s, [], self._relay.replies)
        return self._with_transcript(ended, "")

    def _with_transcript(self, ended: Trajectory, response: str) -> Trajectory:
        messages = self._relay.transcript
        tools = sum(message.get("role") == "tool" for message in messages)
        return replace(ended, response=response, transcript=messages, tool_calls=tools)


class Clock:
    """A stopwatch for a program's own time, which starts immediately.

    The clock is paused while requests are in flight. Each request then adds the duration of its
    response; a stored response adds the time it originally took. Simultaneous requests count once.
    """

    def __init__(self, limit_s: float) -> None:
        self.limit_s = limit_s
        self._own, self._since = 0.0, monotonic()
        self._asking = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def left_s(self) -> float:
        """Seconds left until the limit; negative once the limit is exceeded."""
        running = 0.0 if self._asking else monotonic() - self._since
        return self.limit_s - self._own - running

    @property
    def own_s(self) -> float:
        """Seconds so far; negative if a stored response took longer than the elapsed time."""
        return self.limit_s - self.left_s

    @contextmanager
    def asking(self) -> Iterator[Callable[[float], None]]:
        """Pause the clock during a request; the request may report its own duration in seconds."""
        # Settle the time so far: it stands still until the last request has ended.
        start = self._own = self.limit_s - self.left_s
        self._asking += 1
        self._idle.clear()
        took = [0.0]
        try:
            yield took.append
        finally:
            # Use the maximum, not the sum: concurrent requests share their time.
            self._own = max(self._own, start + took[-1])
            self._asking -= 1
            if not self._asking:
                self._since = monotonic()
                self._idle.set()

    async def over(self) -> None:
        """Wait until the limit is reached."""
        while True:
            await self._idle.wait()
            if (left_s := self.left_s) <= 0:
                return
            # Check again afterwards: requests may have paused the clock in the meantime.
            await asyncio.sleep(left_s)


def _request_error(error: EndpointError) -> RequestError:
    """Return the error response in a form that the program's client library understands."""
    if isinstance(error, ContextOverflowError):
        return RequestError(str(error), param="messages", code="context_length_exceeded")
    if isinstance(error, ContentFilterError):
        return RequestError(str(error), code="content_filter")
    status = error.status or 502
    if status >= 400 and not is_transient(status):
        return RequestError(str(error), status=status)
    return RequestError(str(error), status=502, kind="server_error")
