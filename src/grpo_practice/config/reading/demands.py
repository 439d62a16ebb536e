"""Programs, files and variables that a config names, and that data of others may not."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, assert_never

from grpo_practice.config.reading.interpolate import LITERAL, variable, variables
from grpo_practice.config.reading.yaml_reader import Key
from grpo_practice.config.redact import leaves
from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.config.schema.runs import RunConfig, is_data_file
from grpo_practice.config.schema.tools import (
    McpToolkit,
    PythonConfig,
    PythonToolkit,
    SearchToolkit,
    Toolkit,
)

_PROXY = {"tls_cert": "reads a file", "tls_key": "reads a file"}
_OF_PROVIDER = {
    "type": ("_TYPE",),
    "model": ("_MODEL",),
    "base_url": ("_BASE_URL",),
    "api_key": ("",),
}
"""Ends of the variables that any `model_provider` may name under its keys.

A key's host is looked at where the key is; the other three are sent to whatever host it is.
"""


@dataclass(frozen=True, slots=True)
class Demand:
    """A program, a file or a variable that a config names."""

    key: Key
    text: str
    """Deed of the config, for people: `starts a program`."""


def variables_named(data: Any) -> Iterator[Demand]:
    """Yield the variables that a config names elsewhere than where any model's endpoint does."""
    for key, value in leaves(data):
        last = [part for part in key if isinstance(part, str)][-1:]
        names = [] if {*last} & LITERAL else variables(value)
        if names and not is_endpoint(key, value):
            text = f"reads {', '.join(names)} from the environment"
            yield Demand(key, text)


def is_endpoint(key: Key, value: object) -> bool:
    """Return whether the value is one variable, as any model's endpoint may name it."""
    match key[1:] if key[:1] == ("evaluation",) else key:
        case (
            ("agent", "model", "model_provider", name, *_)
            | ("judge_model", "model_provider", name, *_)
            | ("practice", "teacher_model", "model_provider", name, *_)
            | ("agent", "toolkits", _, "config_llm", "model_provider", name, *_)
        ):
            # One with more around it is an address that whoever wrote the rest has chosen.
            return (variable(value) or "").endswith(_OF_PROVIDER.get(str(name), ("\0",)))
        case _:
            return False


def programs_named(config: RunConfig) -> Iterator[Demand]:
    """Yield the programs, servers of tools and files that a loaded config names."""
    evaluation = config.evaluation
    at: Key = () if config.kind == "eval" else ("evaluation",)
    yield from agent_programs(evaluation.agent, (*at, "agent"))
    if ":" in evaluation.verify.name:
        yield Demand((*at, "verify", "name"), "runs a file of verify functions")
    if "template" in evaluation.verify.params:
        yield Demand((*at, "verify", "template"), "reads a file")
    if is_data_file(evaluation.data.dataset):
        yield Demand((*at, "data", "dataset"), "reads a file")
    if config.kind == "practice":
        if is_data_file(config.data.practice_dataset_name):
            yield Demand(("data", "practice_dataset_name"), "reads a file")
        for name in ("select_dataset", "prompts_dir"):
            value = getattr(config.practice, name)
            if value is not None and (name == "prompts_dir" or is_data_file(value)):
                yield Demand(("practice", name), "reads a file")
        if config.train is not None:
            yield Demand(("train", "model"), "loads a model")


def agent_programs(agent: AgentConfig, at: Key) -> Iterator[Demand]:
    """Yield the programs that an agent is, or that its tools are, and where they are served."""
    for name in ("function", "command"):
        if getattr(agent, name):
            yield Demand((*at, name), "starts a program")
    for name in sorted(agent.proxy.model_fields_set):
        yield Demand((*at, "proxy", name), _PROXY.get(name, "says where programs ask their model"))
    if agent.ray is not None:
        for name in sorted(agent.ray.model_fields_set):
            yield Demand((*at, "ray", name), "says where programs run")
    for name, kit in agent.toolkits.items():
        yield from _toolkit_programs(kit, (*at, "toolkits", name))


def _toolkit_programs(kit: Toolkit, at: Key) -> Iterator[Demand]:
    match kit:
        case McpToolkit(mcp_transport="stdio"):
            for name in ("command", "args", "env", "cwd"):
                if name in kit.config.model_fields_set:
                    yield Demand((*at, "config", name), "starts a program")
        case McpToolkit():
            # One on this machine may do all that its user may.
            yield Demand((*at, "config", "url"), "uses a server of tools")
        case PythonToolkit():
            yield from _sandbox_programs(kit.config, (*at, "config"))
        case SearchToolkit():
            return
        case _:  # what a new toolkit starts or reads has to be said here
            assert_never(kit)


def _sandbox_programs(config: PythonConfig, at: Key) -> Iterator[Demand]:
    if config.backend == "subprocess":
        yield Demand((*at, "backend"), "runs the model's code as you")
    if config.backend == "docker":
        for name in ("backend", "image"):
            yield Demand((*at, name), "runs an image")
    if config.python is not None:
        yield Demand((*at, "python"), "starts a program")
