"""An internet of this machine's own: names, one public address, and servers that stand there."""

import asyncio
import socket
import ssl
from asyncio.selector_events import BaseSelectorEventLoop
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

PUBLIC = "93.184.216.34"
PAGE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n"
MIB = 2**20


@dataclass
class Internet:
    """Every name leads to the public address, unless `names` has others; it counts who comes."""

    pages: Mapping[str, bytes] = field(default_factory=dict)
    """Host → all that its server sends."""
    endless: Mapping[str, bytes] = field(default_factory=dict)
    """Host → what it sends again and again after that."""
    names: dict[str, list[list[str]]] = field(default_factory=dict)
    """Name → addresses, answer by answer; the last one stays."""
    looked_up: Counter[str] = field(default_factory=Counter)
    connected: list[tuple[str, int]] = field(default_factory=list)
    """Addresses that were connected to, less the servers that a test has started itself."""
    served: Counter[str] = field(default_factory=Counter)
    """Host → requests."""
    sent: Counter[str] = field(default_factory=Counter)
    """Host → bytes of what is endless."""
    ports: dict[int, int] = field(default_factory=dict)
    """Port of the public address → port of this machine."""

    def addresses(self, name: str) -> list[str]:
        """Look a name up."""
        self.looked_up[name] += 1
        answers = self.names.get(name, [[PUBLIC]])
        return answers.pop(0) if len(answers) > 1 else answers[0]

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request with the page of its host, or with a redirect where it asks for it."""
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            host = head.lower().partition("\nhost: ")[2].partition("\r")[0].partition(":")[0]
            to = parse_qs(urlsplit(head.split(" ")[1]).query).get("to")
            self.served[host] += 1
            led = f"HTTP/1.1 302 Found\r\nLocation: {to and to[0]}\r\nContent-Length: 0\r\n\r\n"
            page = self.pages.get(host, PAGE + b"<title>Public</title><p>Hello.")
            writer.write(led.encode() if to else page)
            while (more := self.endless.get(host)) and self.sent[host] < 64 * MIB:
                writer.write(more)
                await writer.drain()
                self.sent[host] += len(more)
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client has had enough
        finally:
            writer.close()

    def build(self, patch: pytest.MonkeyPatch) -> None:
        """Have names looked up here, and connections to the public address made here."""
        getaddrinfo, connect = socket.getaddrinfo, BaseSelectorEventLoop.sock_connect

        def looked_up(host: Any, port: Any, *args: Any, **options: Any) -> Any:
            if host is None or host[:1].isdigit() or ":" in host:
                return getaddrinfo(host, port, *args, **options)
            kind = socket.SOCK_STREAM
            return [
                (socket.AF_INET6 if ":" in found else socket.AF_INET, kind, 6, "", (found, port))
                for found in self.addresses(host)
            ]

        async def connected(loop: Any, sock: socket.socket, address: Any) -> None:
            if address[1] < 1024:
                self.connected.append(tuple(address[:2]))
            if address[0] == PUBLIC:
                address = ("127.0.0.1", self.ports[address[1]])
            await connect(loop, sock, address)

        patch.setattr(socket, "getaddrinfo", looked_up)
        patch.setattr(BaseSelectorEventLoop, "sock_connect", connected)


@asynccontextmanager
async def served(internet: Internet, pem: str) -> AsyncIterator[Internet]:
    """Serve ports 80 and 443 of the public address."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(pem)
    plain = await asyncio.start_server(internet.answer, "127.0.0.1", 0)
    secret = await asyncio.start_server(internet.answer, "127.0.0.1", 0, ssl=tls)
    async with plain, secret:
        for port, server in ((80, plain), (443, secret)):
            internet.ports[port] = server.sockets[0].getsockname()[1]
        yield internet
