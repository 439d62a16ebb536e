"""The client of one endpoint: a request becomes a reply, whatever it takes."""

import asyncio
import itertools
import json
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from grpo_practice.calls import Reply, Request, Send
from grpo_practice.canonical import clean_json
from grpo_practice.errors import EndpointError, EndpointRefusedError
from grpo_practice.llm.admission import Admission
from grpo_practice.llm.answer import Answer, Broken
from grpo_practice.llm.endpoint import Endpoint, shown_url
from grpo_practice.llm.http import chat_url, open_http, post
from grpo_practice.llm.limit import STUDENT, Limit
from grpo_practice.llm.reply import read_reply
from grpo_practice.llm.taxonomy import Adapt, Decision, Fail, Retry, decide, decide_broken

if TYPE_CHECKING:
    import httpx

_backoff = wait_random_exponential(multiplier=2, max=60)  # full jitter: 0 to 2, 4, 8 … 60 s
_NEED_TOOLS = frozenset({"tool_choice", "parallel_tool_calls"})
"""Settings that endpoints refuse in a request without tools."""


@dataclass(slots=True)
class _Call:
    """One `send` under way."""

    request: Request
    priority: int
    deadline_s: float
    """Of one try."""
    own_limit: bool
    """True when that deadline is the caller's, and reaching it is no fault of the endpoint."""
    start: int
    """Which address its first try goes to; further tries go on from there, round and round."""
    sent: int = 0
    maybe_paid: bool = False
    warned: bool = False
    """True after an answer that gets one more try only."""


class _AgainError(Exception):
    """This try got no usable answer, and another one may."""

    def __init__(self, retry: Retry) -> None:
        super().__init__(str(retry.error))
        self.retry = retry


class Client:
    """Sends requests to one endpoint, as many at a time as `limit` lets through.

    All retries happen here and nowhere else. Once the endpoint has refused us for good, every
    further `send` raises at once, also those that wait for a slot or for their next try: a
    refused key costs the requests in flight and no more.

    Args:
        endpoint: Where to, and with what.
        limit: May be shared with other clients.
        notice: Called once for each thing a person should know.
        admission: What every try has to pass; shared by all clients of a command.
        transport: Answers instead of the network (the simulated endpoint, the tests).
        sleep: Waits between tries.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        limit: Limit,
        *,
        notice: Callable[[str], None],
        admission: Admission | None = None,
        transport: "httpx.AsyncBaseTransport | None" = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._endpoint = endpoint
        self._limit = limit
        self._notice = notice
        self._admission = admission or Admission()
        self._sleep = sleep
        self._http = open_http(endpoint, limit.n, transport)
        self._urls = [chat_url(base, endpoint) for base in endpoint.base_urls]
        self._turns = itertools.count()
        self._adapted: dict[tuple[str, str], str | None] = {}
        """(model, setting) → the name it is sent under; None when it is left out."""
        self._answered = False
        self._refusal: EndpointRefusedError | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    def sender(self, priority: int) -> Send:
        """`send` with that priority."""
        return partial(self.send, priority=priority)

    async def send(
        self, request: Request, *, limit_s: float | None = None, priority: int = STUDENT
    ) -> Reply:
        """The endpoint's reply, secrets replaced, after as many tries as it takes.

        Args:
            request: What to ask; it is adapted on the wire to what the endpoint takes.
            limit_s: The most seconds the caller has for the answered try. Waits for a slot,
                between tries and for tries that failed do not count.
            priority: Lower goes first.

        Raises:
            TimeoutError: `limit_s` was reached; the request may have been billed.
            EndpointError: This request got no usable answer.
            EndpointRefusedError: No request will.
        """
        if limit_s is not None and limit_s <= 0:
            raise TimeoutError("no time left for a request")
        own_limit = limit_s is not None and limit_s <= self._endpoint.timeout_s
        deadline_s = limit_s if limit_s is not None and own_limit else self._endpoint.timeout_s
        call = _Call(request, priority, deadline_s, own_limit, next(self._turns))
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(_AgainError),
            stop=stop_after_attempt(self._endpoint.max_tries),
            wait=_wait_s,
            sleep=self._sleep,
            reraise=True,
        )
        try:
            return await retrying(self._try, call)
        except _AgainError as e:
            raise self._final(e.retry.error, call) from None

    async def _try(self, call: _Call) -> Reply:
        """One try, repeated only to adapt the request to the endpoint."""
        while True:
            body = self._body(call.request)
            came, seconds = await self._exchange(call, body)
            decision: Decision | None
            if isinstance(came, Broken):
                decision = decide_broken(came, answered=self._answered)
            else:
                self._answered = True
                decision = decide(came, body, self._endpoint.key_name)
                if decision is None:
                    asked = call.request.model
                    return read_reply(came, asked=asked, tries=call.sent, seconds=seconds)
            match decision:
                case Adapt():
                    self._adapt(call.request.model, decision)
                case Retry(once=once) if not (once and call.warned):
                    call.warned |= once
                    raise _AgainError(decision)
                case Retry(error=error) | Fail(error=error):
                    raise self._final(error, call)

    async def _exchange(self, call: _Call, body: dict[str, Any]) -> tuple[Answer | Broken, float]:
        """What one POST brought, and the seconds it took without the wait for a slot."""
        content = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        async with self._limit.slot(call.priority):
            self._raise_refusal()
            url = self._urls[(call.start + call.sent) % len(self._urls)]
            call.sent += 1
            start = time.perf_counter()
            try:
                async with self._admission.enter(), asyncio.timeout(call.deadline_s):
                    came, begun = await post(self._http, url, content, self._endpoint)
            except TimeoutError:
                if call.own_limit:
                    raise TimeoutError(f"no answer within {call.deadline_s:g} s") from None
                text = f"{call.deadline_s:g} s are over"
                came, begun = Broken("deadline", text, shown_url(str(url))), True
        call.maybe_paid |= begun
        return came, time.perf_counter() - start

    def _body(self, request: Request) -> dict[str, Any]:
        """The request as this endpoint takes it."""
        skipped = set() if request.tools else set(_NEED_TOOLS)
        if not self._endpoint.send_seed:
            skipped.add("seed")
        body: dict[str, Any] = {"model": request.model, "messages": list(request.messages)}
        if request.tools:
            body["tools"] = list(request.tools)
        for name, value in request.params.items():
            sent_as = self._adapted.get((request.model, name), name)
            if sent_as is not None and name not in skipped:
                body[sent_as] = value
        result: dict[str, Any] = clean_json(body | dict(self._endpoint.unhashed))
        return result

    def _adapt(self, model: str, change: Adapt) -> None:
        if (model, change.name) in self._adapted:  # by a request that was in flight meanwhile
            return
        self._adapted[model, change.name] = change.to
        what = "is left out" if change.to is None else f"is sent as `{change.to}`"
        where = shown_url(str(self._urls[0]))
        self._notice(f"{model} at {where} does not take `{change.name}`: it {what} from now on")

    def _final(
        self, error: EndpointError | EndpointRefusedError, call: _Call
    ) -> EndpointError | EndpointRefusedError:
        """The error with what is known of the call; a refusal is remembered."""
        if isinstance(error, EndpointRefusedError):
            self._refusal = error
        else:
            error.tries, error.maybe_paid = call.sent, call.maybe_paid
        return error

    def _raise_refusal(self) -> None:
        if self._refusal is not None:
            raise EndpointRefusedError(str(self._refusal), hint=self._refusal.hint)


def _wait_s(state: RetryCallState) -> float:
    """What the endpoint asked for and up to a tenth more, or a random backoff."""
    error = state.outcome and state.outcome.exception()
    assert isinstance(error, _AgainError)
    if error.retry.after_s is None:
        return _backoff(state)
    return error.retry.after_s * random.uniform(1.0, 1.1)
