"""Requests sent in batches, which an endpoint answers within a day for less money.

Each batch is recorded before it is sent, with the ledger keys of its requests. A later command that
makes one of these requests waits for that batch, and sends only requests without a usable result.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Self, TypeVar

from grpo_practice.core.batch_log import BatchLog, CallKey, StoredBatch, custom_id
from grpo_practice.core.calls import Reply, Request, Send
from grpo_practice.core.errors import EndpointError, EndpointRefusedError, UnderWay
from grpo_practice.core.events import BatchWaits, Notice
from grpo_practice.core.stages import goes_in_batches
from grpo_practice.core.text import count
from grpo_practice.llm.admission import Admission
from grpo_practice.llm.api import APIS, Bodies, adapted_text, completion
from grpo_practice.llm.batch_api import (
    ENDED,
    BatchApi,
    RemoteBatch,
    Results,
    TooLargeError,
    UnknownBatchError,
)
from grpo_practice.llm.budget import Ask
from grpo_practice.llm.chat_completions import read_reply, read_usage
from grpo_practice.llm.endpoint import Endpoint, place, shown_url
from grpo_practice.llm.http import Http, encode_body
from grpo_practice.llm.http_response import Response, shown
from grpo_practice.llm.prices import priced
from grpo_practice.llm.rate_limit import Sleep
from grpo_practice.llm.retry_policy import Adapt, Fail, Retry, RetryDecision, decide

T = TypeVar("T")
Pile = tuple[str, str]
"""Stage and model of the requests that share a batch."""

MOST_REQUESTS = 50_000
"""Maximum number of requests in a batch, as documented for OpenAI's endpoint."""
MOST_BYTES = 200_000_000
"""Maximum size of the file of a batch, as documented there."""
QUIET_S = 1.0
"""Seconds without another request after which the collected requests are sent."""
FIRST_POLL_S, LAST_POLL_S = 1.0, 60.0
"""Seconds before the first look at a batch, and the longest wait between two looks."""
LOST_AFTER = timedelta(days=2)
"""Age beyond which a batch that is unknown to its endpoint must have ended."""


class Batches:
    """Sends the requests of a run to one endpoint in batches; an async context with its own tasks.

    Requests are collected until none is added for `QUIET_S` while nothing else is under way. Each
    stage has its own batches.

    Args:
        endpoint: Address and settings; its prices are those of batches.
        log: Record of the run's batches.
        admission: Gate of every request; a request in a batch counts against the caps until it is
            answered.
        enabled: Whether requests that no recorded batch contains are sent in batches, too.
        sleep: Waits between two looks at a batch.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        log: BatchLog,
        admission: Admission,
        *,
        enabled: bool = True,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._endpoint = replace(endpoint, stream=False)
        self._log, self._admission, self._enabled = log, admission, enabled
        self._sleep = sleep
        self._url = shown_url(endpoint.base_url)
        self._where = place(endpoint.base_url)
        self._bodies = Bodies(self._endpoint)
        self._earlier = {custom_id(call): b for b in log.unread() for call in b.calls}
        """`custom_id` → newest earlier batch that contains the request."""
        self._earlier_results = dict[int, asyncio.Task[Results]]()
        """ID of an earlier batch → the task that waits for its results."""
        self._piles = dict[Pile, tuple[dict[CallKey, bytes], asyncio.Task[Results]]]()
        """Lines collected for the next batch, and the task that will send them."""
        self._collected = 0
        self._more = ": you can stop this command and run it again to continue"
        self._tasks = set[asyncio.Task[Any]]()

    async def __aenter__(self) -> Self:
        self._http, self._api = self._opened()
        return self

    def _opened(self) -> tuple[Http, BatchApi]:
        http = Http(self._endpoint, 4, None)
        return http, BatchApi(self._endpoint, http, self._admission.emit, self._sleep)

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._http.aclose()

    async def send(
        self, call: CallKey, live: Send, request: Request, *, limit_s: float | None = None
    ) -> Reply:
        """Return the reply to a request, which is sent in a batch or by `live`.

        Args:
            call: Address, hash and `nth` of the request.
            live: Function that sends a request at once.
            request: The request.
            limit_s: Limit in seconds of a request sent at once; it does not apply to batches.

        Raises:
            EndpointError: The request got no usable answer.
            EndpointRefusedError: The endpoint rejects all requests.
        """
        try:
            reply = await self._batched(call, request)
        except EndpointRefusedError as e:
            await self._admission.drain(e)
            # A new error for each request, since they have tracebacks of their own.
            raise EndpointRefusedError(str(e), hint=e.hint, broken=e.broken) from None
        return await live(request, limit_s=limit_s) if reply is None else reply

    async def _batched(self, call: CallKey, request: Request) -> Reply | None:
        """Return the reply to a request in a batch; None if it is to be sent at once."""
        earlier = self._earlier.pop(custom_id(call), None)
        joins = self._enabled and goes_in_batches(call[0].stage)
        tries = 1
        for _ in range(self._endpoint.max_tries):
            if earlier is not None:
                wait = partial(self._results_of, earlier)
            elif joins:
                wait = partial(self._collect, call, request)
            else:
                return None
            match await self._result(call, request, tries, wait, is_sent=earlier is not None):
                case Reply() as reply:
                    return reply
                case Adapt() as change:
                    error = self._adapt(request.model, change)
                case Fail(error=error) if earlier is None:
                    break
                case Retry(error=error) | Fail(error=error):
                    # A request that its batch left out was not tried.
                    tries += getattr(error, "status", None) is not None
            earlier = None
        if isinstance(error, EndpointError):
            error.tries = tries
        raise error

    def _adapt(self, model: str, change: Adapt) -> EndpointError:
        """Send requests with this change from now on; return the error of a request without it."""
        where = shown_url(self._http.url)
        if self._bodies.adapt(model, change):
            self._admission.emit(Notice(adapted_text(model, where, change)))
        return EndpointError(f"{where}: `{change.name}` is not accepted")

    async def _result(
        self,
        call: CallKey,
        request: Request,
        tries: int,
        wait: Callable[[], Awaitable[Results]],
        *,
        is_sent: bool,
    ) -> Reply | RetryDecision:
        """Return a request's result in the awaited batch; meanwhile, caps count the request."""
        sent = self._bodies.body(request)
        price = self._endpoint.price(request.model, self._http.url)
        ask = Ask.of(request, len(encode_body(sent)), price)
        async with self._admission.enter(ask, in_batch=True, is_sent=is_sent) as tried:
            tried.sent()
            status, body = (await wait()).get(custom_id(call), (0, None))
            answer, is_paid = self._response(status, body), 200 <= status < 300
            if is_paid and isinstance(answer.body, dict):
                tried.answered(read_usage(answer.body.get("usage")))
            else:
                tried.refused()
        if status == 0:
            why = f": {shown(json.dumps(body))}" if body else ""
            return Retry(EndpointError(f"{self._where}: the batch ended without it{why}"))
        decision = decide(answer, sent, self._endpoint, replied=True)
        if decision is not None:
            if not isinstance(decision, Adapt) and isinstance(decision.error, EndpointError):
                decision.error.maybe_paid = is_paid
            return decision
        # No seconds, since nobody knows how long the model took.
        reply = read_reply(answer, asked=request.model, tries=tries, seconds=0.0)
        if "seed" in request.params and "seed" not in sent:
            reply = replace(reply, seeded=False)
        return priced(reply, price)

    def _response(self, status: int, raw: Any) -> Response:
        """Return a result in the form of a response that came at once."""
        api, body = self._endpoint.api, raw
        # `type` may have been changed since the request was sent.
        forms = [name for name in (api, *APIS) if APIS[name].recognises(raw)]
        try:
            body = completion(next(iter(forms), api), raw) if 200 <= status < 300 else raw
        except ValueError as e:
            body = {"error": {"message": str(e)}}
        return Response(status, {}, json.dumps(raw), body, shown_url(self._http.url))

    async def _collect(self, call: CallKey, request: Request) -> Results:
        """Add a request to the next batch of its stage, and return the results of that batch."""
        pile = call[0].stage, request.model
        if pile not in self._piles:
            lines = dict[CallKey, bytes]()
            self._piles[pile] = lines, self._begin(self._send_collected(pile, lines))
        lines, sent = self._piles[pile]
        line = {
            "custom_id": custom_id(call),
            "method": "POST",
            "url": self._api.request_path,
            "body": self._bodies.body(request),
        }
        lines[call] = encode_body(line)
        self._collected += 1
        return await asyncio.shield(sent)

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _send_collected(self, pile: Pile, lines: dict[CallKey, bytes]) -> Results:
        """Send the collected requests once no further request is expected; return the results."""
        before = -1
        while before != self._collected or not self._admission.is_quiet:
            before = self._collected
            await self._log.flushed()
            await self._sleep(QUIET_S)
        del self._piles[pile]
        if left := self._admission.held_back:
            text = f"{count(left, 'request')} may exceed the caps, and wait for the next batch"
            self._admission.emit(Notice(text))
        return await self._send_parts(pile, lines)

    async def _send_parts(self, pile: Pile, lines: Mapping[CallKey, bytes]) -> Results:
        """Send the requests in a batch, or in halves if it would be too large."""
        size = sum(len(line) + 1 for line in lines.values())
        if len(lines) == 1 or (len(lines) <= MOST_REQUESTS and size <= MOST_BYTES):
            try:
                return await self._send_batch(pile, lines)
            except TooLargeError:
                if len(lines) == 1:
                    raise
        rows, half = [*lines.items()], len(lines) // 2
        # One after the other, since the endpoint limits the tokens that wait there.
        first = await self._send_parts(pile, dict(rows[:half]))
        return {**first, **await self._send_parts(pile, dict(rows[half:]))}

    async def _send_batch(self, pile: Pile, lines: Mapping[CallKey, bytes]) -> Results:
        if self._admission.stopped is not None:
            # Wait until cancelled: the command is ending.
            await asyncio.Event().wait()
        stored = self._log.begin(pile[1], self._url, lines.keys())
        try:
            file_id = await self._api.upload(b"\n".join(lines.values()) + b"\n")
            self._log.update(stored.id, file_id=file_id)
            remote = await self._api.create(file_id)
        except TooLargeError:
            self._log.update(stored.id, status="failed")
            raise
        self._log.update(stored.id, remote_id=remote.id)
        remote, results = await self._wait(stored, remote.id)
        if remote.status == "failed":
            kind = TooLargeError if remote.too_large else EndpointRefusedError
            what = f"{self._where}: the batch was rejected: {remote.fault}"
            raise kind(what, hint=self._api.live_hint)
        return results

    async def _results_of(self, stored: StoredBatch) -> Results:
        """Return the results of an earlier command's batch; empty if it was never created."""
        if stored.id not in self._earlier_results:
            self._earlier_results[stored.id] = self._begin(self._read_earlier(stored))
        return await asyncio.shield(self._earlier_results[stored.id])

    async def _read_earlier(self, stored: StoredBatch) -> Results:
        if stored.url != self._url:
            if stored.status is not None:
                return {}
            asked = count(len(stored.calls), "request")
            raise EndpointRefusedError(
                f"a batch of {asked}, sent at {stored.sent}, is under way at {stored.url}, but its"
                f" model is now at {self._url}",
                hint=f"--set {self._endpoint.section}.base_url={stored.url}",
            )
        try:
            name = stored.remote_id
            if name is None and stored.file_id is not None:
                remote = await self._api.find(stored.file_id)
                name = remote.id if remote else None
            if name is None:
                self._log.update(stored.id, status="failed")
                return {}
            self._log.update(stored.id, remote_id=name)
            return (await self._wait(stored, name))[1]
        except UnknownBatchError:
            if datetime.now(UTC) - datetime.fromisoformat(stored.created_at) > LOST_AFTER:
                self._log.update(stored.id, status="expired")
                return {}
            raise

    async def _wait(self, stored: StoredBatch, name: str) -> tuple[RemoteBatch, Results]:
        """Return a batch once it has ended, and its results.

        Raises:
            EndpointRefusedError: Somebody has cancelled the batch meanwhile.
        """
        stage, asked = next(iter(stored.calls))[0].stage, count(len(stored.calls), "request")
        what = f"a batch of {asked} ({stage}) at {self._where}, sent at {stored.sent}"
        self._admission.under_way[name] = UnderWay(what, partial(self._cancel, name))
        emit = self._admission.emit
        try:
            first = remote = await self._api.get(name)
            if remote.status not in ENDED:
                emit(Notice(f"waiting for {what}, which may take 24 hours{self._more}"))
                emit(BatchWaits(name, what))
                self._more = ""
            wait_s = FIRST_POLL_S
            while remote.status not in ENDED:
                await self._sleep(wait_s)
                wait_s = min(wait_s * 1.5, LAST_POLL_S)
                remote = await self._api.get(name)
            results = await self._api.results(remote)
        finally:
            emit(BatchWaits(name, None))
            self._admission.under_way.pop(name, None)
        if remote.status == "expired":
            emit(Notice(f"{what} has expired: requests without a reply are sent again"))
        if remote.status == "failed" and any(status for status, _ in results.values()):
            # It failed on its way: its replies are paid, and only the others are missing.
            remote = replace(remote, status="expired")
        self._log.update(stored.id, status=remote.status)
        if remote.status == "cancelled" and not first.status.startswith("cancel"):
            # A person did this, so the rest is not sent until a person says so.
            hint = "run the same command again to use its replies and send the other requests"
            raise EndpointRefusedError(f"{self._where}: the batch was cancelled", hint=hint)
        return remote, results

    async def _cancel(self, name: str) -> None:
        """Cancel a batch; the connections of its run may be closed already."""
        http, api = self._opened()
        try:
            await api.cancel(name)
        finally:
            await http.aclose()
