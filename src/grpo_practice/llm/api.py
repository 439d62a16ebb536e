"""The APIs that endpoints speak. A conversation has one form here, that of chat completions."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from grpo_practice.core.calls import ApiName, Request
from grpo_practice.llm import chat_completions, responses
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.http_response import OtherApiError, decode
from grpo_practice.llm.retry_policy import Adapt

NEED_TOOLS = frozenset({"tool_choice", "parallel_tool_calls"})
"""Settings that endpoints reject in a request without tools."""


class Api(Protocol):
    """One API: a module that translates bodies from chat completions and back.

    Everything else (retries, caps, ledger, redaction, resume) sees chat completions only.
    """

    PATH: str
    """End of the URL."""

    def recognises(self, body: Any) -> bool:
        """Return True if the body of a reply, or of an event of a stream, has this API's form."""
        ...

    def request_body(self, chat: Mapping[str, Any]) -> dict[str, Any]:
        """Translate the body of a chat completion request for an endpoint of this API."""
        ...

    def completion(self, body: Any) -> Any:
        """Translate an endpoint's reply into a chat completion; leave an error as it is.

        Raises:
            ValueError: The reply cannot be used; the message says why.
        """
        ...

    def assemble(self, events: Iterable[tuple[str, str]], which: int | None = None) -> Any:
        """Join the events (name, data) of a stream into a reply; None if it was cut off.

        `which` is the index of the choice to read if several were requested.
        """
        ...


APIS: Mapping[ApiName, Api] = {"chat.completions": chat_completions, "responses": responses}


def completion(name: ApiName, body: Any) -> Any:
    """Translate a reply as `Api.completion` does; raise OtherApiError if it is another API's."""
    _check(name, body)
    return APIS[name].completion(body)


def assemble(name: ApiName, events: Iterable[tuple[str, str]], which: int | None = None) -> Any:
    """Join a stream as `Api.assemble` does; raise OtherApiError if it is another API's."""
    return APIS[name].assemble(_checked(name, events), which)


def _check(name: ApiName, body: Any) -> bool:
    if APIS[name].recognises(body):
        return True
    for other, api in APIS.items():
        if api.recognises(body):
            raise OtherApiError(other)
    return False


def _checked(name: ApiName, events: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    known = False
    for event, data in events:
        known = known or _check(name, decode(data.encode()))
        yield event, data


def adapted_text(model: str, where: str, change: Adapt) -> str:
    """Return the sentence that tells a person about a setting that an endpoint rejects."""
    what = "is omitted" if change.to is None else f"is sent as `{change.to}`"
    return f"{model} at {where} does not accept `{change.name}`: it {what} from now on"


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
        chat = body | dict(self._settings(request)) | dict(self._endpoint.unhashed)
        wire = APIS[self._endpoint.api].request_body(chat)
        usual = {"max_tokens": self._endpoint.limit_name}
        names = ((self._adapted.get((request.model, k), usual.get(k, k)), k) for k in wire)
        return {sent_as: wire[k] for sent_as, k in names if sent_as is not None}

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
