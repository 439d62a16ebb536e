"""The toolkits of an agent: which tools it may call, and what is behind them."""

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
"""Keys of a toolkit's `config` that change nothing in what its tools answer."""
SEARCH_ADDRESSES: Mapping[str, str] = {
    "google": "https://google.serper.dev",
    "jina": "https://s.jina.ai",
}
"""Public addresses of the search engines."""
IMAGE = r"^[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,299}$"
"""Names of images, with registry, tag and digest; a text that begins with `-` is an option."""


class PythonConfig(Model):
    """Sandbox of the model's Python code."""

    backend: Literal["monty", "bwrap", "docker", "subprocess"] = "monty"
    """`monty`: a Python interpreter inside the program, without files, network or packages.
    `bwrap`, `docker`: full CPython without network; `subprocess`: no security boundary.
    """
    image: str | None = None
    """docker: the image, with python3 in it; nothing is downloaded."""
    python: str | None = None
    """bwrap, subprocess: the interpreter; null is the one that runs this program."""
    memory_mb: int = Field(512, ge=16)
    """Most memory of one execution, MiB; bwrap, subprocess: of each of its processes."""
    timeout_s: float = Field(30.0, gt=0, le=600)
    """Most seconds of one execution; the model may ask for fewer."""
    at_once: int | None = Field(None, ge=1)
    """Executions at once; null is the number of processors."""

    @model_validator(mode="after")
    def _fits(self) -> "PythonConfig":
        """Refuse keys that only another backend would use."""
        if self.image is None and self.backend == "docker":
            raise ValueError("backend docker needs an image")
        if self.image is not None and not re.fullmatch(IMAGE[1:-1], self.image):
            raise ValueError(f"image {self.image!r} is no name of an image")
        if self.image is not None and self.backend != "docker":
            raise ValueError(f"backend {self.backend} has no use for image")
        if self.python is not None and self.backend not in ("bwrap", "subprocess"):
            raise ValueError(f"backend {self.backend} has no use for python")
        return self


class SearchConfig(Model):
    """Services that search the web and read its pages."""

    search_engine: Literal["google", "jina"] = "google"
    """`google`: Serper, key `SERPER_API_KEY`; `jina`: key `JINA_API_KEY`."""
    search_params: Table[Any] = {}  # noqa: RUF012 - pydantic copies defaults
    """Further parameters of a search, such as `{gl: us, hl: en}`."""
    search_banned_sites: Names = Field((), strict=False)
    """Domains that are left out of results, and are never read."""
    search_url: Url[str | None] = None
    """Address of the search engine; null is the public one."""
    search_api_key: Secret = None
    """Key of the search engine. Else `SERPER_API_KEY` or `JINA_API_KEY`, which go to the public
    address, or to this machine, alone; for another `search_url` write `${oc.env:NAME}` here.
    """
    search_price_usd: float | None = Field(None, ge=0)
    """Price of one search; null is unknown."""
    crawl_engine: Literal["jina", "local"] = "jina"
    """Reader of pages: Jina's, key `JINA_API_KEY`, or this program itself."""
    crawl_params: Table[Any] = {}  # noqa: RUF012 - pydantic copies defaults
    """Further parameters of reading a page."""
    crawl_jina_params: Table[Any] = {}  # noqa: RUF012 - pydantic copies defaults
    """Further headers for Jina's reader, such as `{X-No-Cache: "true"}`."""
    crawl_url: Url[str | None] = None
    """Address of Jina's reader; null is the public one."""
    crawl_api_key: Secret = None
    """Key of Jina's reader. Else `JINA_API_KEY`, as with `search_api_key`."""
    crawl_price_usd: float | None = Field(None, ge=0)
    """Price of reading one page; null is unknown."""
    summary_token_limit: int = Field(10_000, ge=100)
    """Tokens of a page that the model is shown, at most."""
    at_once: int = Field(16, ge=1)
    """Searches, and readings of pages, at once."""

    @property
    def search_address(self) -> str:
        """Address of the search engine."""
        return self.search_url or SEARCH_ADDRESSES[self.search_engine]

    @property
    def crawl_address(self) -> str:
        """Address of Jina's reader."""
        return self.crawl_url or "https://r.jina.ai"

    @field_validator("summary_token_limit", mode="before")
    @classmethod
    def _underscores(cls, value: Any) -> Any:
        """Read `10_000`, as the published config of this toolkit has it."""
        text = str(value).replace("_", "")
        return int(text) if isinstance(value, str) and text.isdecimal() else value

    @field_validator("crawl_jina_params")
    @classmethod
    def _no_secrets(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if name.lower() in ("authorization", "cookie", "x-set-cookie"):
                raise ValueError(f"{name} is a secret, and these are stored in clear")
        return value

    @model_validator(mode="after")
    def _read_here(self) -> "SearchConfig":
        """Refuse keys that only Jina's reader would use."""
        for key in ("crawl_url", "crawl_api_key", "crawl_params", "crawl_jina_params"):
            if self.crawl_engine == "local" and getattr(self, key):
                raise ValueError(f"crawl_engine local has no use for {key}")
        return self


class McpConfig(Model):
    """Access to a server of tools: a command that starts it, or a URL."""

    command: str | None = None
    """stdio: the program."""
    args: tuple[str, ...] = Field((), strict=False)
    """stdio: its arguments."""
    env: dict[str, SecretStr] = {}  # noqa: RUF012 - pydantic copies defaults
    """stdio: its environment, beside PATH and HOME. Values are never shown; those that look like
    keys are hidden wherever they turn up.
    """
    cwd: str | None = None
    """stdio: where it runs, relative to the config; null is beside the config."""
    workdir: Literal["rollout"] | None = None
    """stdio, stateful: `rollout` runs each rollout's server in an empty folder of its own, removed
    afterwards: for one whose state is a file. In `args` and `env`, `{workdir}` is that folder.
    """
    url: Url[str | None] = None
    """streamable_http: its address."""
    headers: dict[str, SecretStr] = {}  # noqa: RUF012 - pydantic copies defaults
    """streamable_http: further headers; their values are treated as secrets."""


class _Toolkit(Model):
    name: str
    """Name; by default the key it stands under."""
    activated_tools: tuple[str, ...] | None = Field(None, strict=False)
    """Tools of it that the agent has; null is all of them."""


class PythonToolkit(_Toolkit):
    """`execute_python_code`."""

    name: Literal["python_executor"]
    """Name; by default the key it stands under."""
    mode: Literal["builtin"] = "builtin"
    """A part of this program."""
    config: PythonConfig = PythonConfig()


PAGE_TOOLS = ("search", "web_qa")
"""Names of the tools of a search toolkit."""


class SearchToolkit(_Toolkit):
    """`search` and `web_qa`."""

    name: Literal["search"]
    """Name; by default the key it stands under."""
    mode: Literal["builtin"] = "builtin"
    """A part of this program."""
    config: SearchConfig = SearchConfig()
    config_llm: ModelConfig | None = None
    """The model that reads pages for `web_qa`; by default the agent's."""


class McpToolkit(_Toolkit):
    """The tools of a server that speaks the Model Context Protocol."""

    mode: Literal["mcp"]
    """Tools of a server."""
    config: McpConfig
    mcp_transport: Literal["stdio", "streamable_http"] = "stdio"
    """Transport to the server."""
    mcp_client_session_timeout_seconds: float = Field(20.0, gt=0)
    """Seconds the server has for one call."""
    stateful: bool = False
    """Whether a tool's answer depends on the calls before it: then each rollout has a
    session of its own, and its stored calls are made again when it is resumed in the middle.
    """

    @model_validator(mode="after")
    def _reached(self) -> "McpToolkit":
        wanted = "command" if self.mcp_transport == "stdio" else "url"
        if getattr(self.config, wanted) is None:
            raise ValueError(f"{self.mcp_transport} needs config.{wanted}")
        if self.config.workdir:
            if self.mcp_transport != "stdio":
                raise ValueError(f"{self.mcp_transport} has no use for workdir")
            if not self.stateful:
                raise ValueError("config.workdir: rollout needs `stateful: true` beside config")
            if self.config.cwd is not None:
                raise ValueError("config.workdir: rollout is where it runs: leave cwd out")
        return self


def _which(value: Any) -> str | None:
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
            f"built in are {' and '.join(BUILT_IN)}; a server of tools has `mode: mcp`"
        ),
    ),
]
"""A toolkit as a config has it."""


def named(toolkits: Any) -> Any:
    """Put each toolkit's name into it."""
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
    """Keep of a toolkit's plain values those that can change an answer, not where it is asked."""
    out = {k: v for k, v in toolkit.items() if k not in OPERATIONAL | {"config", "config_llm"}}
    out["config"] = {k: v for k, v in toolkit["config"].items() if k not in OPERATIONAL}
    # A later key: runs that were bound without it are no other runs.
    if out["config"].get("workdir") is None:
        out["config"].pop("workdir", None)
    llm = toolkit.get("config_llm")
    if llm is not None:
        out["config_llm"] = {
            "model_provider": {"model": llm["model_provider"]["model"]},
            "model_settings": {k: v for k, v in llm["model_settings"].items() if v is not None},
        }
    return out
