"""Hides secrets in config values; recognises a secret by its key or as part of a URL."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import BaseModel, SecretStr

from grpo_practice.config.reading.yaml_reader import Key
from grpo_practice.core.redact import REDACTED, redact_url, redactor, url_secrets, variable_secrets

_SECRET_KEYS = frozenset(
    {"api_key", "headers", "extra_headers", "env", "extra_query", "password", "token"}
    | {"search_api_key", "crawl_api_key"}
)
_REFERENCE = re.compile(r"(?:(?:Bearer|Basic) )?\$\{\s*oc\.env\s*:\s*\w+\s*(?:,\s*(?:null)?\s*)?\}")
"""Pattern of a value that only names an environment variable, which is not a secret."""

_REFERENCE_ANYWHERE = re.compile(r"\$\{\s*oc\.env")
_GONE = object()


def redact(value: Any, key: Key = ()) -> Any:
    """Replace every secret in the value; `key` is the path to the value."""
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
            # An empty value stays visible, because hiding it would suggest that a key is set.
            return text if not text or only_names_variable(text) else REDACTED
        case str() if "://" in value:
            return redact_url(value)
        case _:
            return value


def without_secrets(value: Any, key: Key = ()) -> Any:
    """Return plain values without secrets and without values taken from the environment."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k not in _SECRET_KEYS}
        inner = {k: without_secrets(v, (*key, k)) for k, v in kept.items()}
        return {k: v for k, v in inner.items() if v is not _GONE}
    if isinstance(value, list):
        return [v for v in (without_secrets(v, key) for v in value) if v is not _GONE]
    return _GONE if _REFERENCE_ANYWHERE.search(str(value)) else value


def only_names_variable(value: object) -> bool:
    """Return whether the value is just a reference to an environment variable."""
    return _REFERENCE.fullmatch(str(value)) is not None


def leaves(values: Any, key: Key = ()) -> Iterator[tuple[Key, Any]]:
    """Yield every scalar value with its key; list items have numbers as keys."""
    if isinstance(values, dict):
        items: Iterable[tuple[str | int, Any]] = values.items()
    elif isinstance(values, list | tuple):
        items = enumerate(values)
    else:
        yield key, values
        return
    for name, value in items:
        yield from leaves(value, (*key, name))


def secrets_in(values: Any) -> Iterator[str]:
    """Yield every secret in config values that `redact` would hide, with variables filled in."""
    for key, value in leaves(values):
        text = value.get_secret_value() if isinstance(value, SecretStr) else value
        if not isinstance(text, str):
            continue
        if "env" in key[:-1]:
            yield from variable_secrets(str(key[-1]), text)
        elif isinstance(value, SecretStr) or any(part in _SECRET_KEYS for part in key):
            yield text
        elif "://" in text:
            yield from url_secrets(text)


def redacted(config: BaseModel) -> dict[str, Any]:
    """Return the config as plain values with secrets hidden."""
    values = config.model_dump()
    # Register the secrets first, so that the next line also hides them where other texts repeat
    # them.
    redactor.know(secrets_in(values))
    hidden: dict[str, Any] = redactor.value(redact(values))
    return hidden
