"""The body of a request in the form that an endpoint accepts."""

import json
from collections.abc import Mapping
from typing import Any

from grpo_practice.core.calls import Request
from grpo_practice.core.hashing import clean_json
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.retry_policy import Adapt

NEED_TOOLS = frozenset({"tool_choice", "parallel_tool_calls"})
"""Settings that endpoints reject in a request without tools."""
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


class Bodies:
    """Builds the bodies of requests to an endpoint, without the settings that its models reject."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._adapted: dict[tuple[str, str], str | None] = {}
        """(model, setting) → the name under which it is sent; None if it is omitted."""

    def body(self, request: Request) -> dict[str, Any]:
        """Return the request in the form that this endpoint accepts."""
        body: dict[str, Any] = {"model": request.model, "messages": request.messages}
        if request.tools:
            body["tools"] = list(request.tools)
        for name, value in self._settings(request).items():
            usual = self._endpoint.limit_name if name == "max_tokens" else name
            sent_as = self._adapted.get((request.model, name), usual)
            if sent_as is not None:
                body[sent_as] = value
        return body | dict(self._endpoint.unhashed)

    def adapt(self, model: str, change: Adapt) -> bool:
        """Apply the change from now on; return False if it is already known."""
        # A concurrent request may have caused the same change.
        known = (model, change.name) in self._adapted
        self._adapted.setdefault((model, change.name), change.to)
        return not known

    def _settings(self, request: Request) -> Mapping[str, Any]:
        skipped = set() if request.tools else set(NEED_TOOLS)
        if not self._endpoint.send_seed:
            skipped.add("seed")
        settings = {k: v for k, v in request.params.items() if k not in skipped}
        if self._endpoint.stream:
            settings["stream"] = True
            if self._endpoint.stream_usage:
                settings["stream_options"] = {"include_usage": True}
        return settings


def encode_body(body: Mapping[str, Any]) -> bytes:
    """Return the body as JSON in UTF-8, with lone surrogates replaced."""
    try:
        return _JSON.encode(body).encode()
    except UnicodeEncodeError:
        # Clean only after a failure: traversing a body costs more than encoding it, and few need
        # it.
        return _JSON.encode(clean_json(body)).encode()
