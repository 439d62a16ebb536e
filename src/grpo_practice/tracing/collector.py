"""Selection of the trace collector from the process environment.

A `.env` file can name only a Phoenix on this machine, because traces contain questions and answers.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from grpo_practice.config import Environment, read_environment
from grpo_practice.config.reading.env import PHOENIX as DOTENV
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.redact import redact_url, redactor, url_secrets
from grpo_practice.core.text import is_web_address

PHOENIX = ("PHOENIX_ENDPOINT", "PHOENIX_COLLECTOR_ENDPOINT")
"""Variables that name a Phoenix server; they take precedence over OpenTelemetry's variables."""
OTLP_TRACES, OTLP = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
VARIABLES = (*PHOENIX, OTLP_TRACES, OTLP)
"""Variables that name a collector, in order of precedence."""
_PHOENIX_SECRETS = ("PHOENIX_API_KEY", "PHOENIX_CLIENT_HEADERS")
PATH = "/v1/traces"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


@dataclass(frozen=True, slots=True)
class Collector:
    """A collector that accepts OTLP over HTTP."""

    url: str
    variable: str
    """Variable that names the collector."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    project: str | None = None
    """Phoenix project."""
    gzip: bool = False

    @property
    def shown(self) -> str:
        """URL without credentials."""
        return redact_url(self.url)


def variables_of(env: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return the process's variables, plus those from `.env` if the process names no collector.

    `env` has the variables of a config; None reads the process environment and `.env`.
    """
    known = read_environment(os.environ) if env is None else env
    dotenv = isinstance(known, Environment) and known.path is not None
    if not dotenv or any(os.environ.get(name) for name in VARIABLES):
        return os.environ
    # Phoenix keys of the process must not go to a collector that `.env` names.
    process = {name: value for name, value in os.environ.items() if name not in _PHOENIX_SECRETS}
    return {**{name: known[name] for name in DOTENV if name in known}, **process}


def collector_of(process: Mapping[str, str]) -> Collector | None:
    """Return the collector that these variables name; None if they name no collector.

    The values of its headers are registered with the redactor.

    Raises:
        ConfigError: The address is invalid, or another protocol is requested.
    """
    if process.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return None
    variable = next((name for name in VARIABLES if process.get(name, "").strip()), None)
    if variable is None or (
        # The standard variable may request another exporter, or `none`.
        variable not in PHOENIX and _first(process, "OTEL_TRACES_EXPORTER") not in ("", "otlp")
    ):
        return None
    url = process[variable].strip()
    # Before the check below, whose error quotes the address.
    redactor.know(url_secrets(url))
    if not is_web_address(url):
        raise ConfigError(
            f"{variable}: {redact_url(url)} is not a valid address, so no traces are sent",
            hint=f"start it with http:// or https://, or unset {variable}",
        )
    if variable in PHOENIX:
        headers = _headers(process, ["PHOENIX_CLIENT_HEADERS"])
        if key := process.get("PHOENIX_API_KEY", "").strip():
            headers = {"authorization": f"Bearer {key}", **headers}
    else:
        _check_protocol(process)
        # Never send these headers to Phoenix: they belong to the OpenTelemetry endpoint.
        headers = _headers(
            process, ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"]
        )
    redactor.know(headers.values())
    return Collector(
        url if variable == OTLP_TRACES else _with_path(url),
        variable,
        headers,
        process.get("PHOENIX_PROJECT_NAME", "").strip() or None,
        _first(process, "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", "OTEL_EXPORTER_OTLP_COMPRESSION")
        == "gzip",
    )


def _check_protocol(process: Mapping[str, str]) -> None:
    if (protocol := _first(process, *_PROTOCOLS)) not in ("", "http/protobuf"):
        raise ConfigError(
            f"OTEL_EXPORTER_OTLP_PROTOCOL {protocol} is not supported, so no traces are sent",
            hint="set it to http/protobuf; collectors usually accept that on port 4318",
        )


def _first(process: Mapping[str, str], *names: str) -> str:
    values = (process.get(name, "").strip() for name in names)
    return next((value.lower() for value in values if value), "")


def _with_path(url: str) -> str:
    base = url.rstrip("/")
    return base if urlsplit(base).path.endswith(PATH) else base + PATH


def _headers(process: Mapping[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the headers of the first variable that is set: `name=value,…`, percent-encoded.

    Raises:
        ConfigError: A header cannot be sent; the message does not contain its value.
    """
    name = next((name for name in names if process.get(name, "").strip()), None)
    found = dict[str, str]()
    for pair in process.get(name, "").split(",") if name else ():
        key, sign, value = (unquote(part.strip()) for part in pair.partition("="))
        redactor.know([value])
        if not sign or not key:
            continue
        if not (key + value).isascii() or not (key + value).isprintable():
            raise ConfigError(f"the header {key!r} in {name} cannot be sent, so no traces are sent")
        found[key.lower()] = value
    return found
