"""The toolkits of an agent: the tools it may call and the services behind them."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, SecretStr, Tag, field_validator, model_validator

from grpo_practice.config.schema.base import Model, Names, Secret, Table, Url
from grpo_practice.config.schema.provider import ModelConfig

BUILT_IN = ("python_executor", "search")
OPERATIONAL = frozenset(
    {"search_url", "crawl_url", "search_price_usd", "crawl_price_usd", "at_once"}
    | {"search_api_key", "crawl_api_key"}
    | {"env", "headers", "mcp_client_session_timeout_seconds"}
)
"""Keys of a toolkit that do not change the answers of its tools."""
SEARCH_ADDRESSES: Mapping[str, str] = {
    "google": "https://google.serper.dev",
    "jina": "https://s.jina.ai",
}
"""Public addresses of the search engines."""
IMAGE = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,299}$"
"""Pattern for image names with registry, tag and digest. A leading `-` would be an option."""


class PythonConfig(Model):
    """Sandbox for the model's Python code."""

    backend: Literal["monty", "bwrap", "docker", "subprocess"] = "monty"
    """`monty`: a Python interpreter inside the program, without files, network or packages.
    `bwrap`, `docker`: full CPython without network; `subprocess`: no security boundary."""
    image: str | None = None
    """docker: an image that contains python3; it is never downloaded."""
    python: str | None = None
    """bwrap, subprocess: the interpreter; null is the interpreter that runs this program."""
    memory_mb: int = Field(512, ge=16)
    """Memory limit of one execution in MiB; for bwrap and subprocess, the limit of each process."""
    timeout_s: float = Field(30.0, gt=0, le=600)
    """Time limit of one execution in seconds; the model may request less."""
    at_once: int | None = Field(None, ge=1)
    """Maximum number of concurrent executions; null is the number of processors."""

    @model_validator(mode="after")
    def _fits(self) -> "PythonConfig":
        """Raise ValueError for keys that only another backend uses, and for an unusable image."""
        if self.image is None and self.backend == "docker":
            raise ValueError("backend docker needs an image")
        if self.image is not None and not re.fullmatch(IMAGE[1:-1], self.image):
            raise ValueError(f"image {self.image!r} is not a valid image name")
        if self.image is not None and self.backend != "docker":
            raise ValueError(f"backend {self.backend} does not use image")
        if self.python is not None and self.backend not in ("bwrap", "subprocess"):
            raise ValueError(f"backend {self.backend} does not use python")
        return self


class SearchConfig(Model):
    """Services that search the web and read web pages."""

    search_engine: Literal["google", "jina"] = "google"
    """`google`: Serper, key `SERPER_API_KEY`; `jina`: key `JINA_API_KEY`."""
    search_params: Table[Any] = {}  # noqa: RUF012 - pydantic copies defaults
    """Additional search parameters, such as `{gl: us, hl: en}`."""
    search_banned_sites: Names = Field((), strict=False)
    """Domains that are removed from search results and never read."""
    search_url: Url[str | None] = None
    """URL of the search engine; null is the public service."""
    search_api_key: Secret = None
    """API key of the search engine; defaults to `SERPER_API_KEY` or `JINA_API_KEY`. These variables
    are sent only to the public service or to this machine; for a different `search_url`, write
    `${oc.env:NAME}` here."""
    search_price_usd: float | None = Field(None, ge=0)
    """Price of one search in USD; null means unknown."""
    crawl_engine: Literal["jina", "local"] = "jina"
    """Page reader: Jina's service with the key `JINA_API_KEY`, or this program itself (`local`)."""
    crawl_params: Table[Any] = {}  # noqa: RUF012 - pydantic copies defaults
    """Additional parameters for reading a page."""
    crawl_jina_params: Table[Any] = {}  # noqa: RUF012 - pydantic copies defaults
    """Additional headers for Jina's reader, such as `{X-No-Cache: "true"}`."""
    crawl_url: Url[str | None] = None
    """URL of Jina's reader; null is the public service."""
    crawl_api_key: Secret = None
    """API key of Jina's reader; defaults to `JINA_API_KEY`, under the rule of `search_api_key`."""
    crawl_price_usd: float | None = Field(None, ge=0)
    """Price of reading one page in USD; null means unknown."""
    summary_token_limit: int = Field(10_000, ge=100)
    """Maximum number of tokens of a page that the model sees."""
    at_once: int = Field(16, ge=1)
    """Maximum number of concurrent searches and page reads."""

    @property
    def search_address(self) -> str:
        """URL of the search engine."""
        return self.search_url or SEARCH_ADDRESSES[self.search_engine]

    @property
    def crawl_address(self) -> str:
        """URL of Jina's reader."""
        return self.crawl_url or "https://r.jina.ai"

    @field_validator("summary_token_limit", mode="before")
    @classmethod
    def _underscores(cls, value: Any) -> Any:
        """Parse a text such as `10_000`, which the published config of this toolkit uses."""
        text = str(value).replace("_", "")
        return int(text) if isinstance(value, str) and text.isdecimal() else value

    @field_validator("crawl_jina_params")
    @classmethod
    def _no_secrets(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if name.lower() in ("authorization", "cookie", "x-set-cookie"):
                raise ValueError(f"{name} is a secret, but these values are stored in plain text")
        return value

    @model_validator(mode="after")
    def _read_here(self) -> "SearchConfig":
        """Raise ValueError for keys that only Jina's reader uses."""
        for key in ("crawl_url", "crawl_api_key", "crawl_params", "crawl_jina_params"):
            if self.crawl_engine == "local" and getattr(self, key):
                raise ValueError(f"crawl_engine local does not use {key}")
        return self


class McpConfig(Model):
    """Access to an MCP server: a command that starts it, or a URL."""

    command: str | None = None
    """stdio: the program."""
    args: tuple[str, ...] = Field((), strict=False)
    """stdio: the program's arguments."""
    env: dict[str, SecretStr] = {}  # noqa: RUF012 - pydantic copies defaults
    """stdio: environment variables in addition to PATH and HOME. Values are never shown; values
    that look like keys are hidden wherever they appear."""
    cwd: str | None = None
    """stdio: working directory, relative to the config file; null is the config file's own
    folder."""
    workdir: Literal["rollout"] | None = None
    """stdio, stateful: `rollout` runs each rollout's server in its own empty folder, which is
    removed afterwards; for servers that keep their state in a file. `{workdir}` in `args` and `env`
    is replaced by that folder."""
    url: Url[str | None] = None
    """streamable_http: URL of the server."""
    headers: dict[str, SecretStr] = {}  # noqa: RUF012 - pydantic copies defaults
    """streamable_http: additional headers; their values are treated as secrets."""


class _Toolkit(Model):
    name: str
    """Name; defaults to the key of the toolkit."""
    activated_tools: tuple[str, ...] | None = Field(None, strict=False)
    """Tools of the toolkit that the agent may call; null allows all of them."""


class PythonToolkit(_Toolkit):
    """The toolkit with the tool `execute_python_code`."""

    name: Literal["python_executor"]
    """Name; defaults to the key of the toolkit."""
    mode: Literal["builtin"] = "builtin"
    """Built into this program."""
    config: PythonConfig = PythonConfig()


PAGE_TOOLS = ("search", "web_qa")
"""Names of the tools of a search toolkit."""


class SearchToolkit(_Toolkit):
    """The toolkit with the tools `search` and `web_qa`."""

    name: Literal["search"]
    """Name; defaults to the key of the toolkit."""
    mode: Literal["builtin"] = "builtin"
    """Built into this program."""
    config: SearchConfig = SearchConfig()
    config_llm: ModelConfig | None = None
    """The model that reads pages for `web_qa`; defaults to the agent's model."""


class McpToolkit(_Toolkit):
    """The tools of a Model Context Protocol (MCP) server."""

    mode: Literal["mcp"]
    """Tools come from an MCP server."""
    config: McpConfig
    mcp_transport: Literal["stdio", "streamable_http"] = "stdio"
    """Transport to the server."""
    mcp_client_session_timeout_seconds: float = Field(20.0, gt=0)
    """Timeout of one call in seconds."""
    stateful: bool = False
    """Whether a tool's answer depends on earlier calls. If true, each rollout has its own session,
    and resuming a rollout midway repeats its stored calls."""

    @model_validator(mode="after")
    def _reached(self) -> "McpToolkit":
        wanted = "command" if self.mcp_transport == "stdio" else "url"
        if getattr(self.config, wanted) is None:
            raise ValueError(f"{self.mcp_transport} needs config.{wanted}")
        if self.config.workdir:
            if self.mcp_transport != "stdio":
                raise ValueError(f"{self.mcp_transport} does not use workdir")
            if not self.stateful:
                raise ValueError("`config.workdir: rollout` needs `stateful: true` next to config")
            if self.config.cwd is not None:
                raise ValueError(
                    "`config.workdir: rollout` already sets the working directory; remove"
                    " config.cwd"
                )
        return self


def _which(value: Any) -> str | None:
    # A config given from Python may hold models instead of mappings.
    if isinstance(value, _Toolkit):
        return "mcp" if isinstance(value, McpToolkit) else value.name
    if not isinstance(value, Mapping):
        return None
    name = value.get("name")
    return "mcp" if value.get("mode") == "mcp" else name if name in BUILT_IN else None


Toolkit = Annotated[
    Annotated[PythonToolkit, Tag("python_executor")]
    | Annotated[SearchToolkit, Tag("search")]
    | Annotated[McpToolkit, Tag("mcp")],
    Discriminator(
        _which,
        custom_error_type="toolkit",
        custom_error_message=(
            f"the built-in toolkits are {' and '.join(BUILT_IN)}; a tool server needs `mode: mcp`"
        ),
    ),
]
"""A toolkit of any kind, as a config writes it."""


def named(toolkits: Any) -> Any:
    """Fill in each toolkit's name from its key, unless it has a name."""
    if toolkits is None or toolkits == []:
        return {}
    if not isinstance(toolkits, Mapping):
        return toolkits
    return {
        key: {"name": key, **{k: v for k, v in kit.items() if v is not None or k != "name"}}
        if isinstance(kit, Mapping)
        else kit
        for key, kit in toolkits.items()
    }


def what_answers(toolkit: Mapping[str, Any]) -> dict[str, Any]:
    """Return the toolkit's values that can change an answer, without the services' addresses."""
    out = {k: v for k, v in toolkit.items() if k not in OPERATIONAL | {"config", "config_llm"}}
    out["config"] = {k: v for k, v in toolkit["config"].items() if k not in OPERATIONAL}
    # This key was added later. Without this, runs stored before would have another identity.
    if out["config"].get("workdir") is None:
        out["config"].pop("workdir", None)
    llm = toolkit.get("config_llm")
    if llm is not None:
        out["config_llm"] = {
            "model_provider": {"model": llm["model_provider"]["model"]},
            "model_settings": {k: v for k, v in llm["model_settings"].items() if v is not None},
        }
    return out
