"""A collector in this process, which takes spans, or does what bad ones do."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from typing_extensions import override

Behaviour = Literal["takes", "500", "401", "redirects", "hangs"]


@dataclass
class Receiver:
    """What was sent, and how it is answered."""

    url: str = ""
    behaviour: Behaviour = "takes"
    elsewhere: str = ""
    """Where a redirect leads."""
    spans: list[Any] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    resources: list[dict[str, Any]] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def kinds(self) -> Counter[str]:
        return Counter(attributes(span)["openinference.span.kind"] for span in self.spans)

    @property
    def ids(self) -> set[bytes]:
        return {span.span_id for span in self.spans}


def attributes(of: Any) -> dict[str, Any]:
    """The attributes of a span or a resource."""
    found = {}
    for pair in of.attributes:
        which = pair.value.WhichOneof("value")
        found[pair.key] = getattr(pair.value, which)
    return found


@contextmanager
def receiving(behaviour: Behaviour = "takes", elsewhere: str = "") -> Iterator[Receiver]:
    """A collector on a port of its own."""
    receiver = Receiver(behaviour=behaviour, elsewhere=elsewhere)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            receiver.bodies.append(body)
            receiver.headers.append({k.lower(): v for k, v in self.headers.items()})
            if receiver.behaviour == "hangs":
                receiver.over.wait()
                return
            status = {"500": 500, "401": 401, "redirects": 307}.get(receiver.behaviour, 200)
            if status == 200:
                for part in ExportTraceServiceRequest.FromString(body).resource_spans:
                    receiver.resources.append(attributes(part.resource))
                    for scope in part.scope_spans:
                        receiver.spans += scope.spans
            self.send_response(status)
            if status == 307:
                self.send_header("location", receiver.elsewhere)
            self.send_header("content-length", "0")
            self.end_headers()

        @override
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield receiver
    finally:
        receiver.over.set()
        server.shutdown()
        server.server_close()
