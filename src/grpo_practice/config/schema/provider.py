"""A model of a config: where it is asked, and how."""

from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator

from grpo_practice.config.schema.base import (
    Elsewhere,
    Model,
    Operational,
    Secret,
    Text,
    check_address,
)

DEFAULT_TIMEOUT_S = 600.0
WORKED_OUT = frozenset({"origin", "key_origin"})
"""Fields of a provider that the loader fills; no keys of a config."""


class ModelProvider(Model):
    """Endpoint of a model.

    After loading, `model`, `base_url` and `api_key` are concrete: the URL and the key come from
    one source; `origin` and `key_origin` name where each was found.
    """

    type: Literal["chat.completions"] = "chat.completions"
    """The API spoken: OpenAI-compatible chat completions."""
    model: Text = ""
    """Model name, else `UTU_LLM_MODEL`. `sim` is the simulated endpoint inside the program, unless
    the config has a `base_url`; one that `UTU_LLM_MODEL` names is asked at `UTU_LLM_BASE_URL`."""
    base_url: Operational[Text] = Field("", repr=False)
    """URL before `/chat/completions`. Else `UTU_LLM_BASE_URL`."""
    api_key: Operational[Secret] = None
    """The key for that URL; better `${oc.env:NAME}` than the key itself. Else `UTU_LLM_API_KEY`."""
    requests_per_minute: Operational[int | None] = Field(None, ge=1)
    """Most requests sent there in a minute, spread evenly, by all roles together; of several limits
    for one URL, the lowest counts."""
    tokens_per_minute: Operational[int | None] = Field(None, ge=1)
    """Most tokens in a minute, of requests and replies together, shared in the same way."""
    stream: Operational[bool] = False
    """Receive replies in pieces, where a proxy or server ends connections that are long silent."""
    send_seed: Operational[bool] = True
    """Send each request's seed; false for an endpoint that does not take one."""
    max_reply_mib: Operational[int] = Field(64, ge=1, le=1024)
    """Most MiB of one reply, unpacked, reasoning included; the rest of a larger one is not read."""
    origin: Operational[str] = ""
    """Source of the URL, for people; worked out, never configured."""
    key_origin: Operational[str] = ""
    """Source of the key, or the place for one; worked out, never configured."""

    @property
    def simulated(self) -> bool:
        """Whether it is answered inside the program: `sim` or `sim:…`, and no URL."""
        return is_sim(self.model) and not self.base_url

    @property
    def key(self) -> str | None:
        """The key in clear."""
        return self.api_key.get_secret_value() if self.api_key else None

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
        if urlsplit(url).path.rstrip("/").endswith("/chat/completions"):
            raise ValueError("should end before /chat/completions; that part is added")
        return url.rstrip("/")


def is_sim(model: object) -> bool:
    """Return whether it is the name of a simulated model."""
    return isinstance(model, str) and (model == "sim" or model.startswith("sim:"))


class Reasoning(Model):
    """Effort of a reasoning model."""

    effort: str | None = None
    """Sent as `reasoning_effort`."""


class ModelSettings(Model):
    """Settings of the agent's calls. A null one is not sent."""

    temperature: float | None = Field(None, ge=0)
    """Sampling temperature; practice rollouts use `rollout_temperature` instead."""
    top_p: float | None = Field(None, ge=0, le=1)
    """Nucleus sampling."""
    frequency_penalty: float | None = None
    """Penalty for frequent tokens."""
    presence_penalty: float | None = None
    """Penalty for tokens that already occur."""
    max_tokens: int | None = Field(None, ge=1)
    """Most tokens of one reply, reasoning included."""
    tool_choice: str | dict[str, Any] | None = None
    """Tool that the model must call."""
    parallel_tool_calls: bool | None = None
    """Whether one turn may call several tools."""
    reasoning: Reasoning | None = None
    """Reasoning effort."""
    verbosity: str | None = None
    """Length that replies should have."""
    top_logprobs: int | None = Field(None, ge=0)
    """Log-probabilities of so many tokens."""
    metadata: Operational[dict[str, Any] | None] = None
    """Sent as it is; not part of what identifies a request."""
    store: Operational[bool | None] = None
    """Whether the provider keeps the reply."""
    prompt_cache_retention: Operational[str | None] = None
    """Time for which the provider keeps the prompt's cache."""
    include_usage: Operational[bool | None] = None
    """Ask for token counts when streaming, which has none otherwise; null is the same as true."""
    extra_query: Operational[dict[str, Any] | None] = None
    """Query parameters of the request's URL."""
    extra_body: dict[str, Any] | None = None
    """Further keys of the request's body."""
    extra_headers: Operational[dict[str, SecretStr] | None] = None
    """Further headers; their values are treated as secrets."""
    extra_args: dict[str, Any] | None = None
    """Further keys of the body, except `timeout`: the total seconds of one request."""

    @field_validator("reasoning")
    @classmethod
    def _some(cls, value: Reasoning | None) -> Reasoning | None:
        return value if value and value.effort is not None else None

    @field_validator("extra_args")
    @classmethod
    def _timeout(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        timeout = (value or {}).get("timeout")
        numeric = isinstance(timeout, int | float) and not isinstance(timeout, bool)
        if timeout is not None and not (numeric and timeout > 0):
            raise ValueError("timeout should be a positive number of seconds")
        return value

    def given(self) -> dict[str, Any]:
        """Return the settings that are set, by name, as plain values; header values in clear."""
        values = self.model_dump(exclude_none=True)
        if self.extra_headers:
            values["extra_headers"] = {
                k: v.get_secret_value() for k, v in self.extra_headers.items()
            }
        return values


class ModelParams(Model):
    """Settings of teacher and judge calls to this model. A null one is not sent."""

    temperature: float | None = Field(None, ge=0)
    """Sampling temperature of teacher and judge calls; 0 unless set."""
    top_p: float | None = Field(None, ge=0, le=1)
    """Nucleus sampling of teacher and judge calls."""
    parallel_tool_calls: bool | None = None
    """Whether one turn may call several tools."""


class ModelConfig(Model):
    """A model and how it is called."""

    model_provider: ModelProvider = ModelProvider()
    """Endpoint of the model."""
    model_settings: ModelSettings = ModelSettings()
    """Settings of the agent's calls; of a loaded teacher or judge, those of its own calls."""
    model_params: Elsewhere[ModelParams] = ModelParams()
    """Settings as teacher or judge; laid over `model_settings` when the config is read."""
