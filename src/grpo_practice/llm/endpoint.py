"""An endpoint: its address, and the request settings that do not affect an answer."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from grpo_practice.core.calls import ApiName
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.redact import redactor, url_secrets
from grpo_practice.core.text import is_web_address
from grpo_practice.llm.prices import Price, unpriced
from grpo_practice.llm.size_limit import DEFAULT_MIB, MEBIBYTE


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible endpoint; its secrets are registered with the process's redactor.

    Raises:
        ConfigError: The URL is not http(s), or a header contains characters that cannot be sent.
    """

    base_url: str = field(repr=False)
    """URL before the API's own path."""
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    unhashed: Mapping[str, Any] = field(default_factory=dict)
    """Body keys that cannot change an answer: metadata, store, user, prompt_cache_*."""
    timeout_s: float = 600.0
    """Deadline of one whole try."""
    connect_timeout_s: float = 10.0
    max_tries: int = 5
    limit_name: str = "max_tokens"
    """Name under which `max_tokens` is sent, until the endpoint asks for the other name."""
    send_seed: bool = True
    stream: bool = False
    """Whether replies are streamed, so that no proxy closes the connection during a long one."""
    stream_usage: bool = True
    """Whether token counts are requested for streams, which otherwise lack them."""
    max_reply_bytes: int = DEFAULT_MIB * MEBIBYTE
    """Maximum size of one reply, unpacked."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    """Limit for requests and replies together."""
    api: ApiName = "chat.completions"
    section: str = "agent.model.model_provider"
    """Config key of the endpoint, for messages."""
    key_name: str = "agent.model.model_provider.api_key"
    """Environment variable or config key that the API key is read from, for messages."""
    price: Callable[[str, str], Price | None] = field(default=unpriced, repr=False, compare=False)
    """Function from model and URL to the price; None if the price is unknown."""

    def __post_init__(self) -> None:
        redactor.know([self.api_key or "", *self.headers.values(), *self.query.values()])
        redactor.know(url_secrets(self.base_url))
        if not is_web_address(self.base_url):
            safe = self.base_url.partition("?")[0].rpartition("@")[2]
            raise ConfigError(
                f"model_provider.base_url: {safe!r} is not an http:// or https:// address",
                hint="it should look like https://api.example.com/v1",
            )
        if self.api_key and "@" in urlsplit(self.base_url).netloc:
            raise ConfigError(
                f"{shown_url(self.base_url)}: has both a user in its URL and an API key; a"
                " request can carry only one of them",
                hint="remove the user from base_url, or remove api_key",
            )
        for name, value in self.request_headers().items():
            if not (value.isascii() and value.isprintable()):
                where = self.key_name if name == "Authorization" else f"extra_headers.{name}"
                raise ConfigError(
                    f"{where}: contains a character that is not allowed in an HTTP header",
                    hint="look for a line break, a quotation mark or a space copied with it",
                )

    @property
    def limit_key(self) -> str:
        """Config key of `max_tokens`, for messages."""
        return f"{self.section.removesuffix('model_provider')}model_settings.max_tokens"

    @property
    def has_key(self) -> bool:
        """Whether requests carry a key; any header, query or login set by the user may be a key."""
        login = "@" in urlsplit(self.base_url).netloc
        return bool(self.api_key or self.headers or self.query or login)

    @property
    def address(self) -> str:
        """Everything that may select the model that answers, including secrets but not the API key.

        A gateway selects by URL, by header or by query. The API key is excluded because keys are
        renewed.
        """
        headers = sorted((name.lower(), value) for name, value in self.headers.items())
        return json.dumps([self.base_url, headers, sorted(self.query.items())])

    def request_headers(self) -> dict[str, str]:
        """Return the headers that every request carries."""
        ours = {"Content-Type": "application/json"}
        if self.api_key:
            ours["Authorization"] = f"Bearer {self.api_key}"
        # Names of headers ignore case: compared as spelt, a request could carry a header twice.
        theirs = {name.lower() for name in self.headers}
        return {k: v for k, v in ours.items() if k.lower() not in theirs} | dict(self.headers)


def shown_url(url: str) -> str:
    """Return the URL without user info, query and fragment, which may contain secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def host(url: str) -> str:
    """Return the URL's host name, without the port."""
    return urlsplit(url).hostname or ""


def place(url: str) -> str:
    """Return the URL's host name and, if it has one, its port, to identify who answered."""
    parts = urlsplit(url)
    return f"{parts.hostname or ''}:{parts.port}" if parts.port else parts.hostname or ""


def environment_proxy(url: str) -> str:
    """Return the environment's proxy for the URL, perhaps with a login; '' if there is no proxy."""
    if proxy_bypass(host(url)):
        return ""
    proxies = getproxies()
    return proxies.get(urlsplit(url).scheme) or proxies.get("all", "")


def proxy_of(url: str) -> str:
    """Return the environment's proxy for the URL, without its login; '' if there is no proxy."""
    return urlsplit(environment_proxy(url)).netloc.rpartition("@")[2]


def refuse_socks(url: str, proxy: str) -> None:
    """Raise ConfigError if `proxy`, the environment's proxy for the URL, is a SOCKS proxy.

    The HTTP library would send the request to the proxy, including the key, as plain HTTP.
    """
    parts = urlsplit(proxy)
    if not parts.scheme.lower().startswith("socks"):
        return
    names = (f"{urlsplit(url).scheme}_proxy", "all_proxy")
    # Use the spelling found in the environment: upper and lower case are both read.
    given = [n for name in names for n in (name, name.upper()) if os.environ.get(n)]
    where = given[0] if given else "the system's settings"
    raise ConfigError(
        f"{shown_url(url)} cannot be reached: {where} names a SOCKS proxy"
        f" ({parts.netloc.rpartition('@')[2]}), but only HTTP proxies are supported",
        hint="set HTTP_PROXY and HTTPS_PROXY to an http:// proxy, add the host to NO_PROXY, or"
        f" remove the proxy from {where}",
    )
