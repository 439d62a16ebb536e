"""A paid web service: each call is retried until the service answers or explains why not."""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from time import time
from typing import Any, Literal

from aiohttp import ClientConnectorError, ClientError, ClientSession
from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from grpo_practice.core.errors import EndpointRefusedError, is_transient
from grpo_practice.core.hashing import clean_json
from grpo_practice.core.redact import redactor
from grpo_practice.core.text import brief
from grpo_practice.llm.endpoint import environment_proxy
from grpo_practice.llm.retry_after import asked_wait_s
from grpo_practice.llm.size_limit import ENCODINGS
from grpo_practice.rollout.tools import ToolError
from grpo_practice.rollout.tools.search.bounded_body import body_of
from grpo_practice.rollout.tools.search.fence import neutral

TRIES = 4
"""Maximum attempts per request, including the first."""
REFUSALS = 3
"""Number of consecutive refusals concerning the key or the account that stop the run."""
UNREACHED = 10
"""Number of consecutive requests that could not connect, each after all attempts, that stop the
run.
"""
_MOST_BYTES = 16 * 1024 * 1024
_LONGEST_WAIT_S = 30.0
_ACCOUNT = re.compile(
    r"credit|balance|quota|unauthori[sz]ed|api[ _-]?key|authenticat", re.IGNORECASE
)
"""Words in a 400 or 403 response that show that it concerns the account, not the request."""


class _AgainError(Exception):
    """This attempt got no usable answer, but another one may."""

    def __init__(self, text: str, wait_s: float = 0.0, *, reached: bool = True) -> None:
        super().__init__(text)
        self.wait_s, self.reached = wait_s, reached


@dataclass(slots=True)
class Service:
    """A client of one service, shared by all rollouts."""

    name: str
    """Name of the service in error messages."""
    session: ClientSession
    headers: Mapping[str, str]
    """Headers of every request, including the key."""
    hint: str
    """Hint for the error raised when the service refuses all requests."""
    timeout_s: float
    """Time limit of one attempt in seconds."""
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _refused: int = field(default=0, init=False)
    _unreached: int = field(default=0, init=False)
    _why: str = field(default="", init=False)

    async def ask(self, method: Literal["GET", "POST"], url: str, **what: Any) -> dict[str, Any]:
        """Return the JSON object of the response; `what` may hold `json`, `params` and `headers`.

        Raises:
            ToolError: This request got no usable answer.
            EndpointRefusedError: The service refuses all requests.
        """
        self._stop_where_refused()
        headers = {**self.headers, "Accept-Encoding": ENCODINGS, **what.pop("headers", {})}
        try:
            async for attempt in AsyncRetrying(
                retry=retry_if_exception_type(_AgainError),
                stop=stop_after_attempt(TRIES),
                wait=_wait_s,
                sleep=self.sleep,
                reraise=True,
            ):
                with attempt:
                    body = await self._once(method, url, headers=headers, **what)
        except _AgainError as e:
            self._unreached = 0 if e.reached else self._unreached + 1
            self._stop_where_refused()
            raise ToolError(f"{self.name} {e}; try something else, or try again later") from e
        self._refused = self._unreached = 0
        return body

    def _stop_where_refused(self) -> None:
        if self._refused >= REFUSALS:
            raise EndpointRefusedError(
                f"{self.name} refused {REFUSALS} requests in a row: {self._why}", hint=self.hint
            )
        if self._unreached >= UNREACHED:
            raise EndpointRefusedError(
                f"{self.name} could not be reached {UNREACHED} times in a row",
                hint="check the network, and the toolkit's URLs",
            )

    async def _once(self, method: str, url: str, **what: Any) -> dict[str, Any]:
        # Check before each attempt: other requests may have been refused during the wait.
        self._stop_where_refused()
        try:
            async with (
                asyncio.timeout(self.timeout_s),
                self.session.request(
                    method, url, proxy=environment_proxy(url) or None, allow_redirects=False, **what
                ) as response,
            ):
                raw, whole = await body_of(response, _MOST_BYTES)
                status = response.status
                lowered = {name.lower(): value for name, value in response.headers.items()}
        except TimeoutError as e:
            raise _AgainError(f"did not answer within {self.timeout_s:g} s") from e
        except (ClientError, OSError) as e:
            text = f"could not be reached ({type(e).__name__})"
            raise _AgainError(text, reached=not isinstance(e, ClientConnectorError)) from e
        except ValueError as e:  # aiohttp raises it for a malformed response
            raise _AgainError("gave no readable answer") from e
        body = _object(raw) if whole else None
        if status == 200 and body is not None:
            return body
        self._refuse(status, body, asked_wait_s(lowered, status, time()) or 0.0)
        raise _AgainError("gave no readable answer")

    def _refuse(self, status: int, body: dict[str, Any] | None, wait_s: float) -> None:
        """Raise the error for a response, unless it is a 200 without an answer.

        Raises:
            _AgainError: Another attempt may succeed.
            ToolError: No other attempt would succeed.
            EndpointRefusedError: No other request would succeed.
        """
        said = _error_text(body)
        if status in (401, 402) or (status in (400, 403) and _ACCOUNT.search(said)):
            self._refused += 1
            self._why = f"HTTP {status}{said}"
            self._stop_where_refused()
            raise ToolError(f"{self.name} refused: HTTP {status}{said}")
        if is_transient(status):
            raise _AgainError(f"answers with HTTP status {status}{said}", wait_s)
        if status != 200:
            raise ToolError(f"{self.name} cannot do that: HTTP {status}{said}")


def _wait_s(state: RetryCallState) -> float:
    """Return the wait before the next attempt: full jitter, but at least the requested wait."""
    error = state.outcome.exception() if state.outcome else None
    asked = min(error.wait_s, _LONGEST_WAIT_S) if isinstance(error, _AgainError) else 0.0
    return max(asked, wait_random_exponential(multiplier=1, max=8)(state))


def _object(raw: bytes) -> dict[str, Any] | None:
    try:
        # A byte-order mark is dropped: json.loads() would refuse it.
        value = clean_json(json.loads(raw.decode("utf-8-sig", "replace")))
    except (ValueError, RecursionError):
        return None
    return redactor.value(value) if isinstance(value, dict) else None


def _error_text(body: dict[str, Any] | None) -> str:
    """Return the message in an error body, formatted to follow the status."""
    for name in ("readableMessage", "message", "error", "name"):
        text = (body or {}).get(name)
        if isinstance(text, str) and text:
            return f" ({brief(neutral(text), 200)})"
    return ""
