"""The way on: a client's body laid over the agent's settings, and sent to the agent's model."""

import itertools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from grpo_practice.canonical import clean_json
from grpo_practice.llm.endpoint import Endpoint, shown_url
from grpo_practice.llm.http import BREAKS, Came, Http, broken, chat_url
from grpo_practice.llm.http_response import ConnectionFailure, Response, read_json
from grpo_practice.llm.retry_policy import Adapt, decide

_NEED_TOOLS = frozenset({"tool_choice", "parallel_tool_calls"})
"""Settings that endpoints refuse in a request without tools."""
_SAME = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_COMPLAINT = (400, 422)
_JSON = json.JSONEncoder(ensure_ascii=False)


class BrokenError(Exception):
    """There was no answer, or not the whole of one."""

    def __init__(self, what: ConnectionFailure) -> None:
        super().__init__(f"{what.url}: {what.text}")
        self.what = what


@dataclass(frozen=True, slots=True)
class Sent:
    """A request that was answered: what was sent where, and what comes back."""

    body: Mapping[str, Any]
    url: str
    """With all that belongs to it; not to be shown."""
    came: Came

    @property
    def where(self) -> str:
        """The URL as it is shown."""
        return shown_url(self.url)

    async def chunks(self) -> AsyncGenerator[bytes]:
        """The body as it comes.

        Raises:
            BrokenError: It broke off.
        """
        try:
            async for chunk in self.came.chunks:
                yield chunk
        except BREAKS as e:
            raise BrokenError(broken(e, self.where)) from e

    async def whole(self) -> bytes:
        """The body, read to its end.

        Raises:
            BrokenError: It broke off.
        """
        return b"".join([chunk async for chunk in self.chunks()])


class Upstream:
    """The model of the agent, asked with its settings.

    Args:
        endpoint: Where it is. Its replicas are asked in turn; one that cannot be reached is passed
            over.
        model: Its name there.
        settings: Of the agent: they fill what a client leaves out.
        http: The connections.
    """

    def __init__(
        self, endpoint: Endpoint, model: str, settings: Mapping[str, Any], http: Http
    ) -> None:
        self._endpoint, self._model, self._http = endpoint, model, http
        self._settings = dict(settings)
        self._urls = [str(chat_url(base, endpoint)) for base in endpoint.base_urls]
        self._turns = itertools.count()

    def body(self, theirs: Mapping[str, Any]) -> dict[str, Any]:
        """What is sent for a client's body: the agent's model, and its settings where none stand.

        What the client says wins; a key that is null says nothing.
        """
        ours = dict(self._endpoint.unhashed) | self._settings
        said = {key for key, value in theirs.items() if value is not None}
        said |= {_SAME[key] for key in said & _SAME.keys()}
        if not theirs.get("tools"):
            said |= _NEED_TOOLS
        filled = {key: value for key, value in ours.items() if key not in said}
        return {**theirs, **filled, "model": self._model}

    @asynccontextmanager
    async def ask(self, theirs: Mapping[str, Any]) -> AsyncIterator[Sent]:
        """What the model answers to a client's body, as it comes.

        A setting of the agent's own that the model does not take is sent under its other name, or
        left out, from then on.

        Raises:
            BrokenError: Nobody answers.
        """
        async with AsyncExitStack() as stack:
            while True:
                sent = await self._posted(stack, self.body(theirs))
                if sent.came.status not in _COMPLAINT:
                    break
                raw = await sent.whole()
                if not self._adapted(sent, theirs, raw):
                    came = Came(sent.came.status, sent.came.headers, _once(raw))
                    sent = Sent(sent.body, sent.url, came)
                    break
            yield sent

    async def _posted(self, stack: AsyncExitStack, body: dict[str, Any]) -> Sent:
        content, first = _written(body), next(self._turns)
        for n in range(len(self._urls)):
            url = self._urls[(first + n) % len(self._urls)]
            try:
                came = await stack.enter_async_context(self._http.opened(url, content))
            except BREAKS as e:
                what = broken(e, shown_url(url))
                if what.kind != "connect" or n + 1 == len(self._urls):
                    raise BrokenError(what) from e
            else:
                return Sent(body, url, came)
        raise AssertionError("an endpoint has a URL")

    def _adapted(self, sent: Sent, theirs: Mapping[str, Any], raw: bytes) -> bool:
        """True when the complaint is of a setting of ours, which is changed now."""
        text, body = read_json(raw)
        headers = {name.lower(): value for name, value in sent.came.headers.items()}
        answer = Response(sent.came.status, headers, text, body, sent.where)
        match decide(answer, sent.body, self._endpoint.key_name):
            case Adapt(name, to) if theirs.get(name) is None and sent.body.get(name) is not None:
                value = self._settings.pop(name, None)
                if to is not None and value is not None:
                    self._settings[to] = value
                return True
        return False


async def _once(raw: bytes) -> AsyncIterator[bytes]:
    yield raw


def _written(body: Mapping[str, Any]) -> bytes:
    """The body as JSON in UTF-8, lone surrogates replaced."""
    try:
        return _JSON.encode(body).encode()
    except UnicodeEncodeError:
        return _JSON.encode(clean_json(body)).encode()
