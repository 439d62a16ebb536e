"""The model behind a served agent, called with a client's body and the agent's settings."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from grpo_practice.llm.api import APIS, NEED_TOOLS
from grpo_practice.llm.endpoint import Endpoint, shown_url
from grpo_practice.llm.http import BREAKS, Http, OpenResponse, connection_failure, encode_body
from grpo_practice.llm.http_response import ConnectionFailure, Response, read_json
from grpo_practice.llm.retry_policy import Adapt, decide

# Two names for the same limit: if a client sets either, the agent's limit must not be added.
_SAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_COMPLAINT = (400, 422)


class BrokenError(Exception):
    """Error for a response that is missing or incomplete."""

    def __init__(self, failure: ConnectionFailure) -> None:
        super().__init__(f"{failure.url}: {failure.text}")
        self.failure = failure


@dataclass(frozen=True, slots=True)
class Sent:
    """A request as sent, with its response."""

    chat: Mapping[str, Any]
    """Request as the body of a chat completion request."""
    body: Mapping[str, Any]
    """Body in the format of the model's API."""
    url: str
    """Full URL, which may contain secrets."""
    response: OpenResponse

    @property
    def where(self) -> str:
        """URL without secrets, for display."""
        return shown_url(self.url)

    def read(self, text: str, body: Any) -> Response:
        """Return the response with the body that was read."""
        headers = {name.lower(): value for name, value in self.response.headers.items()}
        return Response(self.response.status, headers, text, body, self.where)

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the body as it arrives; raise BrokenError if the connection breaks."""
        try:
            async for chunk in self.response.chunks:
                yield chunk
        except BREAKS as e:
            raise BrokenError(connection_failure(e, self.where)) from e

    async def whole(self) -> bytes:
        """Return the whole body; raises as `chunks` does."""
        return b"".join([chunk async for chunk in self.chunks()])


class Upstream:
    """The agent's model, called with the agent's settings unless a client sets them."""

    def __init__(
        self, endpoint: Endpoint, model: str, settings: Mapping[str, Any], http: Http
    ) -> None:
        self._endpoint, self._model, self._http = endpoint, model, http
        self._settings = settings
        self._adapted: dict[str, str | None] = {"max_tokens": endpoint.limit_name}
        """Our setting → the name under which it is sent; None if it is omitted."""

    def filled(self, theirs: Mapping[str, Any]) -> dict[str, Any]:
        """Return a client's body with the agent's model, and the agent's settings as defaults.

        A null value in the client's body does not count as a setting.
        """
        ours = {**self._endpoint.unhashed, **self._settings}
        given = {key for key, value in theirs.items() if value is not None}
        given |= {_SAME[key] for key in given & _SAME.keys()}
        if not theirs.get("tools"):
            given |= NEED_TOOLS
        filled = {key: value for key, value in ours.items() if key not in given}
        return {**theirs, **filled, "model": self._model}

    @asynccontextmanager
    async def ask(self, theirs: Mapping[str, Any]) -> AsyncIterator[Sent]:
        """Send a client's body, and yield the model's response as it arrives.

        If the model rejects one of the agent's settings, the setting is renamed or dropped for this
        and all later requests.

        Raises:
            BrokenError: There is no response.
        """
        async with AsyncExitStack() as stack:
            while True:
                sent = await self._post(stack, theirs)
                if sent.response.status not in _COMPLAINT:
                    break
                raw = await sent.whole()
                if not self._adapt(sent, theirs, raw):
                    sent = replace(sent, response=replace(sent.response, chunks=_once(raw)))
                    break
            yield sent

    async def _post(self, stack: AsyncExitStack, theirs: Mapping[str, Any]) -> Sent:
        chat = self.filled(theirs)
        wire = APIS[self._endpoint.api].request_body(chat)
        names = ((k, self._adapted.get(k, k) if theirs.get(k) is None else k) for k in wire)
        body = {name: wire[k] for k, name in names if name is not None}
        answer = self._http.opened(encode_body(body))
        try:
            return Sent(chat, body, self._http.url, await stack.enter_async_context(answer))
        except BREAKS as e:
            raise BrokenError(connection_failure(e, shown_url(self._http.url))) from e

    def _adapt(self, sent: Sent, theirs: Mapping[str, Any], raw: bytes) -> bool:
        """Change the rejected setting if it is ours; return False if anything else was rejected."""
        match decide(sent.read(*read_json(raw)), sent.body, self._endpoint):
            case Adapt(name, to) if theirs.get(name) is None and sent.body.get(name) is not None:
                self._adapted[name] = to
                return True
        return False


async def _once(raw: bytes) -> AsyncIterator[bytes]:
    yield raw
