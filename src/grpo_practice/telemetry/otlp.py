"""Spans in the form that collectors take: OTLP, as protobuf. Imported only where spans are sent."""

from collections.abc import Iterable
from functools import lru_cache
from importlib.metadata import version

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan

from grpo_practice.telemetry.spans import Span, Value

NAME = "grpo-practice"
_OK, _ERROR = Status(code=Status.STATUS_CODE_OK), Status.STATUS_CODE_ERROR
_CLIENT, _INTERNAL = OtlpSpan.SPAN_KIND_CLIENT, OtlpSpan.SPAN_KIND_INTERNAL
_SHORT = 64
"""Characters of a value that may well come again."""


def encoded(spans: Iterable[Span], project: str | None) -> bytes:
    """Return a request with these spans; `project` is Phoenix's."""
    about = {"service.name": NAME, "openinference.project.name": project or NAME}
    resource = Resource(attributes=[_attribute(k, v) for k, v in about.items()])
    scope = InstrumentationScope(name=NAME, version=version(NAME))
    scoped = ScopeSpans(scope=scope, spans=[_span(span) for span in spans])
    request = ExportTraceServiceRequest(
        resource_spans=[ResourceSpans(resource=resource, scope_spans=[scoped])]
    )
    return bytes(request.SerializeToString())


def _span(span: Span) -> OtlpSpan:
    attributes = [_attribute("openinference.span.kind", span.kind)]
    attributes += [_attribute(name, value) for name, value in span.attributes.items()]
    made = OtlpSpan(
        trace_id=span.trace_id,
        span_id=span.id,
        name=_valid(span.name),
        kind=_CLIENT if span.kind == "LLM" else _INTERNAL,
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        attributes=attributes,
        status=_OK if span.error is None else Status(code=_ERROR, message=_valid(span.error)),
    )
    if span.parent is not None:
        made.parent_span_id = span.parent
    if span.link is not None:
        made.links.add(trace_id=span.trace_id, span_id=span.link)
    return made


def _attribute(name: str, value: Value) -> KeyValue:
    match value:
        case str() if len(value) > _SHORT:
            return _made(name, value)
        case str():
            return _again(name, value)
        case bool() | int() | float():
            return _made(name, value)
        case _:
            return _again(name, tuple(value))


def _made(name: str, value: Value) -> KeyValue:
    # A bool is an int to Python, and not to OTLP.
    match value:
        case str():
            of = AnyValue(string_value=_valid(value))
        case bool():
            of = AnyValue(bool_value=value)
        case int():
            of = AnyValue(int_value=value)
        case float():
            of = AnyValue(double_value=value)
        case _:
            values = [AnyValue(string_value=_valid(text)) for text in value]
            of = AnyValue(array_value=ArrayValue(values=values))
    return KeyValue(key=name, value=of)


_again = lru_cache(4096)(_made)
"""As `_made`, for what stands in many spans: names of models, of runs, of stages."""


def _valid(text: str) -> str:
    """Return the text as one that can be encoded: a lone surrogate would raise."""
    return text if text.isascii() else text.encode(errors="replace").decode()
