"""Endpoints that give a key back: whatever a request carries, in every place of an answer."""

import base64
import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote, unquote

from tests.canary.keys import DOTENV, STUDENT, UNUSED
from tests.contract.endpoint.actions import Action, Asked, Script, cut, error, sse, status
from tests.contract.endpoint.simulated import respond

KNOWN = (DOTENV, STUDENT, UNUSED)
"""Keys of the environment, which reach an endpoint in other requests."""


def carried(asked: Asked) -> str:
    """The secrets a request carries as an endpoint sees them, and others that it may know."""
    login = asked.headers.get("authorization", "")
    shown = base64.b64decode(login[6:]).decode() if login.startswith("Basic ") else login
    return " ".join([login, shown, quote(shown, safe=""), asked.headers.get("x-key", ""), *KNOWN])


def answer(asked: Asked, change: Callable[[dict[str, Any], str], None]) -> Action:
    """The simulated answer with the echo put into it."""
    told = respond(asked.path, asked.content)[1]
    change(told, carried(asked))
    return replace(status(200, told), name="ok")


def _everywhere(told: dict[str, Any], echo: str) -> None:
    choice = told["choices"][0]
    message = choice["message"]
    message["content"] = f"{_inside(message['content'], echo)}"
    message |= {"reasoning_content": echo, "x": {echo: [echo]}}
    arguments = json.dumps({"key": echo})
    function = {"name": echo, "arguments": arguments}
    message["tool_calls"] = [{"id": echo, "type": "function", "function": function}]
    choice["finish_reason"] = echo
    told |= {"model": echo, "id": echo, "system_fingerprint": echo}


def _inside(content: str, echo: str) -> str:
    """A text that still says what it said: the echo goes into a text of its list, or before it."""
    quiet = echo.replace("\\", "").replace('"', "")
    texts = r'"(?:lesson|text)": "[^"]*|<(?:lesson|operation)\b[^<>]*(?<!/)>[^<]*'
    changed, times = re.subn(texts, lambda m: f"{m[0]} {quiet}", content)
    return changed if times else f"{quiet}\n{content}"


def answered(asked: Asked) -> Action:
    return answer(asked, _everywhere)


def answered_once_more(asked: Asked) -> Action:
    """The echo in the text alone, so that what follows from it is used."""

    def change(told: dict[str, Any], echo: str) -> None:
        message = told["choices"][0]["message"]
        message["content"] = _inside(message["content"], echo)

    return answer(asked, change)


def streamed(asked: Asked) -> Action:
    """The echo in pieces of five characters."""
    told = respond(asked.path, asked.content)[1]
    text = _inside(told["choices"][0]["message"]["content"], carried(asked))
    parts = [text[i : i + 5] for i in range(0, len(text), 5)]
    chunks = [{"model": "m", "choices": [{"index": 0, "delta": {"content": p}}]} for p in parts]
    end = {"model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    return sse(*chunks, end)


def streamed_without_choices(asked: Asked) -> Action:
    """Pieces that make no answer: what is told of them is told of the whole."""
    echo = carried(asked)
    return sse(*({"model": "m", "debug": echo[i : i + 9]} for i in range(0, len(echo), 9)))


def _error(number: int, /, **fields: Any) -> Script:
    def script(asked: Asked) -> Action:
        echo = carried(asked)
        extra = {k: v(echo) if callable(v) else v for k, v in fields.items()}
        return error(number, f"Incorrect API key provided: {echo}", **extra)

    return script


def _body(code: int, shown: Callable[[str], str], headers: Mapping[str, str]) -> Script:
    return lambda asked: status(code, shown(carried(asked)), headers)


def redirected(asked: Asked) -> Action:
    where = f"https://{quote(carried(asked), safe='')}@example.invalid/?key={quote(carried(asked))}"
    return status(302, carried(asked), {"Location": where})


def in_headers(asked: Asked) -> Action:
    echo = unquote(quote(carried(asked)))
    names = ("X-Request-Id", "Set-Cookie", "WWW-Authenticate", "Retry-After", "x-ratelimit-reset")
    return error(429, "slow down", dict.fromkeys(names, echo))


def broken_json(asked: Asked) -> Action:
    return status(200, json.dumps({"choices": carried(asked)})[:-2])


def torn(asked: Asked) -> Action:
    body = status(200, {"choices": [], "x": carried(asked)})
    return cut(body, 70)


HTML = {"Content-Type": "text/html"}
ECHOES: Mapping[str, Script] = {
    "in the answer": answered,
    "in its text": answered_once_more,
    "in a stream": streamed,
    "stream without choices": streamed_without_choices,
    "401": _error(401),
    "403": _error(403, code="forbidden"),
    "400": _error(400, param=str, code=str),
    "404": _error(404, code="model_not_found", type=str),
    "429 quota": _error(429, code="insufficient_quota"),
    "500": _error(500, metadata=lambda echo: {"raw": echo, "headers": {echo: echo}}),
    "error in a 200": lambda a: status(200, {"error": {"message": carried(a), "code": 502}}),
    "no choices": lambda a: status(200, {"choices": [], "debug": carried(a)}),
    "HTML": _body(200, lambda echo: f"<html>{html.escape(echo)}</html>", HTML),
    "HTML 502": _body(502, lambda echo: f"<pre>{echo}</pre>", HTML),
    "broken JSON": broken_json,
    "cut": torn,
    "redirect": redirected,
    "headers": in_headers,
    "percent": _body(400, lambda echo: quote(echo, safe=""), {}),
    "base64": _body(400, lambda echo: base64.b64encode(echo.encode()).decode(), {}),
}
