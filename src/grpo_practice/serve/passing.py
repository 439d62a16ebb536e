"""Answers on their way to a client: passed on as they come, our own key replaced."""

from collections.abc import Mapping

from multidict import CIMultiDict

from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.redact import Redactor, url_secrets

_OURS = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "transfer-encoding", "upgrade", "content-length", "content-encoding",
    "set-cookie", "server", "date", "alt-svc", "strict-transport-security",
})  # fmt: skip
"""Headers of one connection, or of another host's name."""
_CORS = "access-control-"
HELD = 64 * 1024
"""Bytes without a line end from which all but a tail is passed on."""
TAIL = 8 * 1024
"""Longest notation of a key in bytes."""


def own_secrets(endpoint: Endpoint) -> Redactor:
    """Return what must not reach a client: the endpoint's key and all else that gives access."""
    given = [*endpoint.headers.values(), *endpoint.query.values()]
    return Redactor([endpoint.api_key or "", *given, *url_secrets(endpoint.base_url)])


def headers(came: Mapping[str, str], hide: Redactor) -> CIMultiDict[str]:
    """Return the headers of an answer that are passed on."""
    kept = CIMultiDict[str]()
    for name, value in came.items():
        if name.lower() not in _OURS and not name.lower().startswith(_CORS):
            kept.add(name, hide.text(value))
    return kept


class Hiding:
    """The secrets in a body that comes in pieces, replaced.

    No secret spans lines, so whole lines are passed on at once and the rest waits for the end of
    its line. Every event of a stream ends with a line.
    """

    def __init__(self, hide: Redactor) -> None:
        self._hide = hide
        self._held = b""

    def passed(self, chunk: bytes) -> bytes:
        """Take a chunk; return what can be passed on now."""
        if not self._hide.known:
            return chunk
        whole = self._held + chunk
        end = whole.rfind(b"\n") + 1
        if not end and len(whole) > HELD:
            whole = self.hidden(whole)
            # The tail waits: a secret may have begun in it.
            end = len(whole) - TAIL
        self._held = whole[end:]
        return self.hidden(whole[:end])

    def rest(self) -> bytes:
        """Return what is left at the end."""
        left, self._held = self._held, b""
        return self.hidden(left)

    def hidden(self, raw: bytes) -> bytes:
        """Return the bytes with every secret in them replaced."""
        text = raw.decode("latin-1")  # a key is ASCII, whatever stands around it
        return self._hide.text(text).encode("latin-1") if self._hide.suspects(text) else raw
