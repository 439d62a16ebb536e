"""A collector of this process: it takes OTLP over HTTP, and may refuse or hang."""

import gzip
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status
from typing_extensions import override

ERROR = Status.STATUS_CODE_ERROR


def value_of(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case "array_value":
            return [value_of(one) for one in value.array_value.values]
        case str(name):
            return getattr(value, name)
        case None:
            raise AssertionError("an attribute without a value")


@dataclass(frozen=True)
class Received:
    """A span as it came."""

    span: Span
    attributes: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.attributes["openinference.span.kind"])

    @property
    def failed(self) -> bool:
        return self.span.status.code == ERROR


@dataclass
class Collector:
    url: str = ""
    statuses: list[int] = field(default_factory=list)
    """Statuses of the next answers; 200 when there is none left."""
    always: int = 200
    location: str = ""
    hangs: bool = False
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    asked: Event = field(default_factory=Event)
    """Set once a request has come."""
    over: Event = field(default_factory=Event)

    @property
    def requests(self) -> list[ExportTraceServiceRequest]:
        return [ExportTraceServiceRequest.FromString(body) for body in self.bodies]

    @property
    def all(self) -> list[Received]:
        """All spans, in the order they came, also those that came twice."""
        return [
            Received(span, {a.key: value_of(a.value) for a in span.attributes})
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    @property
    def spans(self) -> dict[bytes, Received]:
        return {one.span.trace_id + one.span.span_id: one for one in self.all}

    @property
    def kinds(self) -> Counter[str]:
        return Counter(one.kind for one in self.spans.values())


@contextmanager
def collecting(**settings: Any) -> Iterator[Collector]:
    """Collect on loopback while the block runs."""
    collector = Collector(**settings)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collector.paths.append(self.path)
            collector.headers.append({k.lower(): v for k, v in self.headers.items()})
            status = collector.statuses.pop(0) if collector.statuses else collector.always
            if status == 200:
                collector.bodies.append(body)
            collector.asked.set()
            if collector.hangs:
                collector.over.wait()
                return
            self.send_response(status)
            if collector.location:
                self.send_header("location", collector.location)
            self.send_header("content-length", "0")
            self.end_headers()

        @override
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield collector
    finally:
        collector.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def below(spans: Sequence[Received]) -> Iterator[tuple[Received, Received]]:
    """Yield each span that has a parent, with it."""
    there = {(one.span.trace_id, one.span.span_id): one for one in spans}
    for one in spans:
        if one.span.parent_span_id:
            yield one, there[one.span.trace_id, one.span.parent_span_id]
