"""Parts of an agent's configuration as written, suitable for inclusion in another file."""

from collections.abc import Mapping
from typing import Any

from grpo_practice.config.reading.yaml_reader import Tree, parse_yaml
from grpo_practice.config.redact import only_names_variable
from grpo_practice.core.redact import REDACTED, redactor, url_secrets


def model_as_written(config_text: str) -> Tree:
    """Return the agent's model as configured, with variables left as references."""
    part = parse_yaml(config_text, "the stored config")
    for name in ("evaluation", "agent", "model"):
        part = part.at(name)
    return part


def endpoint_written(written: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's address and key as its configuration specifies them, without secrets.

    A key is included only together with its address, and only as the name of the variable that
    holds it.
    """
    url, key = written.get("base_url"), written.get("api_key")
    if not isinstance(url, str) or not url or not _is_public(url):
        return {}
    return {"base_url": url} | ({"api_key": key} if only_names_variable(key) else {})


def _is_public(url: str) -> bool:
    # The value of a variable applies to this machine only.
    return not ("${" in url or REDACTED in url or url_secrets(url) or redactor.holds(url))


def without_secrets(value: Any, key: str, left_out: list[str]) -> Any:
    """Return the value without its redacted parts, and add their keys to `left_out`."""
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, inner in value.items():
        if REDACTED in str(inner) and not isinstance(inner, dict):
            left_out.append(f"{key}.{name}")
        else:
            kept[name] = without_secrets(inner, f"{key}.{name}", left_out)
    return kept
