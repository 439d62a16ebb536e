"""A recorded exchange: a request as sent, and its replies."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_practice.core.calls import NO_USAGE, Reply
from grpo_practice.core.errors import ConfigError, EndpointError
from grpo_practice.core.hashing import clean_json
from grpo_practice.llm.api import completion
from grpo_practice.llm.chat_completions import read_reply
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.http import streamed_body
from grpo_practice.llm.http_response import OtherApiError, Response, read_json
from grpo_practice.llm.params import canonical_params
from grpo_practice.llm.prices import priced
from grpo_practice.llm.retry_policy import Adapt, decide, decide_cut
from grpo_practice.serve.upstream import Sent

_APART = frozenset({"model", "messages", "tools", "seed", "n", "stream", "stream_options"})
"""Keys of a body that are not settings, or that `canonical_params` reserves."""


@dataclass(slots=True)
class Exchange:
    """One request with the part of its response received so far."""

    began: float
    """Monotonic time at which the request was forwarded, in seconds."""
    kept: bool = True
    """Whether the response is kept; False if nothing is recorded."""
    sent: Sent | None = None
    """Request as sent, with the head of its response; None until then."""
    raw: bytearray = field(default_factory=bytearray)
    """Body of the response received so far; `Http` enforces the endpoint's size limit."""
    ended: float = 0.0
    failed: str = ""
    """Reason why the response is incomplete; '' if it is complete."""
    kind: str = "provider"

    def fail(self, why: str, kind: str) -> None:
        """Record why the response is incomplete."""
        self.failed, self.kind = why, kind

    def take(self, chunk: bytes) -> None:
        """Add a part of the response."""
        if self.kept:
            self.raw += chunk


def replies(exchange: Exchange, endpoint: Endpoint) -> list[Reply]:
    """Return one reply per choice, with the token usage on the first; or raise EndpointError."""
    sent = exchange.sent
    if exchange.failed or sent is None:
        begun = sent is not None and 200 <= sent.response.status < 300
        lost = EndpointError(exchange.failed, maybe_paid=begun)
        lost.kind = exchange.kind
        raise lost
    return replies_in(sent, bytes(exchange.raw), exchange.ended - exchange.began, endpoint)


def replies_in(sent: Sent, raw: bytes, seconds: float, endpoint: Endpoint) -> list[Reply]:
    """Return the replies in the whole body of a response, as `replies` does."""
    whole = list[Reply]()
    for answer in _answers(sent, raw, endpoint):
        decision = decide(answer, sent.body, endpoint)
        if decision is not None:  # the client decides whether to retry
            error = None if isinstance(decision, Adapt) else decision.error
            if isinstance(error, EndpointError):
                raise error
            raise EndpointError(f"{answer.url}: HTTP {answer.status}", status=answer.status)
        reply = read_reply(answer, asked=str(sent.chat["model"]), tries=1, seconds=seconds)
        if reply.is_cut:
            raise decide_cut(answer).error
        # The endpoint reports usage once for all choices.
        if whole:
            reply = replace(reply, usage=NO_USAGE)
        price = endpoint.price(str(sent.chat["model"]), sent.url)
        whole.append(priced(reply, price))
    return whole


def _answers(sent: Sent, raw: bytes, endpoint: Endpoint) -> Iterator[Response]:
    """Yield a copy of the response for each choice, with only that choice."""
    if sent.response.is_stream and sent.response.status < 300:
        asked = sent.chat.get("n")
        # At most 128, the API's limit, so that a client's number cannot make this loop endless.
        for n in range(asked if isinstance(asked, int) and 1 <= asked <= 128 else 1):
            body = streamed_body(endpoint.api, raw, n)
            if body is None:
                raise EndpointError(f"{sent.where}: the stream broke off", maybe_paid=True)
            if n and not body.get("choices"):
                break  # fewer choices than requested
            yield sent.read("", body)
        return
    text, body = read_json(raw)
    if sent.response.status < 300:
        try:
            body = completion(endpoint.api, body)
        except (OtherApiError, ValueError) as e:
            raise EndpointError(f"{sent.where}: {e}", maybe_paid=True) from None
    choices = body.get("choices") if isinstance(body, dict) else None
    for choice in choices if isinstance(choices, list) and choices else [None]:
        one = body if choice is None else {**body, "choices": [choice]}
        yield sent.read(text, one)


def head_of(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return `{model, params, tools}` of a body: the keys that affect the response.

    The messages affect the response, too, but are stored separately.
    """
    rest = {k: v for k, v in clean_json(dict(body)).items() if v is not None}
    given = {k: v for k, v in rest.items() if k not in _APART}
    try:
        params, _ = canonical_params({"extra_body": given})
    except ConfigError:  # record requests that the endpoint refuses, too
        params = given
    params |= {k: rest[k] for k in ("seed", "n") if k in rest}
    head: dict[str, Any] = {"model": rest["model"], "params": params}
    return head | ({"tools": rest["tools"]} if rest.get("tools") else {})
