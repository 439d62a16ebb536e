"""Requests sent in batches, which an endpoint answers within a day for less money.

Each batch is recorded before it is sent, with the ledger keys of its requests. A later command that
makes one of these requests waits for that batch, and sends only requests without a usable result.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

from grpo_practice.core.batched import (
    BatchLog,
    CallKey,
    StoredBatch,
    custom_id,
    has_company,
)
from grpo_practice.core.calls import Reply, Request, Send
from grpo_practice.core.errors import EndpointError, EndpointRefusedError, UnderWay
from grpo_practice.core.events import Notice
from grpo_practice.core.stages import Stage
from grpo_practice.core.text import count
from grpo_practice.llm.admission import Admission
from grpo_practice.llm.api import Bodies, adapted_text, completion
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
from grpo_practice.llm.http_response import OtherApiError, Response, shown
from grpo_practice.llm.prices import priced
from grpo_practice.llm.rate_limit import Sleep
from grpo_practice.llm.retry_policy import Adapt, Fail, Retry, RetryDecision, decide

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
MOST_REQUESTS = 50_000
"""Maximum number of requests in a batch, as documented for OpenAI's endpoint."""
MOST_BYTES = 200_000_000
"""Maximum size of the file of a batch, as documented there."""
QUIET_S = 1.0
"""Seconds without another request after which the collected requests are sent."""
FIRST_POLL_S, LAST_POLL_S = 1.0, 60.0
"""Seconds before the first look at a batch, and the longest wait between two looks."""
LATE_S = 10.0
"""Seconds in which an endpoint that was asked for a batch lists it, even if nobody waited."""
KEPT = timedelta(days=2)
"""Age from which a batch that its endpoint does not know has certainly ended."""


CANCELLED = "cancelled"
"""Body of the result of a request whose batch somebody cancelled while this command waited."""


@dataclass(slots=True)
class _Pile:
    """Requests that are collected for a batch."""

    lines: dict[str, bytes] = field(default_factory=dict)
    """`custom_id` → line of the file."""
    results: asyncio.Future[Results] = field(default_factory=asyncio.Future)


class Batches:
    """The requests of one model of a run, sent in batches; an async context that owns its tasks.

    Requests are collected until none is added for `QUIET_S` while nothing else is under way. Each
    stage has its own batches.

    Args:
        endpoint: Address and settings; its prices are those of batches.
        log: Record of the run's batches.
        admission: Gate of every request; a request in a batch counts against the caps until it is
            answered.
        enabled: Whether requests that no recorded batch contains are sent in batches, too.
        transport: Replaces the network (for tests).
        sleep: Waits between two looks at a batch.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        log: BatchLog,
        admission: Admission,
        *,
        enabled: bool = True,
        transport: "httpx.AsyncBaseTransport | None" = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._endpoint = replace(endpoint, stream=False)
        self._log, self._admission, self._enabled = log, admission, enabled
        self._transport, self._sleep = transport, sleep
        self._url = shown_url(endpoint.base_url)
        self._where = place(endpoint.base_url)
        self._bodies = Bodies(self._endpoint)
        self._earlier = {key: batch for batch in log.unread() for key in batch.keys}
        """`custom_id` → newest earlier batch that contains the request."""
        self._read = dict[int, asyncio.Task[Results]]()
        """ID of an earlier batch → the task that waits for its results."""
        self._piles = dict[tuple[Stage, str], _Pile]()
        self._made = 0
        self._tasks = set[asyncio.Task[Any]]()
        self._closing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._http = Http(self._endpoint, 4, self._transport)
        self._api = BatchApi(self._endpoint, self._http, self._admission.emit, self._sleep)
        return self

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
            limit_s: Limit in seconds of a request sent at once; the wait for a batch has none.

        Raises:
            EndpointError: The request got no usable answer.
            EndpointRefusedError: The endpoint rejects all requests.
        """
        key, stage = custom_id(call), call[0].stage
        earlier = self._earlier.pop(key, None)
        if earlier is not None:
            came = await self._result(key, request, 1, partial(self._results_of, earlier))
            if isinstance(came, Reply):
                return came
        follows = any(message.get("role") == "assistant" for message in request.messages)
        if follows or not (self._enabled and has_company(stage)):
            return await live(request, limit_s=limit_s)
        collect = partial(self._collect, key, stage, request)
        for n in range(1, self._endpoint.max_tries + 1):
            match await self._result(key, request, n, collect):
                case Reply() as reply:
                    return reply
                case Adapt() as change:
                    error = self._adapt(request.model, change)
                case Retry(error=error):
                    pass
                case Fail(error=error):
                    break
        if isinstance(error, EndpointError):
            error.tries = n
        raise error

    def _adapt(self, model: str, change: Adapt) -> EndpointError:
        """Send requests with this change from now on; return the error of a request without it."""
        where = shown_url(self._http.url)
        if self._bodies.adapt(model, change):
            self._admission.emit(Notice(adapted_text(model, where, change)))
        return EndpointError(f"{where}: `{change.name}` is not accepted")

    async def _result(
        self, key: str, request: Request, tries: int, wait: Callable[[], Awaitable[Results]]
    ) -> Reply | RetryDecision:
        """Return a request's result in the awaited batch; meanwhile, caps count the request."""
        body = self._bodies.body(request)
        price = self._endpoint.price(request.model, self._http.url)
        most = request.params.get("max_tokens")
        size = len(encode_body(body))
        ask = Ask(request.model, size, most if isinstance(most, int) else None, price)
        async with self._admission.enter(ask, in_batch=True) as tried:
            tried.sent()
            try:
                results = await wait()
            except EndpointRefusedError as e:
                await self._admission.drain(e)
                # A new error for each request, since they have tracebacks of their own.
                raise EndpointRefusedError(str(e), hint=e.hint, broken=e.broken) from None
            status, said = results.get(key, (0, None))
            if 200 <= status < 300 and isinstance(said, dict):
                tried.answered(read_usage(said.get("usage")))
            else:
                tried.refused()
        if status == 0:
            what = f"{self._where}: the batch ended without this request"
            if said == CANCELLED:
                hint = "run the same command again: it sends the rest in another batch"
                error = EndpointRefusedError(f"{self._where}: the batch was cancelled", hint=hint)
                await self._admission.drain(error)
                raise error
            why = f": {shown(json.dumps(said))}" if said else ""
            return Retry(EndpointError(what + why))
        answer = self._response(status, said)
        decision = decide(answer, body, self._endpoint, replied=True)
        if decision is not None:
            return decision
        # No seconds, since nobody knows how long the model took.
        reply = read_reply(answer, asked=request.model, tries=tries, seconds=0.0)
        if "seed" in request.params and "seed" not in body:
            reply = replace(reply, seeded=False)
        return priced(reply, price)

    def _response(self, status: int, said: Any) -> Response:
        """Return a result in the form of a response that came at once."""
        body, other = said, None
        try:
            body = completion(self._endpoint.api, said) if status < 300 else said
        except OtherApiError as e:
            other = str(e)
        except ValueError as e:
            body = {"error": {"message": str(e)}}
        where = shown_url(self._http.url)
        return Response(status, {}, json.dumps(said), body, where, other)

    async def _collect(self, key: str, stage: Stage, request: Request) -> Results:
        """Add a request to the next batch of its stage, and return the results of that batch."""
        pile = self._piles.setdefault((stage, request.model), _Pile())
        line = {
            "custom_id": key,
            "method": "POST",
            "url": self._api.target,
            "body": self._bodies.body(request),
        }
        pile.lines[key] = encode_body(line)
        self._made += 1
        if self._closing is None:
            self._closing = self._begin(self._send_when_quiet())
        return await asyncio.shield(pile.results)

    def _begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _send_when_quiet(self) -> None:
        """Send the collected requests once no other is to be expected."""
        made = -1
        while made != self._made or not self._admission.is_quiet:
            made = self._made
            await self._sleep(QUIET_S)
        piles, self._piles, self._closing = self._piles, {}, None
        for (stage, model), pile in piles.items():
            self._begin(self._send_pile(stage, model, pile))

    async def _send_pile(self, stage: Stage, model: str, pile: _Pile) -> None:
        try:
            parts = [self._batch(stage, model, part) for part in _parts(pile.lines)]
            pile.results.set_result(_joined(await asyncio.gather(*parts)))
        except Exception as e:  # noqa: BLE001 - each waiting request raises it
            pile.results.set_exception(e)
            pile.results.exception()  # asyncio complains of an error that no task has seen

    async def _batch(self, stage: Stage, model: str, lines: Mapping[str, bytes]) -> Results:
        """Send a batch and return its results; send halves if the endpoint finds it too large."""
        stored = self._log.begin(stage, model, self._url, [*lines])
        try:
            file_id = await self._api.upload(b"\n".join(lines.values()) + b"\n")
            self._log.uploaded(stored.id, file_id)
            remote = await self._api.create(file_id)
            self._log.created(stored.id, remote.id)
            remote, results = await self._wait(stored, remote.id)
            if remote.too_large:
                raise TooLargeError(remote.fault)
        except TooLargeError as e:
            self._log.ended(stored.id, "failed")
            if len(lines) == 1:
                what = f"{self._where}: takes not even a single request in a batch: {e}"
                raise EndpointRefusedError(what, hint=self._api.live_hint) from None
            half = len(lines) // 2
            all_ = [*lines.items()]
            # One after the other, since the endpoint limits what waits there at one time.
            halves = [await self._batch(stage, model, dict(x)) for x in (all_[:half], all_[half:])]
            return _joined(halves)
        except UnknownBatchError as e:
            raise EndpointRefusedError(f"{self._where}: the batch is lost: {e}") from None
        if remote.status == "failed":
            what = f"{self._where}: the batch was rejected: {remote.fault}"
            raise EndpointRefusedError(what, hint=self._api.live_hint)
        if remote.status == "cancelled":
            # A person did this, so the rest is not sent again until a person says so.
            gone = {key: (0, CANCELLED) for key in lines if results.get(key, (0, None))[0] == 0}
            return {**results, **gone}
        return results

    async def _results_of(self, batch: StoredBatch) -> Results:
        """Return the results of a batch that an earlier command began; {} if it never was sent."""
        if batch.id not in self._read:
            self._read[batch.id] = self._begin(self._read_earlier(batch))
        return await asyncio.shield(self._read[batch.id])

    async def _read_earlier(self, batch: StoredBatch) -> Results:
        said = f"a batch of {count(len(batch.keys), 'request')}, recorded at {batch.created_at},"
        if batch.url != self._url:
            raise EndpointRefusedError(
                f"{said} is under way at {batch.url}, but its model is now at {self._url}",
                hint=f"--set {self._endpoint.section}.base_url={batch.url}",
            )
        name = batch.remote_id
        if name is None and batch.file_id is not None:
            name = await self._found(batch.file_id)
        if name is None:
            self._log.ended(batch.id, "failed")
            return {}
        if batch.remote_id is None:
            self._log.created(batch.id, name)
        try:
            return (await self._wait(batch, name))[1]
        except UnknownBatchError:
            if datetime.now(UTC) - datetime.fromisoformat(batch.created_at) > KEPT:
                self._log.ended(batch.id, "expired")
                return {}
            raise EndpointRefusedError(
                f"{self._where}: {said} is not known there",
                hint=f"is the API key in {self._endpoint.key_name} that of another account?",
            ) from None

    async def _found(self, file_id: str) -> str | None:
        """Return the name of the batch of a file; None if it was never created."""
        for wait_s in (LATE_S, 0.0):
            if (remote := await self._api.find(file_id)) is not None:
                return remote.id
            # The command may have been killed a moment ago, and the batch be listed only now.
            await self._sleep(wait_s)
        return None

    async def _wait(self, batch: StoredBatch, name: str) -> tuple[RemoteBatch, Results]:
        """Return a batch once it has ended, and its results."""
        look_s, told = FIRST_POLL_S, f"{count(len(batch.keys), 'request')} ({batch.stage})"
        self._admission.batches[name] = UnderWay(
            f"a batch of {told} is under way at {self._where}", partial(self._cancel, name)
        )
        try:
            while (remote := await self._api.get(name)).status not in ENDED:
                if look_s == FIRST_POLL_S:
                    text = f"waiting up to a day for a batch of {told} at {self._where}"
                    more = "this command may be stopped, and the same command continues"
                    self._admission.emit(Notice(f"{text}: {more}"))
                await self._sleep(look_s)
                look_s = min(look_s * 1.5, LAST_POLL_S)
            results = await self._api.results(remote)
        finally:
            del self._admission.batches[name]
        self._log.ended(batch.id, remote.status)
        return remote, results

    async def _cancel(self, name: str) -> None:
        """Cancel a batch; the connections of its run may be closed already."""
        http = Http(self._endpoint, 1, self._transport)
        try:
            await BatchApi(self._endpoint, http, self._admission.emit, self._sleep).cancel(name)
        finally:
            await http.aclose()


def _parts(lines: Mapping[str, bytes]) -> Iterator[dict[str, bytes]]:
    """Yield the requests in parts within the documented limits of a batch."""
    part, size = dict[str, bytes](), 0
    for key, line in lines.items():
        if part and (len(part) == MOST_REQUESTS or size + len(line) >= MOST_BYTES):
            yield part
            part, size = {}, 0
        part[key] = line
        size += len(line) + 1
    yield part


def _joined(results: Sequence[Results]) -> Results:
    return {key: line for part in results for key, line in part.items()}
