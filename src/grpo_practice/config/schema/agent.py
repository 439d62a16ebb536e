"""The agent of a config: its model, tools and instructions."""

import shlex
from ipaddress import ip_address
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from grpo_practice.config.schema.base import Model, Names, Operational, Text, Url
from grpo_practice.config.schema.provider import ModelConfig
from grpo_practice.config.schema.tools import PAGE_TOOLS, SearchToolkit, Toolkit, named
from grpo_practice.text import LOOPBACK, is_loopback


class AgentProfile(Model):
    """Name and instructions of an agent."""

    name: str = Field("default", min_length=1, max_length=200)
    """Name of the agent."""
    instructions: Text = ""
    """System prompt, taken literally: no braces, dollars or variables are expanded."""


MOST_WORKERS = 1_024


class ProxyConfig(Model):
    """The address at which programs ask their model."""

    host: str = Field(LOOPBACK, min_length=1)
    """Address to listen at. Beyond this machine it takes TLS."""
    port: int = Field(0, ge=0, le=65_535)
    """Port to listen at; 0 is any that is free."""
    url: Url[str | None] = None
    """Address that programs are told, where a tunnel or a server stands in front of this one.
    null is that of host and port."""
    tls_cert: str | None = None
    """File of a certificate, with those that lead to its authority (PEM)."""
    tls_key: str | None = None
    """File of its key, without a passphrase (PEM)."""
    insecure: bool = False
    """Whether addresses and conversations may leave this machine in clear."""

    @model_validator(mode="after")
    def _reachable(self) -> "ProxyConfig":
        told = urlsplit(self.url or f"{'https' if self.tls_cert else 'http'}://")
        asked = told.hostname or self.host
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("tls_cert and tls_key go together")
        if self.url is None and _is_any(self.host):
            raise ValueError(f"programs cannot ask {self.host}: url says by which name they do")
        if told.query or told.fragment or "@" in told.netloc:
            raise ValueError("url should be a scheme, a host, a port and a path, no more")
        if self.tls_cert and told.scheme == "http":
            raise ValueError("url should begin with https://, since tls_cert is there")
        leaves = not (is_loopback(self.host) and is_loopback(asked))
        if leaves and told.scheme == "http" and not self.insecure:
            raise ValueError(
                "beyond this machine it takes tls_cert and tls_key, or a url with https://"
                " (insecure: true sends addresses and conversations in clear)"
            )
        return self


class RayConfig(Model):
    """A Ray cluster on which programs run."""

    address: str = Field(pattern=r"^(local|[^\s/]+:[0-9]+)$")
    """`host:port` of its head; `local` starts one here, for the command. Nothing is joined that is
    not named."""
    num_cpus: float = Field(1.0, gt=0)
    """Cores that a program is given."""
    resources: dict[str, Annotated[float, Field(gt=0)]] = {}  # noqa: RUF012 - pydantic copies defaults
    """Custom resources that a program is given: `{browser: 1}`."""
    runtime_env: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies defaults
    """Environment that Ray makes on a node before: `pip`, `working_dir`, `env_vars` and others."""

    @field_validator("resources")
    @classmethod
    def _custom(cls, value: dict[str, float]) -> dict[str, float]:
        for name in ("CPU", "GPU", "memory", "object_store_memory"):
            if name in value:
                raise ValueError(f"{name} is none of your own; num_cpus says how many cores")
        return value


def _is_any(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


_OF_PROGRAMS = {
    "concurrency": "rollout_concurrency is its own",
    "proxy": "it asks its model itself",
    "ignores_system": "it sends its system prompt",
    "executor": "it starts no program",
    "ray": "it starts no program",
}
"""Keys of agents that are programs, and why another has no use for them."""


class AgentConfig(Model):
    """The agent that plays the rollouts."""

    type: Literal["simple", "python", "command"] = "simple"
    """`simple`: one question and one reply, or with toolkits as many turns as it takes.
    `python`, `command`: an agent of your own.
    """
    model: ModelConfig = ModelConfig()
    """Model of the agent."""
    agent: AgentProfile = AgentProfile()
    """Name and instructions."""
    toolkits: dict[str, Toolkit] = {}  # noqa: RUF012 - pydantic copies defaults
    """simple: its tools. Built in are `python_executor` and `search`; others come by MCP."""
    max_turns: int = Field(50, ge=1)
    """simple: most model calls of one rollout with tools; then one more, without tools."""
    stop_at_tool_names: Names = Field((), strict=False)
    """simple: the result of one of these tools is the answer."""
    function: str | None = None
    """python: `file.py:function` or `package.module:function`."""
    command: tuple[str, ...] | None = Field(None, strict=False)
    """command: the program and its arguments; started once for each rollout."""
    workers: Operational[int | None] = Field(None, ge=0, le=MOST_WORKERS)
    """python: processes that the function runs in; 0 runs it in this one, on the event loop or in
    threads. null is 0 for an `async` function, and for any other the number of cores."""
    concurrency: Operational[int | None] = Field(None, ge=1)
    """python, command: programs that compute at once; one that waits for its model does not count.
    null is the number of cores for commands and workers, else no limit."""

    proxy: Operational[ProxyConfig] = ProxyConfig()
    """python, command: the address at which programs ask their model."""

    ignores_system: Operational[bool] = False
    """python, command: whether the agent may leave the experiences out of its requests. Else
    practice pauses when no request of its first 3 rollouts with experiences has one."""

    executor: Operational[Literal["local", "ray"]] = "local"
    """python, command: where programs run. `ray`: on the nodes of a Ray cluster."""
    ray: Operational[RayConfig | None] = None
    """executor ray: the cluster."""

    _named = field_validator("toolkits", mode="before")(named)

    @property
    def page_tools(self) -> frozenset[str]:
        """The names of its tools whose results are web pages.

        No other tool of the agent has one of these names: two of one name are refused.
        """
        kits = [kit for kit in self.toolkits.values() if isinstance(kit, SearchToolkit)]
        return frozenset(name for kit in kits for name in kit.activated_tools or PAGE_TOOLS)

    @field_validator("command", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        """Split the command into words; there is no shell, so nothing in them is expanded."""
        if isinstance(value, str):
            try:
                return tuple(shlex.split(value))
            except ValueError as e:
                raise ValueError(f"cannot be split into words: {e}") from None
        if isinstance(value, list | tuple | None):
            return value
        raise ValueError("should be a text or a list of texts")

    @model_validator(mode="after")
    def _whole(self) -> "AgentConfig":
        self._check_executor()
        for kind, key in (("python", "function"), ("command", "command")):
            if (self.type == kind) != bool(getattr(self, key)):
                wrong = "needs" if self.type == kind else "has no use for"
                raise ValueError(f"type {self.type} {wrong} {key}")
        if self.toolkits and self.type != "simple":
            raise ValueError(f"type {self.type} brings its own tools; toolkits are for simple")
        return self

    def _check_executor(self) -> None:
        """Raise ValueError for keys that have no use where programs run, or whether they do."""
        if self.workers is not None and self.type != "python":
            raise ValueError(f"type {self.type} has no use for workers: they are for python")
        if self.executor == "ray":
            if self.ray is None:
                raise ValueError("executor ray needs ray.address; `local` starts a cluster here")
            if self.workers is not None:
                raise ValueError("executor ray has no use for workers: nodes have room as they are")
        if self.type != "simple":
            return
        for key, why in _OF_PROGRAMS.items():
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"type simple has no use for {key}: {why}")
