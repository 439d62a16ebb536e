"""Where requests go, and all that goes with them without changing an answer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from grpo_practice.errors import ConfigError
from grpo_practice.text import SHORTEST_SECRET, is_web_address


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An OpenAI-compatible endpoint.

    Raises:
        ConfigError: A URL is not http(s), or a header cannot be sent as it is.
    """

    base_urls: tuple[str, ...] = field(repr=False)
    """At least one. Requests start at one after another; a request's tries go on from there."""
    api_key: str | None = field(default=None, repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict, repr=False)
    unhashed: Mapping[str, Any] = field(default_factory=dict)
    """Body keys that cannot change an answer: metadata, store, user, prompt_cache_*."""
    timeout_s: float = 600.0
    """Total deadline of one try."""
    connect_timeout_s: float = 10.0
    max_tries: int = 5
    send_seed: bool = True
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """Exact texts that must not get into a reply or a message; the key is always one of them."""
    key_name: str = "agent.model.model_provider.api_key"
    """The environment variable or config key the API key comes from, for messages."""
    _secret: re.Pattern[str] | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.base_urls:
            raise ConfigError("model_provider.base_url: there is none")
        for url in self.base_urls:
            _check_url(url)
            if self.api_key and "@" in urlsplit(url).netloc:
                raise ConfigError(
                    f"{shown_url(url)}: has a user in its URL and an API key beside it; a request"
                    " can carry only one of them",
                    hint="take the user out of base_url, or leave the api_key out",
                )
        for name, value in self.request_headers().items():
            if not (value.isascii() and value.isprintable()):
                where = self.key_name if name == "Authorization" else f"extra_headers.{name}"
                raise ConfigError(
                    f"{where}: holds a character that no HTTP header can carry",
                    hint="look for a line break, a quotation mark or a space copied with it",
                )
        secrets = self.secrets | ({self.api_key} if self.api_key else set())
        longest_first = sorted(secrets, key=lambda s: (-len(s), s))
        parts = [re.escape(s) for s in longest_first if len(s) >= SHORTEST_SECRET]
        object.__setattr__(self, "_secret", re.compile("|".join(parts)) if parts else None)

    def request_headers(self) -> dict[str, str]:
        """The headers every request carries."""
        ours = {"Content-Type": "application/json"}
        if self.api_key:
            ours["Authorization"] = f"Bearer {self.api_key}"
        theirs = {name.lower() for name in self.headers}
        return {k: v for k, v in ours.items() if k.lower() not in theirs} | dict(self.headers)

    def redact(self, value: Any) -> Any:
        """The JSON value with every secret in its strings replaced by `***`."""
        match value:
            case str():
                return value if self._secret is None else self._secret.sub("***", value)
            case dict():
                return {self.redact(k): self.redact(v) for k, v in value.items()}
            case list():
                return [self.redact(v) for v in value]
            case _:
                return value


def shown_url(url: str) -> str:
    """The URL without user info, query and fragment, which may hold secrets."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def host(url: str) -> str:
    """The URL's host name, without the port."""
    return urlsplit(url).hostname or ""


def _check_url(url: str) -> None:
    if not is_web_address(url):
        safe = url.partition("?")[0].rpartition("@")[2]
        raise ConfigError(
            f"model_provider.base_url: {safe!r} is not an http:// or https:// address",
            hint="it looks like https://api.example.com/v1",
        )
