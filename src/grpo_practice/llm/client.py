"""Client of one endpoint: sends a request, with retries, and returns the reply."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
)

from grpo_practice.core.calls import Reply, Request, Send, reasoning_chars
from grpo_practice.core.errors import EndpointError, EndpointRefusedError
from grpo_practice.llm.admission import Admission, Try
from grpo_practice.llm.api import Bodies, adapted_text
from grpo_practice.llm.budget import Ask
from grpo_practice.llm.chat_completions import read_reply, read_usage
from grpo_practice.llm.concurrency import STUDENT, Limit
from grpo_practice.llm.cut_streams import CutStreams
from grpo_practice.llm.endpoint import Endpoint, host, place, shown_url
from grpo_practice.llm.http import Http, encode_body
from grpo_practice.llm.http_response import ConnectionFailure, Response, kind_of
from grpo_practice.llm.open_files import fewer_notice
from grpo_practice.llm.prices import Price, priced
from grpo_practice.llm.rate_limit import Sleep, now
from grpo_practice.llm.retry_after import in_words
from grpo_practice.llm.retry_policy import Adapt, Fail, Retry, RetryDecision, decide, decide_broken
from grpo_practice.llm.retry_wait import AgainError, status_of, wait_event, wait_s
from grpo_practice.llm.size_limit import MEBIBYTE

if TYPE_CHECKING:
    import httpx

_POSTPONED = 3
"""Fewest consecutive requests that the endpoint must defer for hours before the run is stopped."""

_NOTABLE = 0.25
"""Share of the size limit above which a notice reports the size of a reply."""


@dataclass(slots=True)
class _Call:
    """One `send` in progress."""

    request: Request
    priority: int
    deadline_s: float
    """Deadline of one try."""
    own_limit: bool
    """Whether that deadline is the caller's; missing it is then not the endpoint's fault."""
    since: float = 0.0
    """Earliest time of the next try: the end of the last wait."""
    sent: int = 0
    order: int = 0
    """Number of requests that the client had sent by the last try."""
    maybe_paid: bool = False
    warned: bool = False
    """Whether a response permitted only one more try."""
    # All fields below are about the last try.
    price: Price | None = None
    cuts: int = 0
    """Value of the limit's `cuts` when the try was sent."""
    under_way: bool = False
    status: int | None = None
    seconds: float = 0.0
    waited_s: float = 0.0
    """Seconds before its stream began."""


class Client:
    """A client of one endpoint, with as many requests in flight as `limit` allows.

    All retries happen here and nowhere else. Once the endpoint has permanently rejected us, every
    further `send` raises immediately, including those waiting for a slot or for their next try: a
    rejected key costs no more than the requests in flight.

    Args:
        endpoint: Address, and settings sent with each request.
        limit: Concurrency limit, which other clients may share.
        notice: Called once for each fact that a person should know.
        admission: Gate of every try, shared by all clients of a command.
        transport: Replaces the network (for the simulated endpoint and the tests).
        sleep: Waits between tries and for an endpoint that asked for a wait.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        limit: Limit,
        *,
        notice: Callable[[str], None],
        admission: Admission | None = None,
        transport: "httpx.AsyncBaseTransport | None" = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._endpoint = endpoint
        self._limit = limit
        self._notice = notice
        self._admission = admission or Admission()
        self._sleep = sleep
        # As many connections as slots: with fewer, requests would wait for one within their
        # deadline.
        self._http = Http(endpoint, limit.n, transport)
        if self._http.at_once < limit.n:
            notice(fewer_notice(host(endpoint.base_url), self._http.at_once, limit.n))
            limit.lower(self._http.at_once)
        self._address = self._admission.waits[self._http.url]
        self._line = self._admission.lines[self._http.url]
        self._rate = self._admission.rates[endpoint.base_url]
        self._rate.cap(endpoint.requests_per_minute, endpoint.tokens_per_minute)
        self._bodies = Bodies(endpoint)
        self._answered = self._replied = self._told_of_size = False
        self._streams = CutStreams()
        self._postponed = 0
        self._refusal: EndpointRefusedError | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    def sender(self, priority: int) -> Send:
        """Return `send` with that priority."""
        return partial(self.send, priority=priority)

    async def send(
        self, request: Request, *, limit_s: float | None = None, priority: int = STUDENT
    ) -> Reply:
        """Send a request and return the endpoint's reply, with secrets redacted.

        Args:
            request: The request, which is adapted to the settings that the endpoint accepts.
            limit_s: Seconds that the caller allows for the successful try. Failed tries and waits
                for a slot, for the endpoint and between tries do not count, nor, in a stream, the
                wait in the line of a server that is sending other answers.
            priority: A lower number is served first.

        Raises:
            TimeoutError: `limit_s` was reached; the request may have been billed.
            EndpointError: This request got no usable answer.
            EndpointRefusedError: The endpoint rejects all requests.

        If any error other than an `EndpointError`, including a cancellation, ends a request that
        was sent, its cause is an `EndpointError` with the facts known about the tries.
        """
        if limit_s is not None and limit_s <= 0:
            raise TimeoutError("no time left for a request")
        own_limit = limit_s is not None and limit_s <= self._endpoint.timeout_s
        deadline_s = limit_s if limit_s is not None and own_limit else self._endpoint.timeout_s
        call = _Call(request, priority, deadline_s, own_limit)
        try:
            return await self._retried(call)
        except BaseException as e:
            # The ledger reads the cause: a cancelled request may have been billed and must be
            # recorded.
            if call.sent and not isinstance(e, EndpointError):
                e.__cause__ = _endpoint_error(e, call)
            if isinstance(e, EndpointRefusedError):
                # Drain before raising: the error cancels the other tasks, whose replies may
                # already be billed.
                await self._admission.drain(e)
            raise

    async def _retried(self, call: _Call) -> Reply:
        try:
            return await self._try(call)
        except AgainError as e:
            # Use tenacity only from here on: it costs more than a whole try.
            first = [e]

        async def again() -> Reply:
            if first:
                raise first.pop()  # counts as a try and causes a wait
            return await self._try(call)

        async def rest(seconds: float) -> None:
            if seconds:
                await self._sleep(seconds)

        def tell(state: RetryCallState) -> None:
            self._admission.emit(wait_event(place(self._http.url), state, call.deadline_s))

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(AgainError),
            stop=stop_after_attempt(self._endpoint.max_tries),
            wait=wait_s,
            sleep=rest,
            before_sleep=tell,
            reraise=True,
        )
        try:
            return await retrying(again)
        except AgainError as e:
            raise self._final(e.retry.error, call) from None

    async def _try(self, call: _Call) -> Reply:
        """Try once; repeat only to adapt the request to the endpoint."""
        while True:
            body = self._bodies.body(call.request)
            async with self._streams.turn():
                response = await self._exchange(call, body)
            match self._read(call, response, body):
                case Reply() as reply:
                    return reply
                case Adapt() as change:
                    self._adapt(call.request.model, change)
                case Retry(once=once) as again if not (once and call.warned):
                    call.warned |= once
                    raise AgainError(again)
                case Retry(error=error) | Fail(error=error):
                    raise self._final(error, call)

    async def _exchange(self, call: _Call, body: dict[str, Any]) -> Response | ConnectionFailure:
        """Post the body after all waits are over."""
        content = encode_body(body)
        while True:
            # Wait before taking a slot: a request for a closed address must not block others.
            call.since = await self._address.opened(call.since, self._sleep)
            async with self._limit.slot(call.priority):
                self._raise_refusal()
                # It may have closed during the wait for a slot.
                if not self._address.takes(call.since):
                    continue
                ask = self._ask(call, len(content))
                tokens = self._admission.account.estimate(ask).tokens
                # Take the turn after the slot: a turn is a start time, which would have passed
                # by the time a slot is free.
                await self._rate.turn(tokens, call.priority, self._sleep)
                # Enter last: from here on, an amount is reserved from the caps and a stop waits
                # for it.
                async with self._admission.enter(ask) as tried:
                    # Check both again, since either may have changed during the last waits.
                    self._raise_refusal()
                    if not self._address.takes(call.since):
                        continue
                    response = await self._post(call, content, tried)
                self._rate.came_to(tried.came_to.tokens, tokens)
                return response

    async def _post(self, call: _Call, content: bytes, tried: Try) -> Response | ConnectionFailure:
        """Post the body and record the outcome on the call."""
        call.cuts, call.under_way, call.waited_s = self._limit.cuts, True, 0.0
        # Count before the await: a request cancelled in flight may be billed.
        tried.sent()
        call.sent += 1
        call.order = self._streams.sent()
        start = now()
        try:
            # Cover the whole exchange: a server that sends byte by byte resets a read timeout
            # each time.
            if self._endpoint.stream:
                async with self._line.deadline(call.deadline_s) as turn:
                    response, begun = await self._http.post(content, turn.arrived)
                    call.waited_s = turn.waited_s
            else:
                async with asyncio.timeout(call.deadline_s):
                    response, begun = await self._http.post(content)
        except TimeoutError:
            if call.own_limit:
                # No retry: the caller has no time left.
                raise TimeoutError(f"no answer within {call.deadline_s:g} s") from None
            text = f"{call.deadline_s:g} s have passed"
            # True, since the whole request was sent and may have been billed.
            response, begun = ConnectionFailure("deadline", text, shown_url(self._http.url)), True
        call.seconds, call.under_way = now() - start, False
        call.status = response.status if isinstance(response, Response) else None
        # Keep it once any try began to be answered: a later failure does not undo the bill.
        call.maybe_paid |= begun
        if begun and isinstance(response, Response) and isinstance(response.body, dict):
            tried.answered(read_usage(response.body.get("usage")))
        elif not begun and not (
            isinstance(response, ConnectionFailure) and response.kind == "cut"
        ):  # one that was cut off may have been billed in full
            tried.refused()
        return response

    def _read(
        self, call: _Call, response: Response | ConnectionFailure, body: dict[str, Any]
    ) -> Reply | RetryDecision:
        """Return the reply, or the decision on how to proceed without one; adjust the limits."""
        if isinstance(response, ConnectionFailure):
            if response.kind == "oversize":  # too large a response is still a response
                self._answered = True
            stream = self._endpoint.stream
            return decide_broken(response, answered=self._answered, stream=stream)
        # An error is also a response. From now on, a failed connection is a temporary fault and
        # no sign of a wrong base_url.
        self._answered = True
        decision = decide(response, body, self._endpoint, replied=self._replied)
        if decision is None:
            reply = self._reply(call, response, body)
            return self._streams.decide(reply, response, call.order) or reply
        if isinstance(decision, Retry) and decision.after_s is not None:
            self._address.asked_to_wait(decision.after_s)
        if isinstance(decision, Fail) and decision.after_s is not None:
            decision = self._postpone(decision, decision.after_s)
        if call.status == 429 or status_of(decision) == 429:
            self._limit.cut(call.cuts)
        return decision

    def _reply(self, call: _Call, response: Response, body: dict[str, Any]) -> Reply:
        self._postponed, self._replied = 0, True
        asked = call.request.model
        reply = read_reply(response, asked=asked, tries=call.sent, seconds=call.seconds)
        if call.waited_s:
            reply = replace(reply, waited_s=call.waited_s)
        self._tell_of_size(asked, response, reply)
        if "seed" in call.request.params and "seed" not in body:
            reply = replace(reply, seeded=False)
        return priced(reply, call.price)

    def _tell_of_size(self, model: str, response: Response, reply: Reply) -> None:
        """Notify a person, once, if replies approach the size limit."""
        most, size = self._endpoint.max_reply_bytes, len(response.text)
        if self._told_of_size or size < most * _NOTABLE:
            return
        self._told_of_size = True
        thought = reasoning_chars(reply.message) / MEBIBYTE
        self._notice(
            f"{model} at {response.url}: a reply of {size / MEBIBYTE:.1f} MiB, {thought:.1f} MiB of"
            f" it reasoning; the limit is {most / MEBIBYTE:g} MiB (model_provider.max_reply_mib)"
        )

    def _postpone(self, decision: Fail, after_s: float) -> Fail:
        """Fail this request, or stop the run if the endpoint defers every request."""
        self._postponed += 1
        # Concurrent requests may all be deferred together; each reply resets the count to 0.
        if self._postponed < max(_POSTPONED, self._limit.held):
            return decision
        hint = f"run the same command again in {in_words(after_s)}"
        return Fail(EndpointRefusedError(str(decision.error), hint=hint))

    def _ask(self, call: _Call, size: int) -> Ask:
        """Describe a try for the admission."""
        call.price = self._endpoint.price(call.request.model, self._http.url)
        return Ask.of(call.request, size, call.price)

    def _adapt(self, model: str, change: Adapt) -> None:
        if self._bodies.adapt(model, change):
            self._notice(adapted_text(model, shown_url(self._http.url), change))

    def _final(
        self, error: EndpointError | EndpointRefusedError, call: _Call
    ) -> EndpointError | EndpointRefusedError:
        """Complete the error with facts about the call, and remember a rejection."""
        if isinstance(error, EndpointRefusedError):
            self._refusal = error
        else:
            error.tries, error.maybe_paid = call.sent, call.maybe_paid
        return error

    def _raise_refusal(self) -> None:
        if self._refusal is not None:
            refusal = self._refusal
            # Raise a new error for each caller, because `send` sets its cause, which is specific
            # to the caller.
            raise EndpointRefusedError(str(refusal), hint=refusal.hint, broken=refusal.broken)


def _endpoint_error(error: BaseException, call: _Call) -> EndpointError:
    """Return an error with the facts known about a request that another error ended."""
    lost = EndpointError(
        str(error) or "it was cancelled",
        maybe_paid=call.maybe_paid or call.under_way,
        tries=call.sent,
        status=call.status,
        broken=error.broken if isinstance(error, EndpointRefusedError) else None,
    )
    lost.kind = kind_of(error)
    return lost
