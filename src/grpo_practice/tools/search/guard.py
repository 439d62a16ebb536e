"""Keeps what this program fetches itself away from everything that is not the public internet.

A name is looked up once for a connection, and the addresses found are the ones connected to; the
last check is made on the address itself, after all names, where the socket is opened.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult
from typing_extensions import override
from yarl import URL

from grpo_practice.tools.search.page import (
    NOT_PUBLIC,
    RefusedError,
    WebAddress,
    is_public,
    page_url,
)

Lookup = Callable[[str, int], Awaitable[list[str]]]
"""The addresses of a name, at a port.

Raises:
    OSError: It has none.
"""
PORTS = (80, 443)


async def lookup(name: str, port: int) -> list[str]:
    """Return the addresses that the system knows."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


class Guard(AbstractResolver):
    """Lets connections go to public addresses alone, at the ports of the web.

    `allow` names pairs of address and port that are let through as well: a server of a test.
    """

    def __init__(
        self,
        lookup: Lookup = lookup,
        allow: Collection[tuple[str, int]] = (),
        ports: Collection[int] = PORTS,
    ) -> None:
        self._lookup, self._allow, self._ports = lookup, frozenset(allow), frozenset(ports)

    def url(self, text: str) -> URL:
        """Return the URL, unless it tells that it may not be asked for: then raise RefusedError."""
        url = page_url(text)
        if url.port not in self._ports | {port for _, port in self._allow}:
            raise RefusedError("only ports 80 and 443 are read", str(url.port))
        return url

    @override
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a name, all of them public.

        Raises:
            RefusedError: It has none, or one is not public: then it is not trusted with the others.
        """
        try:
            found = await self._lookup(host, port)
        except (OSError, UnicodeError):
            found = []
        if not found:
            raise RefusedError("there is no such site on the internet", host)
        # All or none: the connection may go to any of them.
        return [self._checked(host, text, port) for text in found]

    def _checked(self, host: str, text: str, port: int) -> ResolveResult:
        address = self._let_through(text, port, host)
        return ResolveResult(
            hostname=host,
            host=text,
            port=port,
            family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
            proto=socket.IPPROTO_TCP,
            flags=socket.AI_NUMERICHOST,
        )

    def socket(self, info: tuple[Any, ...]) -> socket.socket:
        """Return a socket for that address, the last thing before a connection is made.

        Raises:
            RefusedError: It may not be connected to.
        """
        family, kind, proto, _, at = info
        # Again, on the address itself: a URL may hold one, and then no name is looked up.
        self._let_through(at[0], at[1], at[0])
        return socket.socket(family, kind, proto)

    def _let_through(self, text: str, port: int, host: str) -> WebAddress:
        try:
            address = ipaddress.ip_address(text)
        except ValueError as e:
            raise RefusedError(NOT_PUBLIC, host) from e
        public = is_public(address) and port in self._ports
        if not public and (text, port) not in self._allow:
            raise RefusedError(NOT_PUBLIC, host)
        return address

    @override
    async def close(self) -> None:
        """Close nothing: nothing is open."""
