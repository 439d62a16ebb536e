"""What came back from an endpoint, as values: an HTTP answer, or the way the connection broke."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_practice.canonical import clean_json
from grpo_practice.errors import ConnectionFault
from grpo_practice.redact import redactor
from grpo_practice.text import brief

SHOWN_CHARS = 200
"""How much of a foreign text an error message shows."""


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP answer, read to its end."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    text: str
    body: Any
    """The decoded JSON; None when it is not JSON in UTF-8."""
    url: str
    """Where it came from, without user info and query."""


@dataclass(frozen=True, slots=True)
class ConnectionFailure:
    """No HTTP answer, or only a part of one."""

    kind: ConnectionFault
    text: str
    url: str


class _BeyondJSONError(ValueError):
    """A number that JSON does not have."""


def _within_json(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _BeyondJSONError(text)
    return number


_JSON = json.JSONDecoder(parse_float=_within_json, parse_constant=_within_json)
_DEEP = 300
"""Fewer brackets than this nest in no way that a walk over the value could not follow."""


def read_json(raw: bytes) -> tuple[str, Any]:
    r"""The text, and the JSON value in it as `decode` has it; secrets replaced in both.

    A value whose text shows that there is nothing to replace is not walked through: UTF-8 without
    `\u` spells no lone surrogate, and every string of it stands there letter by letter.
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
    """The JSON value in `raw`, as `plain`; None when there is none.

    Strict: UTF-8 without a byte-order mark.
    """
    try:
        return plain(json.loads(raw.decode()))
    except (ValueError, RecursionError):
        return None


def plain(value: Any) -> Any:
    """The decoded JSON with lone surrogates replaced, and numbers beyond JSON's as null.

    NaN and infinities, which servers write among log-probabilities, have no canonical form and
    so could not be stored.

    Raises:
        ValueError: One of them stands where the message's text should.
    """
    return clean_json(_finite(value))


def _finite(value: Any, key: str = "") -> Any:
    match value:
        case float() if not math.isfinite(value):
            if key == "content":
                raise ValueError(f"{value} is no text")
            return None
        case dict():
            return {k: _finite(v, k) for k, v in value.items()}
        case list():
            return [_finite(v) for v in value]
        case _:
            return value


def shown(text: str) -> str:
    """The beginning of the endpoint's own words, in one line, nothing in it hidden."""
    return brief(text, SHOWN_CHARS)
