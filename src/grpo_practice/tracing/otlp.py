"""Encoding of spans as OTLP protobuf. Imported only when spans are sent.

A protobuf message can be assembled from encoded parts. Attributes that many spans share (names of
models, runs and stages) are therefore encoded once, which halves the time per span.
"""

from collections.abc import Iterable
from functools import lru_cache

from opentelemetry.proto.common.v1.common_pb2 import (
    AnyValue,
    ArrayValue,
    InstrumentationScope,
    KeyValue,
)
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Status
from opentelemetry.proto.trace.v1.trace_pb2 import Span as OtlpSpan

from grpo_practice import __version__
from grpo_practice.tracing.spans import Span, Value

NAME = "grpo-practice"
_OK, _ERROR = Status(code=Status.STATUS_CODE_OK), Status.STATUS_CODE_ERROR
_CLIENT, _INTERNAL = OtlpSpan.SPAN_KIND_CLIENT, OtlpSpan.SPAN_KIND_INTERNAL
_ATTRIBUTES = OtlpSpan.ATTRIBUTES_FIELD_NUMBER
# Longer texts are questions and answers; caching them would hold them in memory for nothing.
_SHORT = 512
"""Maximum length of a value that is cached because it is likely to repeat."""


def encoded(spans: Iterable[Span], project: str | None) -> bytes:
    """Return an `ExportTraceServiceRequest` with these spans; `project` is the Phoenix project."""
    about = {"service.name": NAME, "openinference.project.name": project or NAME}
    attributes = [_pair(name, value) for name, value in about.items()]
    scope = ScopeSpans(scope=InstrumentationScope(name=NAME, version=__version__))
    parts = [_field(ScopeSpans.SPANS_FIELD_NUMBER, _span(span)) for span in spans]
    scoped = b"".join([scope.SerializeToString(), *parts])
    resource = ResourceSpans(resource=Resource(attributes=attributes)).SerializeToString()
    # Field 1 of ExportTraceServiceRequest is `resource_spans`.
    return _field(1, resource + _field(ResourceSpans.SCOPE_SPANS_FIELD_NUMBER, scoped))


def _span(span: Span) -> bytes:
    made = OtlpSpan(
        trace_id=span.trace_id,
        span_id=span.id,
        name=_valid(span.name),
        kind=_CLIENT if span.kind == "LLM" else _INTERNAL,
        start_time_unix_nano=span.start_ns,
        end_time_unix_nano=span.end_ns,
        status=_OK if span.error is None else Status(code=_ERROR, message=_valid(span.error)),
    )
    if span.parent is not None:
        made.parent_span_id = span.parent
    if span.link is not None:
        made.links.add(trace_id=span.trace_id, span_id=span.link)
    parts = [made.SerializeToString(), _again("openinference.span.kind", span.kind)]
    for name, value in span.attributes.items():
        if isinstance(value, str) and len(value) > _SHORT:
            parts.append(_attribute(name, value))
        else:
            parts.append(_again(name, value))
    return b"".join(parts)


def _attribute(name: str, value: Value) -> bytes:
    return _field(_ATTRIBUTES, _pair(name, value).SerializeToString())


# typed: the cache would otherwise confuse True, 1 and 1.0, which are equal.
_again = lru_cache(4096, typed=True)(_attribute)


def _pair(name: str, value: Value) -> KeyValue:
    match value:
        case str():
            of = AnyValue(string_value=_valid(value))
        case bool():  # before int, because a bool is an int in Python but not in OTLP
            of = AnyValue(bool_value=value)
        case int():
            of = AnyValue(int_value=value)
        case float():
            of = AnyValue(double_value=value)
        case _:
            values = [AnyValue(string_value=_valid(text)) for text in value]
            of = AnyValue(array_value=ArrayValue(values=values))
    return KeyValue(key=name, value=of)


def _field(number: int, data: bytes) -> bytes:
    """Encode data as a length-delimited field of a message: field number, length, data."""
    length, size = bytearray(), len(data)
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return b"%c%b%b" % (number << 3 | 2, bytes(length), data)


def _valid(text: str) -> str:
    """Replace lone surrogates, which cannot be encoded."""
    return text if text.isascii() else text.encode(errors="replace").decode()
