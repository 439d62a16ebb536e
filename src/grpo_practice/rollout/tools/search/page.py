"""Pages and search hits: the accepted addresses, and the banned sites."""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass

from yarl import URL

from grpo_practice.core.text import brief
from grpo_practice.rollout.tools import ToolError

LONGEST_URL = 2000
_HOST = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*\.?|\[?[0-9a-f:.]+\]?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_OWN = ("localhost", "local", "internal", "home.arpa", "lan")
"""Suffixes of names that resolve inside a local network."""


class RefusedError(ToolError):
    """An error for a refused page. `reason` is our wording; `what` is its address or name."""

    def __init__(self, reason: str, what: str) -> None:
        super().__init__(f"{reason}: {what}")
        self.reason = reason


NO_PAGE = "not a URL of a page"
NOT_WEB = "only http:// and https:// pages can be read"
NOT_PUBLIC = "only public pages can be read"


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One result of a search."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True, slots=True)
class WebPage:
    """A page as text."""

    url: str
    """Final address of the page, after redirects."""
    text: str
    whole: bool = True
    """False if only the beginning was read."""


def page_url(text: str) -> URL:
    """Return the URL of a page that may be requested: http(s), a public name, no login.

    The same parser validates the URL and makes the connection, so both read it alike.

    Raises:
        RefusedError: The URL is not acceptable.
    """
    text = text.strip()
    shown = brief(text, 200)
    if len(text) > LONGEST_URL or any(c <= " " or c in "\\\x7f" for c in text):
        raise RefusedError(NO_PAGE, shown)
    try:
        url = URL(text)
        name = (url.raw_host or "").lower()
        port = url.port
    except ValueError as e:
        raise RefusedError(NO_PAGE, shown) from e
    if url.scheme not in ("http", "https"):
        raise RefusedError(NOT_WEB, shown)
    if "@" in url.raw_authority or not port or not _HOST.fullmatch(name):
        raise RefusedError(NO_PAGE, shown)
    _refuse_own(name.rstrip("."), shown)
    return url.with_fragment(None)


def _refuse_own(name: str, shown: str) -> None:
    """Raise RefusedError unless a name, or an address in the usual notation, may be public.

    Addresses in other notations are refused, because programs interpret them differently.
    """
    # Some programs read names that end in a number as addresses: 2130706433, 0x7f.1, 127.1.
    if ":" in name or _NUMBER.fullmatch(name.rpartition(".")[2]):
        try:
            address = ipaddress.ip_address(name)
        except ValueError as e:
            raise RefusedError(NO_PAGE, shown) from e
        if not is_public(address):
            raise RefusedError(NOT_PUBLIC, name)
    elif "." not in name or name.endswith(tuple(f".{end}" for end in _OWN)):
        raise RefusedError(NOT_PUBLIC, name)


WebAddress = ipaddress.IPv4Address | ipaddress.IPv6Address
_V6 = ipaddress.IPv6Network("2000::/3")
"""All addresses ever assigned; loopback, link-local, private, mapped and NAT64 addresses lie
outside this network.
"""
_SPECIAL = tuple(
    ipaddress.ip_network(text)
    for text in (
        "192.0.0.0/24",
        "192.88.99.0/24",
        "2001::/23",
        "2002::/16",
        "3fff::/20",
        # A public address, but on an Azure virtual machine it serves the host's metadata.
        "168.63.129.16",
    )
)
"""Networks that some Python versions call global, but whose addresses contain or represent other
addresses.
"""


def is_public(address: WebAddress) -> bool:
    """Return whether the address belongs to one public machine and cannot represent another."""
    if not address.is_global or address.is_multicast or address.is_reserved:
        return False
    if address.version == 6 and address not in _V6:
        return False
    return not any(address.version == net.version and address in net for net in _SPECIAL)


def domain_of(url: URL) -> str:
    """Return the domain of a page for labels: lower case, punycode, without `www.`."""
    return (url.raw_host or "").lower().rstrip(".").removeprefix("www.")


def found_at(text: str) -> URL | None:
    """Return the URL of a search result; None if its page cannot be read."""
    try:
        return page_url(text)
    except RefusedError:
        return None


class Banned:
    """Sites to leave out: each domain with all its subdomains.

    Sites are given as domains or URLs, in any case and script.

    Raises:
        ValueError: A site is not a domain.
    """

    def __init__(self, sites: Iterable[str]) -> None:
        self._sites = frozenset(map(_site, sites))

    def __contains__(self, url: URL) -> bool:
        parts = domain_of(url).split(".")
        return any(".".join(parts[i:]) in self._sites for i in range(len(parts)))

    def check(self, url: URL) -> URL:
        """Return the URL; raise RefusedError if its site is banned."""
        if url in self:
            raise RefusedError("pages of this site are not read here", domain_of(url))
        return url


def _site(text: str) -> str:
    bare = text.strip().removeprefix("*.").strip(".")
    try:
        url = URL(bare if "://" in bare else f"http://{bare}")
        name = domain_of(url)
    except ValueError:
        name = ""
    if not _HOST.fullmatch(name):
        raise ValueError(f"{text!r} is not a domain")
    return name
