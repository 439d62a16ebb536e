"""Files and batches of an endpoint: requests that it answers within a day, for less money."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import quote

import httpx

from grpo_practice.core.errors import EndpointError, EndpointRefusedError
from grpo_practice.core.events import Emit, RetryWaits
from grpo_practice.llm.api import APIS
from grpo_practice.llm.endpoint import Endpoint, place
from grpo_practice.llm.http import Http
from grpo_practice.llm.http_response import ConnectionFailure, Response, read_json, shown
from grpo_practice.llm.rate_limit import Sleep
from grpo_practice.llm.retry_policy import Fail, Retry, decide, decide_broken
from grpo_practice.llm.retry_wait import AgainError, status_of
from grpo_practice.llm.size_limit import MEBIBYTE

T = TypeVar("T")

ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
"""Final statuses of a batch."""
PATIENT_TRIES = 600
"""Number of tries of a request that only reads, so that a night's outage does not end a run."""
LATE_S = 10.0
"""Seconds within which the endpoint lists a new batch, and offers the results of an ended one."""
TRANSFER_S = 3_600.0
"""Deadline of a whole transfer, because a server that sends byte by byte meets any other."""
DOWNLOADS = 3
"""Maximum number of downloads of results that seem to be cut off."""
_LONGEST_S = 60.0
"""Maximum wait in seconds between two tries, unless the endpoint asks for a longer one."""
_PAGE, _MOST_PAGES = 100, 20
"""Number of batches in one page of the endpoint's list, and of pages to read."""
_MOST_BYTES = 2048 * MEBIBYTE
"""Maximum size of a file of results."""

Results = Mapping[str, tuple[int, Any]]
"""`custom_id` → HTTP status and body, for each request with a result; the status is 0 if the batch
ended without the request.
"""


class TooLargeError(EndpointRefusedError):
    """The endpoint rejects a file or a batch as too large."""


class UnknownBatchError(EndpointRefusedError):
    """The endpoint does not know the batch or the file."""


@dataclass(frozen=True, slots=True)
class RemoteBatch:
    """A batch as the endpoint describes it."""

    id: str
    status: str
    input_file: str
    files: tuple[str, ...]
    """IDs of the files with its results; none before it has ended."""
    counted: int
    """Number of requests with a response, if the endpoint counts them."""
    fault: str
    """Reason for the status `failed`."""
    too_large: bool
    """Whether the reason is that more tokens wait at the endpoint than it allows."""

    @property
    def has_results(self) -> bool:
        """Whether some request certainly has a result."""
        return self.status == "completed" or self.counted > 0


class BatchApi:
    """The Files and Batch API of an endpoint, with retries.

    Raises:
        EndpointRefusedError: The endpoint refuses the request, or stays unusable.
    """

    def __init__(self, endpoint: Endpoint, http: Http, emit: Emit, sleep: Sleep) -> None:
        self._endpoint, self._http, self._emit, self._sleep = endpoint, http, emit, sleep
        self._where = place(endpoint.base_url)
        self._answered = False

    @property
    def request_path(self) -> str:
        """Path that the requests of a batch name."""
        return f"/v1{APIS[self._endpoint.api].PATH}"

    @property
    def live_hint(self) -> str:
        """Option with which requests are sent at once."""
        return f"--set {self._endpoint.section}.batch=false"

    async def upload(self, content: bytes) -> str:
        """Upload the requests, a JSON line for each, and return the ID of the file.

        Raises:
            TooLargeError: The endpoint takes no file of this size.
        """
        form = httpx.Request(
            "POST",
            self._http.url,
            data={"purpose": "batch"},
            files={"file": ("requests.jsonl", content, "application/jsonl")},
        )
        once = partial(self._once, "POST", "/files", form.read(), kind=form.headers["content-type"])
        return self._id_in(read_json(await self._repeated(once))[1], "a file")

    async def create(self, file_id: str) -> RemoteBatch:
        """Create the batch of an uploaded file.

        Raises:
            TooLargeError: The endpoint takes no batch of this size.
        """
        asked = {"input_file_id": file_id, "endpoint": self.request_path}
        content = json.dumps({**asked, "completion_window": "24h"}).encode()
        is_first = True

        async def once() -> RemoteBatch:
            nonlocal is_first
            # A lost response may be that of a created batch, and a second batch would cost twice.
            if not is_first and (known := await self.find(file_id)):
                return known
            is_first = False
            return self._batch(read_json(await self._once("POST", "/batches", content))[1])

        return await self._repeated(once)

    async def find(self, file_id: str) -> RemoteBatch | None:
        """Return the batch of an uploaded file; None if it was never created.

        Raises:
            UnknownBatchError: The endpoint does not know the file, or lists no batches.
        """
        for wait_s in (0.0, LATE_S):
            await self._sleep(wait_s)
            if (found := await self._listed(file_id)) is not None:
                return found
        # With the key of another account, its list says nothing about the batch.
        await self._read(f"/files/{quote(file_id, safe='')}", by_name=True)
        return None

    async def _listed(self, file_id: str) -> RemoteBatch | None:
        after: dict[str, str] = {}
        for _ in range(_MOST_PAGES):
            query = {"limit": str(_PAGE), **after}
            body = await self._read("/batches", query=query, by_name=True)
            rows = body.get("data") if isinstance(body, dict) else None
            batches = [self._batch(row) for row in rows] if isinstance(rows, list) else []
            if found := [batch for batch in batches if batch.input_file == file_id]:
                return found[0]
            if not (batches and body.get("has_more")):
                break
            after = {"after": batches[-1].id}
        return None

    async def get(self, batch_id: str) -> RemoteBatch:
        """Return the present state of a batch.

        Raises:
            UnknownBatchError: The endpoint does not know the batch.
        """
        return self._batch(await self._read(f"/batches/{quote(batch_id, safe='')}", by_name=True))

    async def cancel(self, batch_id: str) -> None:
        """Cancel a batch; requests that have begun may still be answered."""
        path = f"/batches/{quote(batch_id, safe='')}/cancel"
        # One try, since a person waits for it and can ask again.
        await self._repeated(partial(self._once, "POST", path, by_name=True), 1)

    async def results(self, batch: RemoteBatch) -> Results:
        """Return the results of a batch; a line that is cut off counts as no result.

        Raises:
            UnknownBatchError: There is no result, although the endpoint answered requests.
        """
        found = dict[str, tuple[int, Any]]()
        for n in range(DOWNLOADS):
            if n:  # the files may be named, or ready, only a moment after the batch has ended
                await self._sleep(LATE_S)
                batch = await self.get(batch.id)
            is_whole = True
            for file in batch.files:
                for line in await self._lines(file):
                    result = _result_of(line)
                    is_whole &= result is not None or not line.strip()
                    if result is not None:
                        found.setdefault(result[0], result[1:])
            n_answered = sum(status > 0 for status, _ in found.values())
            if is_whole and n_answered >= batch.counted and (found or not batch.has_results):
                break
        if not found and batch.has_results:
            # Another batch would be paid, and may well be lost, too.
            raise self._unknown("has no results of the batch")
        return found

    async def _lines(self, file_id: str) -> Sequence[bytes]:
        path = f"/files/{quote(file_id, safe='')}/content"
        once = partial(self._once, "GET", path, most=_MOST_BYTES, by_name=True)
        try:
            return (await self._repeated(once, PATIENT_TRIES)).split(b"\n")
        except UnknownBatchError:  # endpoints delete old files
            return ()

    def _batch(self, body: Any) -> RemoteBatch:
        name = self._id_in(body, "a batch")
        counts, errors, status = body.get("request_counts"), body.get("errors"), body.get("status")
        if not isinstance(status, str):
            raise self._strange(body, "a batch")
        counts = counts if isinstance(counts, dict) else {}
        counted = [n for n in (counts.get("completed"), counts.get("failed")) if type(n) is int]
        faults = errors.get("data") if isinstance(errors, dict) else None
        first = faults[0] if isinstance(faults, list) and faults else {}
        first = first if isinstance(first, dict) else {"message": first}
        files = (body.get(key) for key in ("output_file_id", "error_file_id"))
        return RemoteBatch(
            id=name,
            status=status,
            input_file=str(body.get("input_file_id") or ""),
            files=tuple(file for file in files if isinstance(file, str) and file),
            counted=sum(counted),
            fault=shown(str(first.get("message") or first.get("code") or "no reason given")),
            too_large="token_limit" in str(first.get("code")),
        )

    def _id_in(self, body: Any, what: str) -> str:
        name = body.get("id") if isinstance(body, dict) else None
        if isinstance(name, str) and name:
            return name
        raise self._strange(body, what)

    def _unknown(self, why: str) -> UnknownBatchError:
        hint = (
            f"check that the API key in {self._endpoint.key_name} belongs to the account that"
            " created the batch; after two days, the same command sends its requests again"
        )
        return UnknownBatchError(f"{self._where} {why}", hint=hint)

    def _strange(self, body: Any, what: str) -> EndpointRefusedError:
        said = f"{self._where}: the response does not describe {what}: {shown(json.dumps(body))}"
        return EndpointRefusedError(said, hint=self.live_hint)

    async def _read(self, path: str, **how: Any) -> Any:
        """Return the JSON of a response that is only read."""
        once = partial(self._once, "GET", path, **how)
        return read_json(await self._repeated(once, PATIENT_TRIES))[1]

    async def _repeated(self, once: Callable[[], Awaitable[T]], tries: int | None = None) -> T:
        """Return the result of a request, which is repeated as the table of retries says."""
        last = tries or self._endpoint.max_tries
        for n in range(1, last + 1):
            try:
                return await once()
            except AgainError as e:
                again = e.retry
            if n == last or (again.once and n > 1):
                break
            wait_s = again.after_s or min(2.0**n, _LONGEST_S)
            asked = again.after_s is not None
            self._emit(RetryWaits(self._where, status_of(again), wait_s, asked))
            await self._sleep(wait_s)
        raise _final(again.error)

    async def _once(
        self, method: str, path: str, content: bytes = b"", *, by_name: bool = False, **how: Any
    ) -> bytes:
        """Return the body of a 2xx response; with `by_name`, a 404 is about the name in the path.

        For the other arguments, see `Http.request`.

        Raises:
            AgainError: The request is worth repeating.
        """
        came: tuple[int, Mapping[str, str], bytes] | ConnectionFailure
        try:
            async with asyncio.timeout(TRANSFER_S):
                came = await self._http.request(method, path, content, **how)
        except TimeoutError:
            came = ConnectionFailure("deadline", f"{TRANSFER_S:g} s have passed", self._where)
        if isinstance(came, ConnectionFailure):
            decision = decide_broken(came, answered=self._answered)
        else:
            self._answered, (status, headers, raw) = True, came
            if 200 <= status < 300:
                return raw
            if status == 413 and method == "POST":
                what = f"{self._where} does not accept even a single request in a batch: HTTP 413"
                raise TooLargeError(what, hint=self.live_hint)
            decision = self._decide(status, headers, raw, by_name=by_name)
        if isinstance(decision, Retry):
            raise AgainError(decision)
        raise _final(decision.error)

    def _decide(
        self, status: int, headers: Mapping[str, str], raw: bytes, *, by_name: bool
    ) -> Retry | Fail:
        text, body = read_json(raw)
        answer = Response(status, headers, text, body, self._where)
        said = f"HTTP {status}, {shown(text) or 'no message'}"
        if status == 404 and by_name:
            return Fail(self._unknown(f"does not know the batch: {said}"))
        if status in (404, 405, 501):
            what = f"{self._where} does not offer batches: {said}"
            return Fail(EndpointRefusedError(what, hint=self.live_hint))
        decision = decide(answer, {}, self._endpoint)
        if isinstance(decision, Retry | Fail):
            return decision
        return Fail(EndpointError(f"{self._where}: {said}", status=status))


def _final(error: EndpointError | EndpointRefusedError) -> EndpointRefusedError:
    """Return the error that ends the run: without its batch, none of its requests is answered."""
    if isinstance(error, EndpointRefusedError):
        return error
    return EndpointRefusedError(str(error), hint="run the same command again to continue")


def _result_of(line: bytes) -> tuple[str, int, Any] | None:
    """Return custom_id, HTTP status and body of a line of results; None for any other text."""
    row = read_json(line)[1]
    if not isinstance(row, dict) or not isinstance(row.get("custom_id"), str):
        return None
    response = row.get("response")
    if not isinstance(response, dict):
        return row["custom_id"], 0, row.get("error")
    status = response.get("status_code")
    return row["custom_id"], status if type(status) is int else 200, response.get("body")
