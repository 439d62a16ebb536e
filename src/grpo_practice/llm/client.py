"""The client of one endpoint: a request becomes a reply, whatever it takes."""

import asyncio
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from grpo_practice.calls import Reply, Request, Send
from grpo_practice.canonical import clean_json
from grpo_practice.errors import EndpointError, EndpointRefusedError, GrpoPracticeError
from grpo_practice.llm.admission import Admission, Try
from grpo_practice.llm.budget import Ask
from grpo_practice.llm.concurrency import STUDENT, Limit
from grpo_practice.llm.endpoint import Endpoint, shown_url
from grpo_practice.llm.http import Http, chat_url
from grpo_practice.llm.http_response import ConnectionFailure, Response
from grpo_practice.llm.prices import Price, priced
from grpo_practice.llm.rate_limit import RateLimit, Route, Sleep, now
from grpo_practice.llm.reply import read_reply, read_usage
from grpo_practice.llm.request_body import Bodies
from grpo_practice.llm.retry_after import in_words
from grpo_practice.llm.retry_policy import Adapt, Fail, Retry, RetryDecision, decide, decide_broken

if TYPE_CHECKING:
    import httpx

_backoff = wait_random_exponential(multiplier=2, max=60)  # full jitter: 0 to 2, 4, 8 … 60 s
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
_POSTPONED = 3
"""How often in a row, at least, an endpoint asks for a day or so before the run is stopped."""


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
    since: float = 0.0
    """When it is at the earliest: the end of what it has waited for."""
    sent: int = 0
    maybe_paid: bool = False
    warned: bool = False
    """True after an answer that gets one more try only."""
    address: RateLimit | None = None
    """Where the last try went; so with all that follows."""
    price: Price | None = None
    cuts: int = 0
    """How often the limit had been cut by then."""
    outs: int = 0
    """How often that address had been put out by then."""
    under_way: bool = False
    status: int | None = None
    seconds: float = 0.0


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
        sleep: Waits, between tries and for an endpoint that asked for it.
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
        self._http = Http(endpoint, limit.n, transport)
        paces = self._admission.paces
        urls = [str(chat_url(base, endpoint)) for base in endpoint.base_urls]
        self._route = Route([paces.address(url) for url in urls], sleep)
        self._rate = paces.rate(endpoint.base_urls)
        self._rate.cap(endpoint.requests_per_minute, endpoint.tokens_per_minute)
        self._turns = itertools.count()
        self._bodies = Bodies(endpoint)
        self._answered = False
        self._postponed = 0
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
            limit_s: The most seconds the caller has for the answered try. Waits for a slot, for
                the endpoint, between tries and for tries that failed do not count.
            priority: Lower goes first.

        Raises:
            TimeoutError: `limit_s` was reached; the request may have been billed.
            EndpointError: This request got no usable answer.
            EndpointRefusedError: No request will.

        Where anything but an `EndpointError` ends a request that was sent, a cancellation too, the
        exception's cause is one: it says what is known of the tries.
        """
        if limit_s is not None and limit_s <= 0:
            raise TimeoutError("no time left for a request")
        own_limit = limit_s is not None and limit_s <= self._endpoint.timeout_s
        deadline_s = limit_s if limit_s is not None and own_limit else self._endpoint.timeout_s
        call = _Call(request, priority, deadline_s, own_limit, next(self._turns))
        try:
            return await self._retried(call)
        except BaseException as e:
            if call.sent and not isinstance(e, EndpointError):
                e.__cause__ = _lost(e, call)
            if isinstance(e, EndpointRefusedError):
                await self._admission.land(e)
            raise

    async def _retried(self, call: _Call) -> Reply:
        try:
            return await self._try(call)
        except _AgainError as e:
            first = [e]  # most calls end before this: what follows costs more than a whole try

        async def again() -> Reply:
            if first:
                raise first.pop()  # it counts as a try, and is waited after
            return await self._try(call)

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(_AgainError),
            stop=stop_after_attempt(self._endpoint.max_tries),
            wait=_wait_s,
            sleep=self._rest,
            reraise=True,
        )
        try:
            return await retrying(again)
        except _AgainError as e:
            raise self._final(e.retry.error, call) from None

    async def _rest(self, seconds: float) -> None:
        if seconds:
            await self._sleep(seconds)

    async def _try(self, call: _Call) -> Reply:
        """One try, repeated only to adapt the request to the endpoint."""
        while True:
            body = self._bodies.of(call.request)
            came = await self._exchange(call, body)
            match self._read(call, came, body):
                case Reply() as reply:
                    return reply
                case Adapt() as change:
                    self._adapt(call.request.model, change)
                case Retry(once=once) as again if not (once and call.warned):
                    call.warned |= once
                    raise _AgainError(again)
                case Retry(error=error) | Fail(error=error):
                    raise self._final(error, call)

    async def _exchange(self, call: _Call, body: dict[str, Any]) -> Response | ConnectionFailure:
        """What one POST brought, after all the waits there are."""
        content = _written(body)
        while True:
            call.since = await self._route.opened(call.since)
            async with self._limit.slot(call.priority):
                self._raise_refusal()
                address = self._route.pick(call.start + call.sent, call.since)
                if address is None:  # all were closed while this one waited for its slot
                    continue
                ask = self._ask(call, address.url, len(content))
                tokens = self._admission.account.estimate(ask).tokens
                await self._rate.turn(tokens, call.priority, self._sleep)
                async with self._admission.enter(ask) as tried:
                    self._raise_refusal()  # it may have come while this one waited
                    if not self._route.takes(address, call.since):  # and so may this
                        continue
                    call.address = address
                    with address.asked():
                        came = await self._post(call, content, tried)
                self._rate.came_to(tried.came_to.tokens, tokens)
                return came

    async def _post(self, call: _Call, content: bytes, tried: Try) -> Response | ConnectionFailure:
        """What the POST brought; the call says what is known of it."""
        assert call.address is not None
        url, call.cuts, call.under_way = call.address.url, self._limit.cuts, True
        call.outs = call.address.outs
        tried.sent()
        call.sent += 1
        start = now()
        try:
            async with asyncio.timeout(call.deadline_s):
                came, begun = await self._http.post(url, content)
        except TimeoutError:
            if call.own_limit:
                self._pass_over(call, "deadline")
                raise TimeoutError(f"no answer within {call.deadline_s:g} s") from None
            text = f"{call.deadline_s:g} s are over"
            came, begun = ConnectionFailure("deadline", text, shown_url(url)), True
        call.seconds, call.under_way = now() - start, False
        call.status = came.status if isinstance(came, Response) else None
        call.maybe_paid |= begun
        _settle(tried, came, begun=begun)
        return came

    def _read(
        self, call: _Call, came: Response | ConnectionFailure, body: dict[str, Any]
    ) -> Reply | RetryDecision:
        """The reply in an answer, or what to do without one; who is concerned learns of it."""
        assert call.address is not None
        if isinstance(came, ConnectionFailure):
            self._pass_over(call, came.kind)
            return decide_broken(came, answered=self._answered)
        self._answered = True
        decision = decide(came, body, self._endpoint.key_name)
        if decision is None:
            call.address.answered()
            return self._reply(call, came, body)
        if isinstance(decision, Retry) and (_status(decision) or 0) >= 500:
            self._pass_over(call, str(_status(decision)))
        if isinstance(decision, Retry) and decision.after_s is not None:
            call.address.asked_to_wait(decision.after_s)
        if isinstance(decision, Fail) and decision.after_s is not None:
            decision = self._postpone(decision, decision.after_s)
        if call.status == 429 or _status(decision) == 429:
            self._limit.cut(call.cuts)
        return decision

    def _pass_over(self, call: _Call, why: str) -> None:
        """The others are asked meanwhile, if there are any; a person learns of it."""
        assert call.address is not None
        if self._route.put_out(call.address, call.outs):
            where = urlsplit(shown_url(call.address.url)).netloc
            self._notice(f"{where} does not answer ({why}): the others are asked meanwhile")

    def _reply(self, call: _Call, came: Response, body: dict[str, Any]) -> Reply:
        self._postponed = 0
        asked = call.request.model
        reply = read_reply(came, asked=asked, tries=call.sent, seconds=call.seconds)
        if "seed" in call.request.params and "seed" not in body:
            reply = replace(reply, seeded=False)
        return priced(reply, call.price)

    def _postpone(self, told: Fail, after_s: float) -> Fail:
        """The one request fails; when the endpoint says so to every request, the run stops."""
        self._postponed += 1
        if self._postponed < max(_POSTPONED, self._limit.held):
            return told
        hint = f"run the same command again in {in_words(after_s)}"
        return Fail(EndpointRefusedError(str(told.error), hint=hint))

    def _ask(self, call: _Call, url: str, size: int) -> Ask:
        """What the admission has to know of a try."""
        model, most = call.request.model, call.request.params.get("max_tokens")
        call.price = self._endpoint.price(model, url)
        return Ask(model, size, most if isinstance(most, int) else None, call.price)

    def _adapt(self, model: str, change: Adapt) -> None:
        if self._bodies.adapt(model, change):
            what = "is left out" if change.to is None else f"is sent as `{change.to}`"
            where = shown_url(self._route.addresses[0].url)
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
            refusal = self._refusal
            raise EndpointRefusedError(str(refusal), hint=refusal.hint, broken=refusal.broken)


def _written(body: dict[str, Any]) -> bytes:
    """The body as JSON in UTF-8, lone surrogates replaced."""
    try:
        return _JSON.encode(body).encode()
    except UnicodeEncodeError:
        return _JSON.encode(clean_json(body)).encode()


def _settle(tried: Try, came: Response | ConnectionFailure, *, begun: bool) -> None:
    """What the try came to is on record; one that broke may have been billed in full."""
    if begun and isinstance(came, Response) and isinstance(came.body, dict):
        tried.answered(read_usage(came.body.get("usage")))
    elif not begun and not (isinstance(came, ConnectionFailure) and came.kind == "cut"):
        tried.refused()


def _status(decision: RetryDecision) -> int | None:
    """The HTTP status behind a decision, also where a 200 hides it."""
    error = None if isinstance(decision, Adapt) else decision.error
    return error.status if isinstance(error, EndpointError) else None


def _lost(error: BaseException, call: _Call) -> EndpointError:
    """What is known of the tries of a request that was ended by something else."""
    lost = EndpointError(
        str(error) or "it was cancelled",
        maybe_paid=call.maybe_paid or call.under_way,
        tries=call.sent,
        status=call.status,
        broken=error.broken if isinstance(error, EndpointRefusedError) else None,
    )
    lost.kind = error.kind if isinstance(error, GrpoPracticeError) else type(error).__name__
    return lost


def _wait_s(state: RetryCallState) -> float:
    """A random backoff; nothing where the endpoint asked for a wait, which everybody observes."""
    error = state.outcome and state.outcome.exception()
    assert isinstance(error, _AgainError)
    return _backoff(state) if error.retry.after_s is None else 0.0
