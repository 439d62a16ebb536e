"""The single table of retries and errors: maps every response of an endpoint to a decision.

`decide` takes an HTTP response, `decide_broken` a failed connection. For an error response, the
first row of `ROWS` that applies decides.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from grpo_practice.core.errors import (
    ContentFilterError,
    ContextOverflowError,
    EndpointError,
    EndpointRefusedError,
    ReplyTooLargeError,
    is_transient,
)
from grpo_practice.llm.endpoint import Endpoint, proxy_of
from grpo_practice.llm.error_body import ErrorBody, read_error
from grpo_practice.llm.http_response import ConnectionFailure, Response, is_stream, shown
from grpo_practice.llm.retry_after import LONGEST_WAIT_S, asked_wait_s, in_words

ADAPTABLE: Mapping[str, str | None] = {
    "max_tokens": "max_completion_tokens",
    "seed": None,
    "temperature": None,
    "top_p": None,
    "presence_penalty": None,
    "frequency_penalty": None,
    "stream_options": None,
    "include": None,
    "store": None,
}
"""Body key that an endpoint may reject → name to send instead; None means to omit it."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Send the request again; `error` is raised once no tries are left."""

    error: EndpointError | EndpointRefusedError
    after_s: float | None = None
    """Wait that the endpoint asks for; None means our own backoff."""
    once: bool = False
    """Whether a second response of this kind is final."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Give up. `EndpointRefusedError` ends the run; any other error ends only this request."""

    error: EndpointError | EndpointRefusedError
    after_s: float | None = None
    """Wait that the endpoint asks for, if it is too long to sleep through."""


@dataclass(frozen=True, slots=True)
class Adapt:
    """Send the request again with the body key `name` renamed to `to`, or without it if None."""

    name: str
    to: str | None


RetryDecision = Retry | Fail | Adapt


@dataclass(frozen=True, slots=True)
class Case:
    """An error response and the facts needed to judge it."""

    answer: Response
    fault: ErrorBody
    status: int
    """Status of the response; for an error inside a 200, the status in its body, or else 500."""
    sent: Mapping[str, Any]
    """Body that was sent."""
    endpoint: Endpoint
    replied: bool = False
    """Whether the endpoint has given a usable reply before."""

    @property
    def unsupported(self) -> list[str]:
        """Settings in the body that the endpoint reports as unsupported."""
        settings = self.sent.keys() - {"model", "messages", "input", "instructions"}
        return [n for n in settings if self.fault.blames(n)] if self.fault.unsupported else []

    def refused(self, what: str, hint: str | None = None) -> Fail:
        """Return the decision that ends the run."""
        return Fail(EndpointRefusedError(f"{self.answer.url} {what}: {self.said}", hint=hint))

    @property
    def said(self) -> str:
        """Status and message of the endpoint, safe to print."""
        return f"HTTP {self.answer.status}, {shown(self.fault.words) or 'no message'}"

    def failed(self, kind: type[EndpointError]) -> Fail:
        """Return the decision that fails this one request."""
        return Fail(kind(f"{self.answer.url}: {self.said}", status=self.status))

    def overflowed(self) -> Fail:
        """Return the decision that fails a request that is too long."""
        said = f"{self.answer.url}: {self.said}"
        return Fail(ContextOverflowError(said, status=self.status, limit=self.fault.context))


def decide(
    answer: Response,
    sent: Mapping[str, Any],
    endpoint: Endpoint,
    *,
    replied: bool = False,
) -> RetryDecision | None:
    """Decide how to proceed after an HTTP response; None for a completion with a message.

    `replied`: whether the endpoint has given a usable reply before.
    """
    if answer.other_api is not None:
        # No retry: each of these replies is billed, and none of them can be read.
        what = f"{answer.url}: the reply has the form of the API `{answer.other_api}`"
        hint = f"--set {endpoint.section}.type={answer.other_api}"
        return Fail(EndpointRefusedError(what, hint=hint))
    fault = read_error(answer)
    if fault is None:
        return _unusable(answer, replied)
    status = answer.status
    if status < 300:  # the status that an error inside a 200 stands for
        status = fault.status or (429 if "rate_limit" in fault.codes else 500)
    case = Case(answer, fault, status, sent, endpoint, replied)
    decision = next(outcome(case) for applies, outcome in ROWS if applies(case))
    # The endpoint may state explicitly whether to retry.
    match decision, answer.headers.get("x-should-retry"):
        case Fail(error=error), "true":
            return Retry(error)
        case Retry(error=error), "false":
            return Fail(error)
        case _:
            return decision


_IN_TIME = {
    False: "the wait in the server's line counts, because the reply is not streamed: set `stream:"
    " true` under model_provider, lower `concurrency` (in practice `rollout_concurrency`), or raise"
    " `extra_args.timeout` under model_settings",
    True: "the time runs from the first part of the reply, or, before it, from the last part of any"
    " other reply: raise `extra_args.timeout` under model_settings",
}
"""Streamed or not → what counts as time, and the settings that help."""


def decide_broken(
    broken: ConnectionFailure, *, answered: bool, stream: bool = False
) -> Retry | Fail:
    """Decide how to proceed after a failed connection.

    Args:
        broken: The failure.
        answered: Whether this endpoint has ever sent a response.
        stream: Whether the reply was to be streamed.
    """
    said = f"{broken.url}: {shown(broken.text)}"
    match broken.kind:
        case "tls":
            # No retry, since the certificate will not change.
            return Fail(
                EndpointRefusedError(
                    f"no secure connection to {said}",
                    hint="for a private certificate authority, set SSL_CERT_FILE to its file; "
                    "for a server without TLS, write http:// in base_url",
                    broken=broken.kind,
                )
            )
        case "cut":
            return Retry(EndpointError(f"the connection broke: {said}", broken=broken.kind))
        case "oversize":
            # No retry: this reply was billed, and the next one may well be as large.
            return Fail(ReplyTooLargeError(said, broken=broken.kind))
        case "deadline":
            what = f"no complete response in time: {said}; {_IN_TIME[stream]}"
            return Retry(EndpointError(what, broken=broken.kind))
        case "connect" | "proxy":
            what, where = "cannot reach", "base_url and that the server is running"
            if broken.kind == "proxy":
                what = "the proxy does not connect to"
                where = "HTTP_PROXY, HTTPS_PROXY and NO_PROXY"
            if answered:
                return Retry(EndpointError(f"{what} {said}", broken=broken.kind))
            hint = f"check {where}"
            # Retry before stopping the run: the server may be starting up.
            return Retry(EndpointRefusedError(f"{what} {said}", hint=hint, broken=broken.kind))


def decide_cut(answer: Response) -> Retry:
    """Decide how to proceed after a reply that ended before the model was done."""
    what = f"{answer.url}: the reply ended without a finish reason"
    if is_stream(answer.headers):
        what += (
            "; if the server cuts a reply when another request arrives, set `stream: false` under"
            " model_provider, or `concurrency: 1` (in practice `rollout_concurrency: 1`)"
        )
    return Retry(EndpointError(what))


def _unusable(answer: Response, replied: bool) -> Retry | None:
    """Return the retry after an unusable 2xx response; None for a usable response."""
    where = answer.url
    body = answer.body
    if _is_page(answer):
        return _no_api(answer, replied)
    if body is None:
        what = f"a body that is not JSON: {shown(answer.text)}" if answer.text else "no body"
        return Retry(EndpointError(f"{where}: HTTP {answer.status} with {what}"))
    choices = body.get("choices") if isinstance(body, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    if isinstance(first, dict) and isinstance(first.get("message"), dict):
        return None
    what = "a choice without a message" if first is not None else "no choices"
    said = shown(answer.text)
    return Retry(EndpointError(f"{where}: HTTP {answer.status} with {what}: {said}"))


def _is_page(answer: Response) -> bool:
    kind = answer.headers.get("content-type", "")
    return answer.body is None and (answer.text.lstrip()[:1] == "<" or "html" in kind)


def _no_api(answer: Response, replied: bool) -> Retry:
    """Return the retry after a response that is not from an API, such as a gateway's page."""
    target = answer.headers.get("location")
    what = f"a redirect to {shown(target.partition('?')[0])}" if target else shown(answer.text)
    said = f"{answer.url}: not an OpenAI-compatible response: HTTP {answer.status}, {what}"
    if replied:
        return Retry(EndpointError(said))
    hint = "check base_url (it usually ends in /v1), and whether a login page is in between"
    # Retry once: a gateway's page may be temporary; a second one means that base_url is wrong.
    return Retry(EndpointRefusedError(said, hint=hint), once=True)


def _retry(case: Case) -> Retry | Fail:
    # Use the wall clock, since Retry-After may be a date.
    after_s = asked_wait_s(case.answer.headers, case.status, time.time())
    if after_s is None or after_s <= LONGEST_WAIT_S:
        return Retry(case.failed(EndpointError).error, after_s)
    wait = in_words(after_s)
    return Fail(
        EndpointError(
            f"{case.answer.url}: the server asks us to wait {wait}: {case.said}", status=case.status
        ),
        after_s,
    )


def _too_large(case: Case) -> bool:
    """Return True if the request is too long for the model, not for a limit per minute."""
    if case.status in (413, 429) and "rate_limit" in case.fault.codes:
        return False
    return case.status == 413 or (case.status != 429 and case.fault.overflow)


def _no_access(case: Case) -> Fail:
    if case.endpoint.has_key:
        what = "refused the API key" if case.status == 401 else "refused access"
        return case.refused(what, f"check the key in {case.endpoint.key_name}, and its permissions")
    what = (
        "requires an API key, but none" if case.status == 401 else "refused access, and no API key"
    )
    return case.refused(f"{what} was sent", f"set one in {case.endpoint.key_name}")


def _proxy_login(case: Case) -> Fail:
    proxy = " ".join(part for part in ("the proxy", proxy_of(case.answer.url)) if part)
    hint = "add user and password to HTTP_PROXY and HTTPS_PROXY: http://user:password@host:port"
    return case.refused(f"was not reached: {proxy} requires a login", hint)


def _nameless(case: Case) -> Fail:
    """Fail the request, suggesting the only key of its body that no config sets: the seed."""
    return Fail(
        EndpointError(
            f"{case.answer.url}: {case.said}; if it does not accept a seed, set `send_seed: false`"
            " under model_provider",
            status=case.status,
        )
    )


def _wants_responses(case: Case) -> bool:
    wanted = "v1/responses" in case.fault.words or "Responses API" in case.fault.words
    return case.endpoint.api == "chat.completions" and wanted


def _no_chat(case: Case) -> Fail:
    parts = urlsplit(case.answer.url)
    hint = "check base_url (it usually ends in /v1) and `model`; GET /models lists the models"
    if (parts.hostname or "").endswith(".azure.com") or "/openai/" in parts.path:
        hint = (
            "on Azure, base_url is https://RESOURCE.openai.azure.com/openai/v1, or"
            " https://RESOURCE.openai.azure.com/openai/deployments/NAME with"
            " `extra_query: {api-version: 2024-10-21}` under model_settings; NAME, or `model`, is"
            " the name of the deployment"
        )
    if case.endpoint.api == "responses":
        hint += f"; for chat completions: --set {case.endpoint.section}.type=chat.completions"
        return case.refused("does not offer the Responses API", hint)
    return case.refused("is not a chat endpoint", hint)


ROWS: tuple[tuple[Callable[[Case], bool], Callable[[Case], RetryDecision]], ...] = (
    # Before billing: a 402 with Retry-After is a temporary limit on requests in flight.
    (lambda c: c.status == 402 and "retry-after" in c.answer.headers, _retry),
    (
        lambda c: c.status == 402 or c.fault.billing,
        lambda c: c.refused(
            "says there is no credit or quota left",
            "top up the account or raise its limit, then run the same command again",
        ),
    ),
    # Before 403: routers send it for a moderated text, which does not mean a rejected key.
    (lambda c: c.fault.moderated, lambda c: c.failed(ContentFilterError)),
    (
        lambda c: c.status in (403, 404, 405) and c.replied and _is_page(c.answer),
        lambda c: _no_api(c.answer, c.replied),
    ),
    (lambda c: c.status in (401, 403), _no_access),
    (lambda c: c.status == 407, _proxy_login),
    # Before settings: some servers report a prompt that leaves no room as an invalid max_tokens.
    (_too_large, lambda c: c.overflowed()),
    # Before models and settings, which these messages blame.
    (
        lambda c: c.status in (400, 404) and _wants_responses(c),
        lambda c: c.refused(
            "does not accept this as a chat completion",
            f"--set {c.endpoint.section}.type=responses",
        ),
    ),
    (
        lambda c: c.status in (400, 404) and c.fault.no_model,
        lambda c: c.refused(
            f"does not know the model {c.sent.get('model')!r}",
            "check `model`; GET /models lists this endpoint's models",
        ),
    ),
    (
        lambda c: c.status in (400, 422) and bool(c.unsupported),
        lambda c: next(
            (Adapt(name, to) for name, to in ADAPTABLE.items() if name in c.unsupported),
            c.refused("does not accept a setting", "change it under model_settings"),
        ),
    ),
    (lambda c: c.status in (404, 405), _no_chat),
    (lambda c: c.status in (400, 422) and c.fault.nameless and "seed" in c.sent, _nameless),
    (lambda c: is_transient(c.status), _retry),
    (lambda c: c.status < 400, lambda c: _no_api(c.answer, c.replied)),
    (lambda _: True, lambda c: c.failed(EndpointError)),
)
"""(applies, outcome), in the order in which they are tried; the last one always applies."""
