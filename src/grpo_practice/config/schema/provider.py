"""The model section of a config: the endpoint and the settings of calls to it."""

from typing import Any
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator
from typing_extensions import override

from grpo_practice.config.schema.base import (
    Elsewhere,
    Model,
    Operational,
    Secret,
    Text,
    check_address,
)
from grpo_practice.core.calls import API_NAMES, ApiName

# The default of OpenAI's client library, which the reference uses.
DEFAULT_TIMEOUT_S = 600.0
WORKED_OUT = frozenset({"section", "origin", "key_origin"})
"""Provider fields that the loader fills in; a config cannot set them."""


class ModelProvider(Model):
    """Endpoint of a model.

    After loading, `model`, `base_url` and `api_key` are concrete: the URL and the key come from one
    source, and `section`, `origin` and `key_origin` name the places of each.
    """

    type: Operational[ApiName] = "chat.completions"
    """API of the endpoint: OpenAI-compatible chat completions, or the Responses API, which OpenAI's
    reasoning models need for tools. If the URL comes from `UTU_LLM_BASE_URL`, this defaults to
    `UTU_LLM_TYPE`. A run may resume with the other API, and reuses stored replies."""
    model: Text = ""
    """Model name; defaults to `UTU_LLM_MODEL`. `sim` is the simulated endpoint inside the program,
    unless the config has a `base_url`. A `sim` that `UTU_LLM_MODEL` names is called at
    `UTU_LLM_BASE_URL`."""
    base_url: Operational[Text] = Field("", repr=False)
    """URL up to `/chat/completions` or `/responses`; defaults to `UTU_LLM_BASE_URL`."""
    api_key: Operational[Secret] = None
    """API key for that URL; defaults to `UTU_LLM_API_KEY`. Prefer `${oc.env:NAME}` to the key
    itself."""
    requests_per_minute: Operational[int | None] = Field(None, ge=1)
    """Maximum number of requests per minute, spread evenly, for all roles together. If several
    sections set a limit for one URL, the lowest applies."""
    tokens_per_minute: Operational[int | None] = Field(None, ge=1)
    """Maximum number of tokens per minute in requests and replies together, shared in the same
    way."""
    stream: Operational[bool] = False
    """Whether to stream replies; useful if a proxy or server closes connections that stay
    silent, and for a slow server: time limits then leave out the wait in its line."""
    batch: Operational[bool] = False
    """Whether requests are sent in batches, which the endpoint answers within a day, often at half
    the price. An agent with tools, merges of the teacher and `serve` cannot use them; see
    docs/batches.md."""
    send_seed: Operational[bool] = True
    """Whether to send each request's seed; set false for an endpoint that rejects the parameter."""
    max_reply_mib: Operational[int] = Field(64, ge=1, le=1024)
    """Maximum size of one reply in MiB, decompressed and including reasoning; the rest of a larger
    reply is not read."""
    origin: Operational[str] = ""
    """Source of the URL, for display; set by the loader, not by a config."""
    section: Operational[str] = ""
    """Config key of this section, for display; set by the loader, not by a config."""
    key_origin: Operational[str] = ""
    """Source of the key, or the place to put one; set by the loader, not by a config."""

    @override
    def __eq__(self, other: object) -> bool:
        """Compare all but `section`: a teacher that is written out has a section of its own."""
        no = {"section": ""}
        return isinstance(other, ModelProvider) and dict(self) | no == dict(other) | no

    @property
    def simulated(self) -> bool:
        """Whether the program itself answers: the model is `sim` or `sim:…` and there is no URL."""
        return is_sim(self.model) and not self.base_url

    @property
    def key(self) -> str | None:
        """The API key in clear text."""
        return self.api_key.get_secret_value() if self.api_key else None

    @field_validator("type", mode="before")
    @classmethod
    def _usual(cls, value: Any) -> Any:
        return API_NAMES[0] if value == "" else value  # from a variable that is set to nothing

    @field_validator("base_url", mode="before")
    @classmethod
    def _one(cls, value: Any) -> Any:
        if isinstance(value, list | tuple) or (isinstance(value, str) and value.count("://") > 1):
            raise ValueError(
                "takes one URL: put several servers behind a load balancer and name that"
            )
        return value

    @field_validator("base_url")
    @classmethod
    def _url(cls, url: str) -> str:
        check_address(url or None)
        path = urlsplit(url).path.rstrip("/")
        for end in ("/chat/completions", "/responses"):
            if path.endswith(end):
                raise ValueError(f"should end before {end}, which is added automatically")
        return url.rstrip("/")


def is_sim(model: object) -> bool:
    """Return whether the value is the name of a simulated model."""
    return isinstance(model, str) and (model == "sim" or model.startswith("sim:"))


class Reasoning(Model):
    """Reasoning settings of a model."""

    effort: str | None = None
    """Sent as `reasoning_effort`, or as `reasoning.effort` with `type: responses`."""
    summary: Operational[str | None] = None
    """Summary of the reasoning that is requested, stored and shown: `auto`, `concise` or
    `detailed`. Only the Responses API has it; chat completions ignore it."""


class ModelSettings(Model):
    """Settings of the agent's calls. Null settings are not sent."""

    temperature: float | None = Field(None, ge=0)
    """Sampling temperature; practice rollouts use `rollout_temperature` instead."""
    top_p: float | None = Field(None, ge=0, le=1)
    """Nucleus sampling."""
    frequency_penalty: float | None = None
    """Frequency penalty: lowers the probability of tokens by how often they occurred."""
    presence_penalty: float | None = None
    """Presence penalty: lowers the probability of tokens that already occurred."""
    max_tokens: int | None = Field(None, ge=1)
    """Maximum number of tokens in one reply, including reasoning."""
    tool_choice: str | dict[str, Any] | None = None
    """Tool that the model must call."""
    parallel_tool_calls: bool | None = None
    """Whether one turn may contain several tool calls."""
    reasoning: Reasoning | None = None
    """Reasoning effort and summary."""
    verbosity: str | None = None
    """Requested length of replies."""
    top_logprobs: int | None = Field(None, ge=0)
    """Number of most likely tokens per position whose log probabilities are returned."""
    metadata: Operational[dict[str, Any] | None] = None
    """Metadata, sent unchanged; it is not part of a request's identity."""
    store: Operational[bool | None] = None
    """Whether the provider stores the reply."""
    prompt_cache_retention: Operational[str | None] = None
    """How long the provider keeps the prompt cache."""
    include_usage: Operational[bool | None] = None
    """Whether to request token counts when streaming, which omits them by default; null means
    true."""
    extra_query: Operational[dict[str, Any] | None] = None
    """Query parameters added to the request's URL."""
    extra_body: dict[str, Any] | None = None
    """Additional keys of the request body."""
    extra_headers: Operational[dict[str, SecretStr] | None] = None
    """Additional headers; their values are treated as secrets."""
    extra_args: dict[str, Any] | None = None
    """Additional keys of the request body, except `timeout`: the total seconds allowed for one
    request."""

    @field_validator("reasoning")
    @classmethod
    def _some(cls, value: Reasoning | None) -> Reasoning | None:
        return value if value and (value.effort or value.summary) else None

    @field_validator("extra_args")
    @classmethod
    def _timeout(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        timeout = (value or {}).get("timeout")
        numeric = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if timeout is not None and not (numeric and timeout > 0):
            raise ValueError("timeout should be a positive number of seconds")
        return value

    def given(self) -> dict[str, Any]:
        """Return the settings that are not null, by name; header values are in clear text."""
        values = self.model_dump(exclude_none=True)
        if self.extra_headers:
            values["extra_headers"] = {
                k: v.get_secret_value() for k, v in self.extra_headers.items()
            }
        return values


class ModelParams(Model):
    """Settings of this model's calls as teacher or judge. Null settings are not sent."""

    temperature: float | None = Field(None, ge=0)
    """Sampling temperature of teacher and judge calls; defaults to 0."""
    top_p: float | None = Field(None, ge=0, le=1)
    """Nucleus sampling of teacher and judge calls."""
    parallel_tool_calls: bool | None = None
    """Whether one turn may contain several tool calls."""


class ModelConfig(Model):
    """A model and the settings of calls to it."""

    model_provider: ModelProvider = ModelProvider()
    """Endpoint of the model."""
    model_settings: ModelSettings = ModelSettings()
    """Settings of the agent's calls; for a loaded teacher or judge, the settings of its own
    calls."""
    model_params: Elsewhere[ModelParams] = ModelParams()
    """Settings of calls as teacher or judge; they override `model_settings` when the config is
    read."""
