"""The chat API for programs in rollouts: gives each rollout an address while it is being played."""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web

from grpo_practice.core.calls import Message, Reply
from grpo_practice.core.redact import ROLLOUT_TOKEN, hide_rollout_keys
from grpo_practice.core.text import LOOPBACK
from grpo_practice.llm.served_responses import response
from grpo_practice.rollout.chat_server import server
from grpo_practice.rollout.chat_server.server import ChatRequest, RequestError

ROOT = "/r/{token}/v1"
FREE_GUESSES = 20
"""Number of unknown tokens that a client may try before each further attempt is delayed."""
GUESS_S = 1.0
_MOST_ADDRESSES = 10_000
"""Maximum number of clients whose guesses are counted."""


@dataclass(frozen=True, slots=True)
class Guest:
    """The rollout behind one address."""

    model: str
    ask: Callable[[ChatRequest], Awaitable[Reply]]
    """Function that answers a request; it may raise `RequestError`."""
    begins: Callable[[], None] = lambda: None
    """Function called on each request, which shows that the program is running."""
    responses: dict[str, list[Message]] = field(default_factory=dict)
    """Conversation up to each response, by its id, for `previous_response_id`."""
    items: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Items of all responses, by their ids, which a later request may name in their place."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """Access to one guest's model, which ends with the rollout."""

    base_url: str
    token: str
    """Key that is part of the address; sent as a bearer token, it also gives access to plain
    `/v1`.
    """


@dataclass(frozen=True, slots=True)
class Listening:
    """The interface and port that a proxy listens on, and the URL that programs use to reach it."""

    host: str = LOOPBACK
    port: int = 0
    url: str | None = None
    """URL of a server in front of the proxy; None if programs reach the proxy directly."""
    tls: SSLContext | None = None

    def url_at(self, port: int) -> str:
        """Return the URL that programs use to reach the proxy once it listens on that port."""
        if self.url is not None:
            return self.url.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{port}"


class Proxy:
    """The server that gives the programs of a run access to their models.

    Each rollout has an address that nobody can guess. The address stops working once the rollout
    has ended.
    """

    def __init__(self, listening: Listening | None = None) -> None:
        self._listening = listening or Listening()
        self._guests = dict[str, Guest]()
        self._guesses = Counter[str]()
        self._url = ""
        self.port = 0
        """Port that the proxy listens on."""

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Serve while the block runs; raise OSError if the port is taken."""
        place = self._listening
        app = server.application(
            *(web.post(f"{root}/chat/completions", self._chat) for root in (ROOT, "/v1")),
            *(web.post(f"{root}/responses", self._responses) for root in (ROOT, "/v1")),
            *(web.get(f"{root}/models", self._models) for root in (ROOT, "/v1")),
            names={place.host.lower(), urlsplit(place.url or "").hostname or ""},
        )
        async with server.listening(app, place.port, place.host, place.tls) as self.port:
            self._url = place.url_at(self.port)
            yield

    @contextmanager
    def address(self, guest: Guest) -> Iterator[Invitation]:
        """Accept requests from the guest's program while the block runs."""
        token = ROLLOUT_TOKEN + secrets.token_urlsafe(32)
        self._guests[token] = guest
        try:
            yield Invitation(self._url + ROOT.format(token=token), token)
        finally:
            del self._guests[token]

    async def _guest(self, request: web.Request) -> Guest:
        bearer = request.headers.get("Authorization", "").removeprefix("Bearer ")
        guest = self._guests.get(request.match_info.get("token", bearer))
        if guest is None:
            await self._delay(request.remote or "")
            raise RequestError(
                "no rollout is being played at this address: it has ended, or never began",
                status=404,
                code="rollout_ended",
            )
        guest.begins()
        return guest

    async def _delay(self, asker: str) -> None:
        """Wait before responding to a client that has tried many unknown tokens."""
        if len(self._guesses) >= _MOST_ADDRESSES and asker not in self._guesses:
            # Limit the memory used: a client may have many addresses.
            self._guesses.clear()
        self._guesses[asker] += 1
        if self._guesses[asker] > FREE_GUESSES:
            await asyncio.sleep(GUESS_S)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        guest = await self._guest(request)
        # A rollout's key in the text would keep the request from ever matching a stored one.
        chat_request = server.read_request(hide_rollout_keys(await request.read()))
        reply = await guest.ask(chat_request)
        return await server.respond(request, chat_request, reply)

    async def _responses(self, request: web.Request) -> web.StreamResponse:
        guest = await self._guest(request)
        given = server.read_body(hide_rollout_keys(await request.read()))
        if isinstance(asked := given.get("input"), list):
            given["input"] = [guest.items.get(_referred(item), item) for item in asked]
        chat_request = server.chat_request(server.responses_body(given, guest.responses))
        reply = await guest.ask(chat_request)
        body = response(server.completion(chat_request, reply), given, f"resp_{reply.call_id}")
        # A later request brings its own instructions, so these are not part of the conversation.
        said = chat_request.messages[1:] if given.get("instructions") else chat_request.messages
        # Most requests repeat the conversation before them: keep one copy of each message.
        before = next(reversed(guest.responses.values()), [])
        kept = [old if old == new else new for old, new in zip(before, said, strict=False)]
        guest.items.update((str(item.get("id")), item) for item in body["output"])
        guest.responses[body["id"]] = [*kept, *said[len(kept) :], reply.message]
        return await server.respond_with(request, body, stream=chat_request.stream)

    async def _models(self, request: web.Request) -> web.StreamResponse:
        guest = await self._guest(request)
        return web.json_response(server.models(guest.model))


def _referred(item: object) -> str:
    """Return the id of the item that stands in place of this one; '' for any other item."""
    if not isinstance(item, dict) or item.get("type") != "item_reference":
        return ""
    return str(item.get("id", ""))
