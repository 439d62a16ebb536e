"""Forwarding of responses to a client as they arrive, with our own key hidden."""

from collections.abc import Mapping

from multidict import CIMultiDict

from grpo_practice.core.redact import Redactor, url_secrets
from grpo_practice.llm.endpoint import Endpoint

_OURS = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "transfer-encoding", "upgrade", "content-length", "content-encoding",
    "set-cookie", "server", "date", "alt-svc", "strict-transport-security",
})  # fmt: skip
"""Headers that belong to one connection or to the other host."""
_CORS = "access-control-"
HELD = 64 * 1024
"""Number of bytes without a line end after which everything except a tail is forwarded."""
TAIL = 8 * 1024
"""Maximum length of an encoded key in bytes."""


def own_secrets(endpoint: Endpoint) -> Redactor:
    """Return a redactor for the endpoint's key and all other credentials, to hide from clients."""
    given = [*endpoint.headers.values(), *endpoint.query.values()]
    return Redactor([endpoint.api_key or "", *given, *url_secrets(endpoint.base_url)])


def headers(came: Mapping[str, str], hide: Redactor) -> CIMultiDict[str]:
    """Return the headers of a response that are forwarded."""
    kept = CIMultiDict[str]()
    for name, value in came.items():
        if name.lower() not in _OURS and not name.lower().startswith(_CORS):
            kept.add(name, hide.text(value))
    return kept


class Hiding:
    """Filter that hides secrets in a body that arrives in chunks.

    No secret spans lines, so complete lines are forwarded immediately and the rest waits for the
    end of its line. Every event of a stream ends with a line end.
    """

    def __init__(self, hide: Redactor) -> None:
        self._hide = hide
        self._held = b""

    def passed(self, chunk: bytes) -> bytes:
        """Add a chunk; return the bytes that can be forwarded now."""
        if not self._hide.known:
            return chunk
        whole = self._held + chunk
        end = whole.rfind(b"\n") + 1
        if not end and len(whole) > HELD:
            whole = self.hidden(whole)
            # Keep the tail: a secret may start in it.
            end = len(whole) - TAIL
        self._held = whole[end:]
        return self.hidden(whole[:end])

    def rest(self) -> bytes:
        """Return the remaining bytes at the end."""
        left, self._held = self._held, b""
        return self.hidden(left)

    def hidden(self, raw: bytes) -> bytes:
        """Replace every secret in the bytes."""
        text = raw.decode("latin-1")  # lossless for any bytes; keys are ASCII
        return self._hide.text(text).encode("latin-1") if self._hide.suspects(text) else raw
