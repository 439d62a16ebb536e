"""What a person may see of a config, and what nobody may."""

import re
from collections.abc import Collection, Iterator
from typing import Any
from urllib.parse import unquote

from pydantic import BaseModel, SecretStr

from grpo_practice.config.redact import REDACTED, redact, redact_url, url_secrets
from grpo_practice.config.yamltext import dump_yaml
from grpo_practice.text import SHORTEST_SECRET

__all__ = ["collect_secrets", "mask", "redact_url", "redacted", "show"]

_SCHEME = re.compile(r"\A(?:Bearer|Basic)\s+", re.IGNORECASE)


def redacted(config: BaseModel) -> dict[str, Any]:
    """The config as plain values, secrets hidden."""
    values: dict[str, Any] = mask(redact(config.model_dump()), collect_secrets(config))
    return values


def mask(value: Any, secrets: Collection[str]) -> Any:
    """The value with every secret's exact text replaced, wherever in a text it stands."""
    match value:
        case dict():
            return {k: mask(v, secrets) for k, v in value.items()}
        case list():
            return [mask(v, secrets) for v in value]
        case str():
            for secret in sorted(secrets, key=len, reverse=True):
                value = value.replace(secret, REDACTED)
            return value
        case _:
            return value


def show(config: BaseModel) -> str:
    """The resolved config as YAML, secrets hidden."""
    return dump_yaml(redacted(config))


def collect_secrets(config: BaseModel) -> frozenset[str]:
    """The exact texts of all secrets in a config.

    Keys, header values (and what follows `Bearer `), `extra_query` values, and the user, password
    and query values of URLs, also percent-decoded. Placeholders are left out.
    """
    found = set(_secrets(config.model_dump()))
    found |= {_SCHEME.sub("", text) for text in found} | {unquote(text) for text in found}
    return frozenset(text for text in found if len(text) >= SHORTEST_SECRET)


def _secrets(value: Any, *, secret: bool = False) -> Iterator[str]:
    match value:
        case dict():
            for key, inner in value.items():
                yield from _secrets(inner, secret=secret or key == "extra_query")
        case list() | tuple():
            for inner in value:
                yield from _secrets(inner, secret=secret)
        case SecretStr():
            yield value.get_secret_value()
        case str() if secret:
            yield value
        case str() if "://" in value:
            yield from url_secrets(value)
        case _:
            return
