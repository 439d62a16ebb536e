"""How an answer is passed on: as it comes, but for our own key should it be in it."""

from collections.abc import Mapping

from multidict import CIMultiDict

from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.redact import Redactor, url_secrets

_OURS = frozenset({
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
    "te", "trailer", "transfer-encoding", "upgrade", "content-length", "content-encoding",
    "set-cookie", "server", "date", "alt-svc", "strict-transport-security",
})  # fmt: skip
"""Headers that belong to one connection, or to another host's name."""
_CORS = "access-control-"
HELD = 64 * 1024
"""Bytes without a line's end from which all but a tail is passed on."""
TAIL = 8 * 1024
"""Bytes that no notation of a key is longer than."""


def own_secrets(endpoint: Endpoint) -> Redactor:
    """What must not reach a client: the key of the endpoint and all else that lets one in there."""
    urls = [secret for url in endpoint.base_urls for secret in url_secrets(url)]
    given = [*endpoint.headers.values(), *endpoint.query.values()]
    return Redactor([endpoint.api_key or "", *given, *urls])


def headers(came: Mapping[str, str], hide: Redactor) -> CIMultiDict[str]:
    """The headers of an answer that go on with it."""
    kept = CIMultiDict[str]()
    for name, value in came.items():
        if name.lower() not in _OURS and not name.lower().startswith(_CORS):
            kept.add(name, hide.text(value))
    return kept


class Hiding:
    """Replaces the secrets in a body that comes in pieces.

    No secret goes over a line's end, so whole lines are passed on at once; what is behind the last
    one waits for the rest of its line. An event of a stream ends with a line.
    """

    def __init__(self, hide: Redactor) -> None:
        self._hide = hide
        self._held = b""

    def passed(self, chunk: bytes) -> bytes:
        """What can go on now that this came."""
        if not self._hide.known:
            return chunk
        whole = self._held + chunk
        end = whole.rfind(b"\n") + 1
        if not end and len(whole) > HELD:
            whole = self.hidden(whole)
            end = len(whole) - TAIL
        self._held = whole[end:]
        return self.hidden(whole[:end])

    def rest(self) -> bytes:
        """What is left at the end."""
        left, self._held = self._held, b""
        return self.hidden(left)

    def hidden(self, raw: bytes) -> bytes:
        """Bytes with every secret in them replaced."""
        text = raw.decode("latin-1")  # a key is ASCII, whatever stands around it
        return self._hide.text(text).encode("latin-1") if self._hide.suspects(text) else raw
