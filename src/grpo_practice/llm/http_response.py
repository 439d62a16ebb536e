"""The outcome of sending a request, as a value: an HTTP response, or a connection failure."""

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_practice.core.errors import ConnectionFault, GrpoPracticeError
from grpo_practice.core.hashing import clean_json
from grpo_practice.core.redact import redactor
from grpo_practice.core.text import brief

SHOWN_CHARS = 200
"""Number of characters of a foreign text that an error message quotes."""


EVENTS = "text/event-stream"


def is_stream(headers: Mapping[str, str]) -> bool:
    """Return True if the headers announce server-sent events."""
    return headers.get("content-type", "").lower().startswith(EVENTS)


@dataclass(frozen=True, slots=True)
class Response:
    """A complete HTTP response."""

    status: int
    headers: Mapping[str, str]
    """Headers by lower-case name."""
    text: str
    body: Any
    """Decoded JSON, a reply as a chat completion; None if the body is not JSON in UTF-8."""
    url: str
    """URL that answered, without user info and query."""
    other_api: str | None = None
    """API in whose form the reply is, if that is not the endpoint's."""


class OtherApiError(Exception):
    """Error for a reply in the form of another API; the message names that API."""


@dataclass(frozen=True, slots=True)
class ConnectionFailure:
    """A missing or incomplete HTTP response."""

    kind: ConnectionFault
    text: str
    url: str


def finite_number(text: str) -> float:
    """Return the number; raise ValueError if JSON cannot express it."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a JSON number")
    return number


_JSON = json.JSONDecoder(parse_float=finite_number, parse_constant=finite_number)
_DEEP = 300
"""Number of brackets below which no nesting can overflow the stack of a recursive walk."""


def read_json(raw: bytes) -> tuple[str, Any]:
    r"""Return the text and the JSON value in it (see `decode`), with secrets redacted in both.

    The value is traversed only if the text shows that something may need replacing. Without `\u` it
    contains no lone surrogate, and every string appears in it literally.
    """
    try:
        text = raw.decode()
        shallow = text.count("{") + text.count("[") < _DEEP
        if shallow and "\\u" not in text and not redactor.suspects(text):
            return text, _JSON.decode(text)
    except ValueError:
        text = raw.decode(errors="replace")
    return redactor.text(text), redactor.value(decode(raw))


def decode(raw: bytes) -> Any:
    """Return the JSON value as `plain`; None unless it is UTF-8 without a byte-order mark."""
    try:
        return plain(json.loads(raw.decode()))
    except (ValueError, RecursionError):
        return None


def plain(value: Any) -> Any:
    """Return the decoded JSON with lone surrogates replaced, and NaN and infinities as null.

    Servers write those numbers among log-probabilities; they have no canonical form in which they
    could be stored.

    Raises:
        ValueError: The text of a message is NaN or an infinity.
    """
    return clean_json(_finite(value))


def _finite(value: Any, key: str = "") -> Any:
    match value:
        case float() if not math.isfinite(value):
            if key == "content":
                raise ValueError(f"{value} is not text")
            return None
        case dict():
            return {k: _finite(v, k) for k, v in value.items()}
        case list():
            return [_finite(v) for v in value]
        case _:
            return value


def shown(text: str) -> str:
    """Return the beginning of the endpoint's message on one line, with hidden characters shown."""
    return brief(text, SHOWN_CHARS)


def kind_of(error: BaseException) -> str:
    """Return the kind of failure to record for a request that this error ended."""
    match error:
        case GrpoPracticeError():
            return error.kind
        case asyncio.CancelledError() | KeyboardInterrupt() | SystemExit():
            return "cancelled"
        case TimeoutError():
            return "deadline"
        case _:
            return "internal"
