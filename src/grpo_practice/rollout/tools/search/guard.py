"""Restricts this program's own page requests to the public internet.

A name is looked up once per connection, and only the addresses found are connected to. The last
check is made after all lookups, on the address itself, when the socket is opened.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult
from typing_extensions import override
from yarl import URL

from grpo_practice.rollout.tools.search.page import (
    NOT_PUBLIC,
    RefusedError,
    WebAddress,
    is_public,
    page_url,
)

Lookup = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a name, for a port.

Raises:
    OSError: The name has no address.
"""
PORTS = (80, 443)


async def lookup(name: str, port: int) -> list[str]:
    """Return the addresses from the system's resolver."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


class Guard(AbstractResolver):
    """Permits connections only to public addresses, and only on the standard web ports.

    `allow` lists further pairs of address and port, for servers in tests.
    """

    def __init__(
        self,
        lookup: Lookup = lookup,
        allow: Collection[tuple[str, int]] = (),
        ports: Collection[int] = PORTS,
    ) -> None:
        self._lookup, self._allow, self._ports = lookup, frozenset(allow), frozenset(ports)

    def url(self, text: str) -> URL:
        """Return the parsed URL; raise RefusedError if it is not allowed."""
        url = page_url(text)
        if url.port not in self._ports | {port for _, port in self._allow}:
            raise RefusedError("only ports 80 and 443 are allowed", str(url.port))
        return url

    @override
    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses of a name, all of them public.

        Raises:
            RefusedError: The name has no address, or an address that is not public: then none is
                trusted.
        """
        try:
            found = await self._lookup(host, port)
        except (OSError, UnicodeError):
            found = []
        if not found:
            raise RefusedError("there is no such site on the internet", host)
        # All addresses must be public: the connection may go to any of them.
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
        """Return a socket for the address; this is the last step before a connection is made.

        Raises:
            RefusedError: Connecting to the address is not allowed.
        """
        family, kind, proto, _, at = info
        # Check the address again: if the URL contains an address, no name is looked up.
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
        """Close nothing: the guard holds no resources."""
