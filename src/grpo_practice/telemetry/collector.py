"""How spans get to a collector: by the library, in one thread, without redirects."""

import logging
import os
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from grpo_practice.errors import ConfigError
from grpo_practice.redact import redactor
from grpo_practice.telemetry.settings import NAME, PHOENIX, Collector
from grpo_practice.telemetry.spans import Span
from grpo_practice.text import brief

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

REQUEST_S = 5.0
"""Longest wait for an answer to one request, with all its tries."""
INSTALL = 'install it: pip install "grpo-practice[trace]"'


def is_installed() -> bool:
    """Return whether the libraries of the extra `trace` are there."""
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http.trace_exporter") is not None
    except ModuleNotFoundError:  # of a package above it
        return False


class Refused(Exception):
    """Spans were not taken; `lasting` where trying again is of no use."""

    def __init__(self, why: str, *, lasting: bool) -> None:
        super().__init__(redactor.text(why))
        self.lasting = lasting


class Sender:
    """A connection to a collector; only one thread may send.

    Raises:
        ConfigError: The libraries that it takes are not installed.
    """

    def __init__(self, collector: Collector) -> None:
        self._collector = collector
        if not is_installed():
            raise ConfigError(f"tracing ({collector.variable}) is not installed", hint=INSTALL)
        from opentelemetry.sdk.resources import Resource

        self._session = _session(collector)
        self.closed = False
        self._exporter = self._open()
        self._resource = Resource.create(
            {
                "service.name": os.environ.get("OTEL_SERVICE_NAME") or NAME,
                "openinference.project.name": collector.project,
            }
        )

    def _open(self) -> "OTLPSpanExporter":
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        # The library logs each request that fails, on stderr where nobody set up logging.
        for name in ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "urllib3"):
            logging.getLogger(name).addHandler(logging.NullHandler())
            logging.getLogger(name).propagate = False
        return OTLPSpanExporter(
            endpoint=self._collector.url,
            headers=dict(self._collector.headers),
            timeout=REQUEST_S,
            session=self._session,
        )

    def send(self, spans: Sequence[Span]) -> None:
        """Send spans; raise Refused where the collector does not take them."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        self._session.said = None
        result = self._exporter.export([self._readable(span) for span in spans])
        if result is not SpanExportResult.SUCCESS:
            raise _refusal(self._session.said)

    @property
    def fails(self) -> bool:
        """Whether the last request has failed; it may wait for another try."""
        said = self._session.said
        return isinstance(said, Exception) or (said is not None and not said.ok)

    def close(self) -> None:
        """End what is waiting for another try; nothing is sent any more."""
        self.closed = True
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def _readable(self, span: Span) -> Any:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        def context(span_id: int) -> SpanContext:
            flags = TraceFlags(TraceFlags.SAMPLED)
            return SpanContext(span.trace_id, span_id, is_remote=False, trace_flags=flags)

        status = Status(StatusCode.OK)
        if span.error is not None:
            status = Status(StatusCode.ERROR, brief(span.error, 1_000))
        return ReadableSpan(
            name=span.name,
            context=context(span.span_id),
            parent=None if span.parent_id is None else context(span.parent_id),
            resource=self._resource,
            attributes=span.attributes,
            kind=SpanKind.CLIENT if span.kind == "LLM" else SpanKind.INTERNAL,
            status=status,
            start_time=span.start_ns,
            end_time=span.end_ns,
        )


def _session(collector: Collector) -> Any:
    """Return a session that follows no redirect, and keeps what the collector said last."""
    import requests

    ours = {name.lower() for name in collector.headers}
    plain = {"content-type", "content-encoding", "user-agent", *ours}

    class Session(requests.Session):
        """A session of one collector."""

        said: Any = None

        @override
        def request(self, method: str, url: str | bytes, *args: Any, **given: Any) -> Any:
            """Send a request, and note the answer or the error."""
            if collector.variable in PHOENIX:
                # The library adds the headers of another collector's variable.
                given["headers"] = {k: v for k, v in given["headers"].items() if k.lower() in plain}
            try:
                self.said = super().request(method, url, *args, **given)
            except Exception as e:
                self.said = e
                raise
            return self.said

    session = Session()
    # A redirect would take what was asked and answered to whom nobody named.
    session.max_redirects = 0
    return session


def _refusal(said: Any) -> Refused:
    """Return why spans were not taken: what the collector said last, or how the request ended."""
    import requests

    match said:
        case requests.TooManyRedirects():
            return Refused("it redirects, which is not followed", lasting=True)
        case requests.Timeout():
            return Refused(f"no answer in {REQUEST_S:g} s", lasting=False)
        case requests.ConnectionError():
            return Refused("it cannot be reached", lasting=False)
        case requests.Response() if said.status_code in (401, 403):
            return Refused(f"it wants a login (HTTP {said.status_code})", lasting=True)
        case requests.Response():
            text = brief(said.content[:500].decode("utf-8", "replace"), 200)
            lasting = said.status_code < 500 and said.status_code not in (408, 429)
            return Refused(f"HTTP {said.status_code} {text}".rstrip(), lasting=lasting)
        case Exception():
            return Refused(f"{type(said).__name__}", lasting=True)
        case _:
            return Refused("the spans could not be encoded", lasting=True)
