"""Secrets in config values become `***`, by the key they stand under and by what URLs look like."""

import re
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

from pydantic import SecretStr

from grpo_practice.config.yamltext import Key

REDACTED = "***"

_SECRET_KEYS = frozenset(
    {"api_key", "headers", "extra_headers", "env", "extra_query", "password", "token"}
)
_REFERENCE = re.compile(r"(?:(?:Bearer|Basic) )?\$\{\s*oc\.env\s*:\s*\w+\s*(?:,\s*(?:null)?\s*)?\}")
"""A value that only names an environment variable gives nothing away."""


def redact(value: Any, key: Key = ()) -> Any:
    """The value with every secret replaced; `key` is where it stands."""
    match value:
        case dict():
            return {k: redact(v, (*key, k)) for k, v in value.items()}
        case list() | tuple():
            return [redact(v, key) for v in value]
        case SecretStr():
            return REDACTED
        case None:
            return None
        case _ if any(part in _SECRET_KEYS for part in key):
            text = str(value)
            return text if not text or _REFERENCE.fullmatch(text) else REDACTED
        case str() if "://" in value:
            return redact_url(value)
        case _:
            return value


def redact_url(url: str) -> str:
    """The URL with its user, password and query values hidden; any other text as it is."""
    parts = _split(url)
    if parts is None:
        return url
    host = parts.netloc.rpartition("@")[2]
    netloc = f"{REDACTED}@{host}" if "@" in parts.netloc else host
    query = re.sub(r"(?<==)[^&;]+", REDACTED, parts.query)
    if "=" not in parts.query and parts.query:
        query = REDACTED
    return urlunsplit(parts._replace(netloc=netloc, query=query))


def url_secrets(url: str) -> set[str]:
    """The user, the password and the query values of a URL, as they stand in it."""
    parts = _split(url)
    if parts is None:
        return set()
    user, at, _ = parts.netloc.rpartition("@")
    found = {user, *user.split(":", 1)} if at else set()
    found |= {pair.partition("=")[2] or pair for pair in parts.query.split("&")}
    return found - {""}


def _split(url: str) -> SplitResult | None:
    """The URL's parts; None when the text is not one address with a host."""
    if any(c.isspace() for c in url):
        return None
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    return parts if parts.netloc else None
