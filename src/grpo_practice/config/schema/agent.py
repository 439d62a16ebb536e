"""The agent section of a config: model, tools and instructions."""

import shlex
from ipaddress import ip_address
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from grpo_practice.config.schema.base import Model, Names, Operational, Text, Url
from grpo_practice.config.schema.provider import ModelConfig
from grpo_practice.config.schema.tools import PAGE_TOOLS, SearchToolkit, Toolkit, named
from grpo_practice.core.text import LOOPBACK, is_loopback


class AgentProfile(Model):
    """Name and instructions of an agent."""

    name: str = Field("default", min_length=1, max_length=200)
    """Name of the agent."""
    instructions: Text = ""
    """System prompt, taken literally: braces, dollar signs and variables are not expanded."""


MOST_WORKERS = 1_024


class ProxyConfig(Model):
    """Address at which agent programs call their model."""

    host: str = Field(LOOPBACK, min_length=1)
    """Address to listen on. An address outside this machine requires TLS."""
    port: int = Field(0, ge=0, le=65_535)
    """Port to listen on; 0 picks a free port."""
    url: Url[str | None] = None
    """URL that programs use if a tunnel or a reverse proxy forwards to this address. null builds
    the URL from host and port."""
    tls_cert: str | None = None
    """PEM file with the TLS certificate and its chain of authorities."""
    tls_key: str | None = None
    """PEM file with the certificate's private key, without a passphrase."""
    insecure: bool = False
    """Whether addresses and conversations may leave this machine unencrypted."""

    @model_validator(mode="after")
    def _reachable(self) -> "ProxyConfig":
        told = urlsplit(self.url or f"{'https' if self.tls_cert else 'http'}://")
        asked = told.hostname or self.host
        if bool(self.tls_cert) != bool(self.tls_key):
            raise ValueError("tls_cert and tls_key go together")
        if self.url is None and _is_any(self.host):
            raise ValueError(
                f"programs cannot connect to {self.host}: set url to an address that they can reach"
            )
        if told.query or told.fragment or "@" in told.netloc:
            raise ValueError("url may contain only a scheme, a host, a port and a path")
        if self.tls_cert and told.scheme == "http":
            raise ValueError("url should begin with https://, since tls_cert is set")
        leaves = not (is_loopback(self.host) and is_loopback(asked))
        if leaves and told.scheme == "http" and not self.insecure:
            raise ValueError(
                "serving other machines needs tls_cert and tls_key, or a url with https://"
                " (insecure: true sends addresses and conversations unencrypted)"
            )
        return self


class RayConfig(Model):
    """A Ray cluster that runs agent programs."""

    address: str = Field(pattern=r"^(local|[^\s/]+:[0-9]+)$")
    """`host:port` of the cluster's head node, or `local` to start a cluster on this machine for the
    duration of the command. No other cluster is ever joined."""
    num_cpus: float = Field(1.0, gt=0)
    """CPU cores that each program gets."""
    resources: dict[str, Annotated[float, Field(gt=0)]] = {}  # noqa: RUF012 - pydantic copies defaults
    """Custom resources that each program gets, for example `{browser: 1}`."""
    runtime_env: dict[str, Any] = {}  # noqa: RUF012 - pydantic copies defaults
    """Environment that Ray sets up on a node first: `pip`, `working_dir`, `env_vars` and others."""

    @field_validator("resources")
    @classmethod
    def _custom(cls, value: dict[str, float]) -> dict[str, float]:
        for name in ("CPU", "GPU", "memory", "object_store_memory"):
            if name in value:
                raise ValueError(
                    f"{name} is not a custom resource; num_cpus sets the number of cores"
                )
        return value


def _is_any(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


_OF_PROGRAMS = {
    "concurrency": "set rollout_concurrency instead",
    "proxy": "it calls its model itself",
    "ignores_system": "it sends its system prompt",
    "executor": "it starts no programs",
    "ray": "it starts no programs",
}
"""Keys that only agents that are programs use, each with the reason other agents cannot use it."""


class AgentConfig(Model):
    """The agent that plays the rollouts."""

    type: Literal["simple", "python", "command"] = "simple"
    """`simple`: one question and one reply, or, with toolkits, a conversation of several turns.
    `python`, `command`: an agent of your own."""
    model: ModelConfig = ModelConfig()
    """Model that the agent calls."""
    agent: AgentProfile = AgentProfile()
    """Name and instructions of the agent."""
    toolkits: dict[str, Toolkit] = {}  # noqa: RUF012 - pydantic copies defaults
    """simple: the agent's tools. `python_executor` and `search` are built in; other tools come from
    MCP servers."""
    max_turns: int = Field(50, ge=1)
    """simple: maximum number of model calls in a rollout with tools; one more call without tools
    follows."""
    stop_at_tool_names: Names = Field((), strict=False)
    """simple: tools whose result ends the rollout and is the answer."""
    function: str | None = None
    """python: `file.py:function` or `package.module:function`."""
    command: tuple[str, ...] | None = Field(None, strict=False)
    """command: the program and its arguments; it is started once per rollout."""
    workers: Operational[int | None] = Field(None, ge=0, le=MOST_WORKERS)
    """python: number of worker processes for the function; 0 runs it in this process, on the event
    loop or in threads. null is 0 for an `async` function and the number of cores for any other
    function."""
    concurrency: Operational[int | None] = Field(None, ge=1)
    """python, command: maximum number of programs that compute at the same time; a program that
    waits for its model does not count. null is the number of cores for commands and workers, and no
    limit otherwise."""

    proxy: Operational[ProxyConfig] = ProxyConfig()
    """python, command: the address at which programs call their model."""

    ignores_system: Operational[bool] = False
    """python, command: whether the agent may omit the experiences from its requests. If false,
    practice pauses when no request of its first 3 rollouts with experiences contains one."""

    executor: Operational[Literal["local", "ray"]] = "local"
    """python, command: where programs run. `ray` runs them on the nodes of a Ray cluster."""
    ray: Operational[RayConfig | None] = None
    """executor ray: the Ray cluster."""

    _named = field_validator("toolkits", mode="before")(named)

    @property
    def page_tools(self) -> frozenset[str]:
        """Names of the agent's tools that return web pages.

        Two tools of an agent never share a name, so a name in this set always means a page tool.
        """
        kits = [kit for kit in self.toolkits.values() if isinstance(kit, SearchToolkit)]
        return frozenset(name for kit in kits for name in kit.activated_tools or PAGE_TOOLS)

    @field_validator("command", mode="before")
    @classmethod
    def _words(cls, value: Any) -> Any:
        """Split the command into words. No shell is involved, so nothing in it is expanded."""
        if isinstance(value, str):
            try:
                return tuple(shlex.split(value))
            except ValueError as e:
                raise ValueError(f"cannot be split into words: {e}") from None
        if isinstance(value, list | tuple | None):
            return value
        raise ValueError("should be a string or a list of strings")

    @model_validator(mode="after")
    def _whole(self) -> "AgentConfig":
        self._check_executor()
        for kind, key in (("python", "function"), ("command", "command")):
            if (self.type == kind) != bool(getattr(self, key)):
                wrong = "needs" if self.type == kind else "does not use"
                raise ValueError(f"type {self.type} {wrong} {key}")
        if self.toolkits and self.type != "simple":
            raise ValueError(
                f"type {self.type} brings its own tools; toolkits are only for type simple"
            )
        return self

    def _check_executor(self) -> None:
        """Raise ValueError for keys that do not apply to this agent type or this executor."""
        if self.workers is not None and self.type != "python":
            raise ValueError(
                f"type {self.type} does not use workers, which are only for type python"
            )
        if self.executor == "ray":
            if self.ray is None:
                raise ValueError("executor ray needs ray.address; `local` starts a cluster here")
            if self.workers is not None:
                raise ValueError(
                    "executor ray does not use workers: Ray schedules programs on its nodes"
                )
        if self.type != "simple":
            return
        for key, why in _OF_PROGRAMS.items():
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"type simple does not use {key}: {why}")
