"""Splits a config's `model_settings` into hashed params, which affect answers, and the rest."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from grpo_practice.core.errors import ConfigError

_FLOATS = frozenset({"temperature", "top_p", "frequency_penalty", "presence_penalty"})
_AS_THEY_ARE = frozenset(
    {"max_tokens", "max_completion_tokens", "tool_choice", "parallel_tool_calls", "verbosity"}
)
_UNHASHED = frozenset(
    {"metadata", "store", "user", "prompt_cache_key", "prompt_cache_retention", "safety_identifier"}
    | {"reasoning_summary"}
)
_IGNORED = frozenset(
    {"include_usage", "stream", "stream_options", "truncation", "response_include"}
)
"""Keys about streaming, or about what an endpoint does with a conversation; never sent."""
_RESERVED: Mapping[str, str] = {
    "model": "set `model` next to `model_settings` instead",
    "messages": "the messages come from the agent",
    "tools": "name tools under `toolkits`",
    "seed": "the seed of each request is derived from `practice.seed` or `evaluation.seed`",
    "n": "only one reply is used; set `grpo_n` or `pass_k` for more attempts",
}


@dataclass(frozen=True, slots=True)
class Wire:
    """Settings that accompany or limit a request without changing its answer."""

    headers: Mapping[str, str]
    query: Mapping[str, str]
    unhashed: Mapping[str, Any]
    """Body keys that are not hashed."""
    timeout_s: float | None
    """Deadline of one whole try; None means the default."""
    limit_name: str = "max_tokens"
    """Name under which `max_tokens` is sent, until the endpoint asks for the other name."""


def canonical_params(settings: Mapping[str, Any]) -> tuple[dict[str, Any], Wire]:
    """Return the params of every request made with these settings, and the settings outside them.

    Params have one name and one type each: `max_completion_tokens` becomes `max_tokens`,
    `reasoning.effort` becomes `reasoning_effort`, sampling numbers become floats, and null is
    dropped. `extra_body` and then `extra_args` override the rest. The seed is not included, because
    it differs from request to request.

    Raises:
        ConfigError: A key is unknown, reserved or duplicated, or has an invalid value.
    """
    settings = _present(settings)
    headers, query = (_texts(settings, key) for key in ("extra_headers", "extra_query"))
    body, timeout_s = _body(settings)
    params = {k: _value(k, v) for k, v in body.items() if k not in _UNHASHED | _IGNORED}
    limit_name = "max_tokens"
    if "max_completion_tokens" in params:
        limit_name = "max_completion_tokens"
        if "max_tokens" in params:
            raise ConfigError("model_settings: max_tokens and max_completion_tokens are the same")
        params["max_tokens"] = params.pop("max_completion_tokens")
    unhashed = {k: v for k, v in body.items() if k in _UNHASHED}
    return params, Wire(headers, query, unhashed, timeout_s, limit_name)


def _body(settings: dict[str, Any]) -> tuple[dict[str, Any], float | None]:
    """Return the body's keys by their names on the wire, and the deadline."""
    body: dict[str, Any] = {}
    extra_body, extra_args = (_mapping(settings, key) for key in ("extra_body", "extra_args"))
    for key, value in settings.items():
        if key in _FLOATS | _AS_THEY_ARE | _UNHASHED | _IGNORED:
            body[key] = value
        elif key == "reasoning":
            given = _mapping(settings, "reasoning")
            body |= {f"reasoning_{k}": given[k] for k in ("effort", "summary") if k in given}
        elif key == "top_logprobs":
            body |= {"logprobs": True, "top_logprobs": value}
        elif key not in ("extra_body", "extra_args", "extra_headers", "extra_query"):
            raise ConfigError(
                f"model_settings.{key}: there is no such setting",
                hint=f"to send it to the endpoint unchanged: model_settings.extra_body.{key}",
            )
    timeout = extra_args.pop("timeout", None)
    for key in ("extra_body", "extra_args"):
        for name in _mapping(settings, key):
            if name in _RESERVED:
                raise ConfigError(f"model_settings.{key}.{name}: {_RESERVED[name]}")
    return body | extra_body | extra_args, _timeout_s(timeout)


def _value(key: str, value: Any) -> Any:
    if key not in _FLOATS:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"model_settings.{key}: {value!r} is not a number")
    # 1 and 1.0 are one setting, but differ in canonical JSON and thus in the hash of a request.
    return float(value)


def _timeout_s(value: Any) -> float | None:
    if value is None:
        return None
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:
        raise ConfigError(
            f"model_settings.extra_args.timeout: {value!r} is not a number of seconds"
        )
    return float(value)


def _present(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in mapping.items() if v is not None}


def _mapping(settings: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = settings.get(key, {})
    if not isinstance(value, Mapping):
        raise ConfigError(f"model_settings.{key}: {value!r} is not a mapping of names to values")
    return _present(value)


def _texts(settings: Mapping[str, Any], key: str) -> dict[str, str]:
    return {str(k): str(v) for k, v in _mapping(settings, key).items()}
