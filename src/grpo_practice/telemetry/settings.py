"""The collector that the process's environment names, and what is sent to it.

Only the environment of the process counts, and no `.env`: a folder of a stranger's must not say
who is sent what was asked and answered.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from grpo_practice.errors import ConfigError
from grpo_practice.redact import redact_url, redactor, url_logins
from grpo_practice.text import brief, is_web_address

PATH = "/v1/traces"
"""Path of traces below the address of a collector."""
NAME = "grpo-practice"
"""Name of the service, and of the project where none is named."""
# The first that is set counts; an address of the third one is whole, and gets no path.
PHOENIX = ("PHOENIX_COLLECTOR_ENDPOINT", "PHOENIX_ENDPOINT")
WHOLE = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
VARIABLES = (*PHOENIX, WHOLE, "OTEL_EXPORTER_OTLP_ENDPOINT")
"""Variables that name a collector, the first that is set before the others."""


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """Parts of a run that are sent."""

    content: bool = True
    """Whether questions, answers and prompts are sent."""
    sample: float = 1.0
    """Share of the groups that are sent, each whole."""


@dataclass(frozen=True, slots=True)
class Collector:
    """A collector, as the environment names it."""

    url: str
    variable: str
    """Variable that names it."""
    project: str
    """Name under which Phoenix shows the traces."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers besides those of `OTEL_EXPORTER_OTLP_HEADERS`, which are read for its own address."""

    @property
    def shown(self) -> str:
        """Address for people, without a password."""
        return redact_url(self.url)


def collector_of(environment: Mapping[str, str]) -> Collector | None:
    """Return the collector that the variables name; None where they name none.

    Raises:
        ConfigError: An address is none.
    """
    variable = next((name for name in VARIABLES if environment.get(name, "").strip()), None)
    if variable is None:
        return None
    url = environment[variable].strip()
    redactor.know(url_logins(url))
    if not is_web_address(url):
        raise ConfigError(
            f"{variable}: {redact_url(brief(url, 100))!r} is no http:// or https:// address",
            hint=f"unset {variable}, or write for instance http://127.0.0.1:6006",
        )
    if variable != WHOLE and not url.rstrip("/").endswith(PATH):
        url = url.rstrip("/") + PATH
    headers = dict[str, str]()
    if variable in PHOENIX and (key := environment.get("PHOENIX_API_KEY")):
        redactor.know([key])
        headers["authorization"] = f"Bearer {key}"
    for name in ("OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"):
        pairs = environment.get(name, "").split(",")
        redactor.know(pair.partition("=")[2].strip() for pair in pairs)
    return Collector(url, variable, environment.get("PHOENIX_PROJECT_NAME") or NAME, headers)
