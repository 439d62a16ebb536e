"""The chat API for programs inside rollouts: an address for each rollout, while it lasts."""

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from aiohttp import web

from grpo_practice.calls import Reply
from grpo_practice.chat_server import server
from grpo_practice.chat_server.server import ChatRequest, RequestError
from grpo_practice.text import LOOPBACK

ROOT = "/r/{token}/v1"


@dataclass(frozen=True, slots=True)
class Guest:
    """The rollout behind one address."""

    model: str
    ask: Callable[[ChatRequest], Awaitable[Reply]]
    """Function that answers; it may raise `RequestError`."""


class Proxy:
    """The server at which the programs of a run ask their model.

    Each rollout has an address that nobody can guess, and that answers nobody once it has ended.
    """

    def __init__(self) -> None:
        self._guests = dict[str, Guest]()
        self._port = 0

    @asynccontextmanager
    async def served(self) -> AsyncIterator[None]:
        """Answer for the block, on this machine only."""
        app = server.application(
            web.post(f"{ROOT}/chat/completions", self._chat),
            web.get(f"{ROOT}/models", self._models),
        )
        async with server.listening(app) as self._port:
            yield

    @contextmanager
    def address(self, guest: Guest) -> Iterator[str]:
        """Give the guest a base URL for the block."""
        token = secrets.token_urlsafe(32)
        self._guests[token] = guest
        try:
            yield f"http://{LOOPBACK}:{self._port}{ROOT.format(token=token)}"
        finally:
            del self._guests[token]

    def _guest(self, request: web.Request) -> Guest:
        guest = self._guests.get(request.match_info["token"])
        if guest is None:
            raise RequestError(
                "no rollout is being played at this address: it has ended, or never began",
                status=404,
                code="rollout_ended",
            )
        return guest

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        guest = self._guest(request)
        chat_request = server.read_request(await request.read())
        reply = await guest.ask(chat_request)
        return await server.respond(request, chat_request, reply)

    async def _models(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(server.models(self._guest(request).model))
