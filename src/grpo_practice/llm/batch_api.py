"""Files and batches of an endpoint: requests that it answers within a day, for less money."""

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
"""Statuses of a batch that change no more."""
PATIENT_TRIES = 100
"""Number of tries of a request that only reads, so that a night's outage does not end a run."""
_LONGEST_S = 60.0
"""Maximum wait in seconds between two tries, unless the endpoint asks for a longer one."""
_PAGE = 100
"""Number of batches in one page of the endpoint's list."""
_MOST_PAGES = 20
_RESULTS = 2048 * MEBIBYTE
"""Maximum number of bytes in a file of results."""


DOWNLOADS = 3
"""Maximum number of downloads of results that seem to be cut off."""
Results = Mapping[str, tuple[int, Any]]
"""`custom_id` → HTTP status and body, for each request with a result; the status is 0 if the batch
ended without the request.
"""


class TooLargeError(Exception):
    """Error of a batch that the endpoint takes in smaller parts; the message is the endpoint's."""


class UnknownBatchError(Exception):
    """The endpoint knows no batch of this name."""


@dataclass(frozen=True, slots=True)
class RemoteBatch:
    """A batch as the endpoint describes it."""

    id: str
    status: str
    input_file: str = ""
    files: tuple[str, ...] = ()
    """IDs of the files with its results; none before it has ended."""
    answered: int = 0
    """Number of requests that have a result, if the endpoint counts them."""
    fault: str = ""
    """Reason for the status `failed`."""
    too_large: bool = False
    """Whether that reason is that more tokens wait at the endpoint than it allows."""


class BatchApi:
    """The Files and Batch API of an endpoint, with retries.

    Raises:
        EndpointRefusedError: The endpoint refuses the request, or stays unusable.
    """

    def __init__(self, endpoint: Endpoint, http: Http, emit: Emit, sleep: Sleep) -> None:
        self._endpoint, self._http, self._emit, self._sleep = endpoint, http, emit, sleep
        self._answered = False

    @property
    def target(self) -> str:
        """Path that the requests of a batch name."""
        return f"/v1{APIS[self._endpoint.api].PATH}"

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
        body = await self._ask("POST", "/files", form.read(), kind=form.headers["content-type"])
        return self._name(body, "a file")

    async def create(self, file_id: str) -> RemoteBatch:
        """Create the batch of an uploaded file.

        Raises:
            TooLargeError: The endpoint takes no batch of this size.
        """
        asked = {
            "input_file_id": file_id,
            "endpoint": self.target,
            "completion_window": "24h",
        }
        sent = 0

        async def once() -> RemoteBatch:
            nonlocal sent
            # A lost response may be that of a created batch, and a second batch would cost twice.
            known = await self.find(file_id) if sent else None
            if known is not None:
                return known
            sent += 1
            raw = await self._once("POST", "/batches", json.dumps(asked).encode())
            return self._batch(read_json(raw)[1])

        return await self._repeated(once, self._endpoint.max_tries)

    async def find(self, file_id: str) -> RemoteBatch | None:
        """Return the batch of an uploaded file; None if there is none among the newest."""
        after: dict[str, str] = {}
        for _ in range(_MOST_PAGES):
            query = {"limit": str(_PAGE), **after}
            body = await self._ask("GET", "/batches", query=query, tries=PATIENT_TRIES)
            rows = body.get("data") if isinstance(body, dict) else None
            batches = [self._batch(row) for row in rows] if isinstance(rows, list) else []
            if found := [batch for batch in batches if batch.input_file == file_id]:
                return found[0]
            if not (batches and body.get("has_more")):
                break
            after = {"after": batches[-1].id}
        return None

    async def get(self, batch_id: str) -> RemoteBatch:
        """Return the present state of a batch; raise UnknownBatchError for an unknown one."""
        path = f"/batches/{quote(batch_id, safe='')}"
        return self._batch(await self._ask("GET", path, tries=PATIENT_TRIES, named=True))

    async def cancel(self, batch_id: str) -> None:
        """Let the endpoint answer no more requests of a batch than it has begun."""
        await self._ask("POST", f"/batches/{quote(batch_id, safe='')}/cancel", named=True)

    async def results(self, batch: RemoteBatch) -> Results:
        """Return the results of a batch; a line that is cut off counts as no result."""
        found = dict[str, tuple[int, Any]]()
        for _ in range(DOWNLOADS):
            is_whole = True
            for file in batch.files:
                for line in await self._lines(file):
                    result = _result_of(line)
                    is_whole &= result is not None or not line.strip()
                    if result is not None:
                        found.setdefault(result[0], result[1:])
            if is_whole and len(found) >= batch.answered:
                break
        return found

    async def _lines(self, file_id: str) -> Sequence[bytes]:
        path = f"/files/{quote(file_id, safe='')}/content"
        once = partial(self._once, "GET", path, most=_RESULTS, named=True)
        try:
            return (await self._repeated(once, PATIENT_TRIES)).split(b"\n")
        except UnknownBatchError:  # endpoints delete old files
            return ()

    def _batch(self, body: Any) -> RemoteBatch:
        name = self._name(body, "a batch")
        counts, errors = body.get("request_counts"), body.get("errors")
        done = counts.get("completed") if isinstance(counts, dict) else 0
        faults = errors.get("data") if isinstance(errors, dict) else None
        first = faults[0] if isinstance(faults, list) and faults else {}
        first = first if isinstance(first, dict) else {"message": first}
        files = (body.get(key) for key in ("output_file_id", "error_file_id"))
        return RemoteBatch(
            id=name,
            status=str(body.get("status")),
            input_file=str(body.get("input_file_id") or ""),
            files=tuple(file for file in files if isinstance(file, str) and file),
            answered=done if isinstance(done, int) else 0,
            fault=shown(str(first.get("message") or first.get("code") or "no reason given")),
            too_large="token_limit" in str(first.get("code")),
        )

    def _name(self, body: Any, what: str) -> str:
        name = body.get("id") if isinstance(body, dict) else None
        if isinstance(name, str) and name:
            return name
        raise EndpointRefusedError(
            f"{place(self._http.url)}: the response does not describe {what}: {shown(str(body))}",
            hint=self.live_hint,
        )

    @property
    def live_hint(self) -> str:
        """Option with which requests are sent at once."""
        return f"--set {self._endpoint.section}.batch=false"

    async def _ask(
        self, method: str, path: str, content: bytes = b"", *, tries: int = 0, **how: Any
    ) -> Any:
        """Return the JSON of a 2xx response."""
        once = partial(self._once, method, path, content, **how)
        raw = await self._repeated(once, tries or self._endpoint.max_tries)
        return read_json(raw)[1]

    async def _repeated(self, once: Callable[[], Awaitable[T]], tries: int) -> T:
        """Return the result of a request, which is repeated as the table of retries says."""
        for n in range(1, tries + 1):
            try:
                return await once()
            except AgainError as e:
                again = e.retry
            wait_s = again.after_s or min(2.0**n, _LONGEST_S)
            if n < tries:
                where, asked = place(self._http.url), again.after_s is not None
                self._emit(RetryWaits(where, status_of(again), wait_s, asked))
                await self._sleep(wait_s)
        raise _final(again.error)

    async def _once(
        self,
        method: str,
        path: str,
        content: bytes = b"",
        *,
        named: bool = False,
        **how: Any,
    ) -> bytes:
        """Return the body of a 2xx response; `named`: a 404 is about the name in the path.

        For the other arguments, see `Http.request`.
        """
        came = await self._http.request(method, path, content, **how)
        if isinstance(came, ConnectionFailure):
            decision = decide_broken(came, answered=self._answered)
        else:
            self._answered, (status, headers, raw) = True, came
            if 200 <= status < 300:
                return raw
            decision = self._decide(status, headers, raw, named=named)
        if isinstance(decision, Retry):
            raise AgainError(decision)
        raise _final(decision.error)

    def _decide(
        self, status: int, headers: Mapping[str, str], raw: bytes, *, named: bool
    ) -> Retry | Fail:
        text, body = read_json(raw)
        answer = Response(status, headers, text, body, place(self._http.url))
        if status == 404 and named:
            raise UnknownBatchError(shown(text))
        if status == 413:
            raise TooLargeError(shown(text))
        if status in (404, 405, 501):
            said = f"{answer.url} offers no batches: HTTP {status}, {shown(text) or 'no message'}"
            return Fail(EndpointRefusedError(said, hint=self.live_hint))
        decision = decide(answer, {}, self._endpoint)
        if isinstance(decision, Retry | Fail):
            return decision
        return Fail(EndpointError(f"{answer.url}: HTTP {status}, {shown(text)}", status=status))


def _final(error: EndpointError | EndpointRefusedError) -> EndpointRefusedError:
    """Return the error that ends the run: without its batch, none of its requests is answered."""
    if isinstance(error, EndpointRefusedError):
        return error
    return EndpointRefusedError(str(error), hint="run the same command again: it continues")


def _result_of(line: bytes) -> tuple[str, int, Any] | None:
    """Return custom_id, HTTP status and body of a line of results; None for any other text.

    A request without an HTTP response, as after the end of its day, has the status 0.
    """
    row = read_json(line)[1]
    if not isinstance(row, dict) or not isinstance(row.get("custom_id"), str):
        return None
    response = row.get("response")
    if not isinstance(response, dict):
        return row["custom_id"], 0, row.get("error")
    status = response.get("status_code")
    return row["custom_id"], status if isinstance(status, int) else 200, response.get("body")
