"""The chat API for programs inside rollouts: an address for each rollout, while it lasts."""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from ssl import SSLContext
from urllib.parse import urlsplit

from aiohttp import web

from grpo_practice.calls import Reply
from grpo_practice.chat_server import server
from grpo_practice.chat_server.server import ChatRequest, RequestError
from grpo_practice.redact import ROLLOUT_TOKEN, hide_rollout_keys
from grpo_practice.text import LOOPBACK

ROOT = "/r/{token}/v1"
FREE_GUESSES = 20
"""Unknown tokens that an address may ask with before each one costs it time."""
GUESS_S = 1.0
_MOST_ADDRESSES = 10_000
"""Addresses whose guesses are counted."""


@dataclass(frozen=True, slots=True)
class Guest:
    """The rollout behind one address."""

    model: str
    ask: Callable[[ChatRequest], Awaitable[Reply]]
    """Function that answers; it may raise `RequestError`."""
    begins: Callable[[], None] = lambda: None
    """Function that is called with each request: its program runs."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """The way to one guest's model, which ends with its rollout."""

    base_url: str
    token: str
    """Key that the address has in it, and that opens the one without it, too."""


@dataclass(frozen=True, slots=True)
class Listening:
    """The place where a proxy listens, and the address by which it is asked."""

    host: str = LOOPBACK
    port: int = 0
    url: str | None = None
    """Address in front of it; None where it is asked at its own."""
    tls: SSLContext | None = None

    def url_at(self, port: int) -> str:
        """Return the address by which it is asked, once it listens at that port."""
        if self.url is not None:
            return self.url.rstrip("/")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{port}"


class Proxy:
    """The server at which the programs of a run ask their model.

    Each rollout has an address that nobody can guess, and that answers nobody once it has ended.
    """

    def __init__(self, listening: Listening | None = None) -> None:
        self._listening = listening or Listening()
        self._guests = dict[str, Guest]()
        self._guesses = Counter[str]()
        self._url = ""
        self.port = 0
        """Port that it listens at."""

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Answer for the block; raise OSError where the port is taken."""
        place = self._listening
        app = server.application(
            *(web.post(f"{root}/chat/completions", self._chat) for root in (ROOT, "/v1")),
            *(web.get(f"{root}/models", self._models) for root in (ROOT, "/v1")),
            names={place.host.lower(), urlsplit(place.url or "").hostname or ""},
        )
        async with server.listening(app, place.port, place.host, place.tls) as self.port:
            self._url = place.url_at(self.port)
            yield

    @contextmanager
    def address(self, guest: Guest) -> Iterator[Invitation]:
        """Let the guest's program ask for the block."""
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
        """Wait before an answer to one who has asked with many unknown tokens."""
        if len(self._guesses) >= _MOST_ADDRESSES and asker not in self._guesses:
            self._guesses.clear()
        self._guesses[asker] += 1
        if self._guesses[asker] > FREE_GUESSES:
            await asyncio.sleep(GUESS_S)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        guest = await self._guest(request)
        chat_request = server.read_request(hide_rollout_keys(await request.read()))
        reply = await guest.ask(chat_request)
        return await server.respond(request, chat_request, reply)

    async def _models(self, request: web.Request) -> web.StreamResponse:
        guest = await self._guest(request)
        return web.json_response(server.models(guest.model))
