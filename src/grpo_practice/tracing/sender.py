"""Sending of spans to a collector, with the reason if the collector refuses them."""

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Self

import httpx

from grpo_practice.core.redact import redactor
from grpo_practice.core.text import brief
from grpo_practice.tracing.collector import Collector
from grpo_practice.tracing.otlp import encoded
from grpo_practice.tracing.spans import Span

WAIT_S = 10.0
"""Timeout for a collector that does not respond, in seconds."""
MOST_SPANS = 256
"""Maximum number of spans per request, because collectors limit its size."""
_LATER = (408, 429, 500, 502, 503, 504)
"""HTTP statuses after which the collector may accept the same spans later."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason why a collector refused spans."""

    why: str
    lasts: bool
    """Whether a retry would be useless."""


class Sender:
    """Connection to a collector; also a context manager."""

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        headers = {**collector.headers, "content-type": "application/x-protobuf"}
        if collector.gzip:
            headers["content-encoding"] = "gzip"
        # No redirects: headers and texts must go only to the configured host.
        self._client = httpx.Client(headers=headers, timeout=WAIT_S, follow_redirects=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._client.close()

    def send(self, spans: Sequence[Span], wait_s: float = WAIT_S) -> Refusal | None:
        """Send the spans once; return the first refusal, or None if all were accepted.

        `wait_s` applies to each request of up to `MOST_SPANS` spans.
        """
        for start in range(0, len(spans), MOST_SPANS):
            refusal = self._post(spans[start : start + MOST_SPANS], wait_s)
            if refusal is not None:
                return refusal
        return None

    def _post(self, spans: Sequence[Span], wait_s: float) -> Refusal | None:
        shown = self._collector.shown
        body = encoded(spans, self._collector.project)
        if self._collector.gzip:
            # The fastest level: most collectors are on this machine, and the run needs the CPU.
            body = gzip.compress(body, 1)
        try:
            with self._client.stream(
                "POST", self._collector.url, content=body, timeout=max(wait_s, 0.01)
            ) as response:
                status = response.status_code
                # Read the short response so that the connection can be reused, but no more.
                for _ in islice(response.iter_raw(), 4):
                    pass
        except httpx.TimeoutException:
            return Refusal(f"{shown} does not answer", lasts=False)
        except (httpx.HTTPError, httpx.InvalidURL) as e:
            why = brief(redactor.text(str(e)), 200) or type(e).__name__
            return Refusal(f"{shown} cannot be reached: {why}", lasts=False)
        match status:
            case _ if 200 <= status < 300:
                return None
            case _ if 300 <= status < 400:
                return Refusal(
                    f"{shown} redirects ({status}), and redirects are not followed", lasts=True
                )
            case 401 | 403 | 407:
                return Refusal(f"{shown} requires a login (HTTP {status})", lasts=True)
            case _:
                return Refusal(f"{shown} answers HTTP {status}", lasts=status not in _LATER)
