"""Third-party files: loading them, checking them, and laying them over a user's config.

A third-party file is an agent's file (`--agent`), or a config in a database, that the user does not
trust.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, assert_never

from grpo_practice.config.reading.compose import compose, lay_over, nest, packaged_configs
from grpo_practice.config.reading.interpolate import LITERAL, variable, variables
from grpo_practice.config.reading.problems import Problem, value_at
from grpo_practice.config.reading.yaml_reader import Key, Position, Tree, parse_yaml
from grpo_practice.config.redact import leaves, without_secrets
from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.config.schema.runs import RunConfig
from grpo_practice.config.schema.tools import (
    McpToolkit,
    PythonConfig,
    PythonToolkit,
    SearchToolkit,
    Toolkit,
)
from grpo_practice.config.trust.word import Trust, text_digest
from grpo_practice.core.text import is_data_file


def read_agent(file: Path, trust: Trust, folders: Sequence[Path]) -> Tree:
    """Read an agent's file with its includes.

    If the user trusts its text when used from one of the folders, it may name programs, but not
    hosts for keys. A file in a folder that the user trusts counts as the user's own.
    """
    tree = compose(file, foreign=True)
    if trust.folder_of(file):
        return tree
    # The hash covers the included files, so the trust ends if one of them changes.
    trusted = any(trust.text(text_digest(tree.data, folder), file) for folder in folders)
    return _of_others(tree, file, trusted=trusted)


def read_stored(text: str, base_dir: Path, database: Path, trust: Trust, *, imported: bool) -> Tree:
    """Read a config from a database; it counts as the user's own if its text is trusted."""
    tree = parse_yaml(text, "the stored config")
    if trust.text(text_digest(tree.data, base_dir), database, imported=imported):
        return tree
    return _of_others(tree, database, trusted=False)


def _of_others(tree: Tree, file: Path, *, trusted: bool) -> Tree:
    """Mark the tree as supplied by a third-party file, except values from built-in configs."""
    shipped = packaged_configs()
    places = {
        key: place
        if Path(place.file).is_relative_to(shipped)
        else replace(place, brought_by=file, trusted=trusted)
        for key, place in tree.places.items()
    }
    return Tree(tree.data, places, tree.prefix)


_PROXY = {"tls_cert": "reads a file", "tls_key": "reads a file"}
_OF_PROVIDER = {
    "type": ("_TYPE",),
    "model": ("_MODEL",),
    "base_url": ("_BASE_URL",),
    "api_key": ("",),
}
"""Suffixes of the variables that any `model_provider` may name, by key.

The host that receives a key is checked with the key; the other three values may be sent to any
host.
"""


@dataclass(frozen=True, slots=True)
class Demand:
    """A program, a file or a variable that a config names."""

    key: Key
    text: str
    """How the config uses the named thing, for display: `starts a program`."""


def refusals(demands: Iterable[Demand], tree: Tree) -> list[Problem]:
    """Return a problem for each demand that comes from an untrusted third-party file."""
    found = dict[tuple[Key, str], Problem]()
    for demand in demands:
        place = tree.place(demand.key)
        if place is None or place.brought_by is None or place.trusted:
            continue
        text = f"{demand.text}, which a file from someone else may not do"
        hint = f"read it; if you trust it, add --trust {shlex.quote(str(place.brought_by))}"
        # Report only the first of several keys that start the same server.
        found.setdefault((demand.key[:-1], demand.text), Problem(demand.key, text, hint))
    return list(found.values())


def variables_named(data: Any) -> Iterator[Demand]:
    """Yield the variables that a config names anywhere except in a model's endpoint."""
    for key, value in leaves(data):
        last = [part for part in key if isinstance(part, str)][-1:]
        names = [] if {*last} & LITERAL else variables(value)
        if names and not is_endpoint(key, value):
            text = f"reads {', '.join(names)} from the environment"
            yield Demand(key, text)


def is_endpoint(key: Key, value: object) -> bool:
    """Return whether the value is just one variable that the endpoint of any model may name."""
    match key[1:] if key[:1] == ("evaluation",) else key:
        case (
            ("agent", "model", "model_provider", name, *_)
            | ("judge_model", "model_provider", name, *_)
            | ("practice", "teacher_model", "model_provider", name, *_)
            | ("agent", "toolkits", _, "config_llm", "model_provider", name, *_)
        ):
            # Text around the variable would let its writer choose the address.
            return (variable(value) or "").endswith(_OF_PROVIDER.get(str(name), ("\0",)))
        case _:
            return False


def programs_named(config: RunConfig) -> Iterator[Demand]:
    """Yield the programs, tool servers and files that a loaded config names."""
    evaluation = config.evaluation
    at: Key = () if config.kind == "eval" else ("evaluation",)
    yield from agent_programs(evaluation.agent, (*at, "agent"))
    if ":" in evaluation.verify.name:
        yield Demand((*at, "verify", "name"), "runs a file with verify functions")
    if "template" in evaluation.verify.params:
        yield Demand((*at, "verify", "template"), "reads a file")
    if is_data_file(evaluation.data.dataset):
        yield Demand((*at, "data", "dataset"), "reads a file")
    if config.kind == "practice":
        if is_data_file(config.data.practice_dataset_name):
            yield Demand(("data", "practice_dataset_name"), "reads a file")
        for name in ("select_dataset", "attempts", "prompts_dir"):
            value = getattr(config.practice, name)
            if value is not None and (name == "prompts_dir" or is_data_file(value)):
                yield Demand(("practice", name), "reads a file")
        if config.train is not None:
            yield Demand(("train", "model"), "loads a model")


def agent_programs(agent: AgentConfig, at: Key) -> Iterator[Demand]:
    """Yield the programs of an agent and its tools, and the addresses that serve them."""
    for name in ("function", "command"):
        if getattr(agent, name):
            yield Demand((*at, name), "starts a program")
    for name in sorted(agent.proxy.model_fields_set):
        yield Demand(
            (*at, "proxy", name),
            _PROXY.get(name, "sets the address where programs call their model"),
        )
    if agent.ray is not None:
        for name in sorted(agent.ray.model_fields_set):
            yield Demand((*at, "ray", name), "sets where programs run")
    for name, kit in agent.toolkits.items():
        yield from _toolkit_programs(kit, (*at, "toolkits", name))


def _toolkit_programs(kit: Toolkit, at: Key) -> Iterator[Demand]:
    match kit:
        case McpToolkit(mcp_transport="stdio"):
            for name in ("command", "args", "env", "cwd"):
                if name in kit.config.model_fields_set:
                    yield Demand((*at, "config", name), "starts a program")
        case McpToolkit():
            # A server on this machine may do everything that its user may.
            yield Demand((*at, "config", "url"), "uses a tool server")
        case PythonToolkit():
            yield from _sandbox_programs(kit.config, (*at, "config"))
        case SearchToolkit():
            return
        case _:  # a new toolkit must declare what it starts or reads
            assert_never(kit)


def _sandbox_programs(config: PythonConfig, at: Key) -> Iterator[Demand]:
    if config.backend == "subprocess":
        yield Demand((*at, "backend"), "runs the model's code as you")
    if config.backend == "docker":
        for name in ("backend", "image"):
            yield Demand((*at, name), "runs an image")
    if config.python is not None:
        yield Demand((*at, "python"), "starts a program")


_ADDRESSES: Mapping[str, object] = {
    **dict.fromkeys(("search_url", "crawl_url", "url", "command", "args", "cwd")),
    "base_url": "${oc.env:UTU_LLM_BASE_URL}",
    "search_engine": "google",
    "crawl_engine": "jina",
    "mode": "builtin",
    "mcp_transport": "stdio",
}
"""Keys that select the recipient of the values next to them, each with its default."""


def lay_agent_over(under: Tree, over: Tree) -> Tree:
    """Lay an agent's file over the agent in a config.

    If the file changes the address of a model or a toolkit, every secret that the config gives to
    it is removed, because the secret was meant for the previous address. A value that the file
    merely repeats still counts as the config's own.
    """
    data, agent = under.data, under.data.get("agent")
    if not isinstance(agent, dict):
        agent = {}
    model, kits = agent.get("model"), agent.get("toolkits")
    if _moves(model, over.data.get("model")):
        agent = {**agent, "model": without_secrets(model)}
        data = _followed(data, "judge_model")
        if isinstance(kits, dict):
            kits = {name: _followed(kit, "config_llm") for name, kit in kits.items()}
            agent["toolkits"] = kits
    theirs = over.data.get("toolkits")
    if isinstance(kits, dict) and isinstance(theirs, dict):
        moved = {n: without_secrets(k) for n, k in kits.items() if _moves(k, theirs.get(n))}
        agent = {**agent, "toolkits": {**kits, **moved}}
    # A mapping from Python has no positions, but its values are the user's own.
    places = {**dict.fromkeys(_keys(data), Position("the config")), **under.places}
    base, over = Tree({**data, "agent": agent}, places, under.prefix), nest(over, ("agent",))
    # A value that the file only repeats keeps the position, and so the trust, of the user's config.
    changed = {key: at for key, at in over.places.items() if not _repeats(base, over, key)}
    return lay_over(base, replace(over, places=changed))


def _repeats(own: Tree, over: Tree, key: Key) -> bool:
    """Return whether the user's config has the same value at a key; a list counts as a whole."""
    names = tuple(takewhile(lambda part: isinstance(part, str), key))
    place = own.place(key)
    ours = place is not None and place.brought_by is None
    return ours and bool(value_at(own.data, names) == value_at(over.data, names))


def _followed(section: Any, name: str) -> Any:
    """Return a section without the secrets of a model that follows the agent's changed address.

    The model keeps its secrets if it has its own address or key.
    """
    model = section.get(name) if isinstance(section, dict) else None
    if not isinstance(model, dict):
        return section
    provider = model.get("model_provider")
    own = isinstance(provider, dict) and (provider.get("base_url") or provider.get("api_key"))
    if own or "model_settings" not in model:
        return section
    settings = without_secrets(model["model_settings"])
    return {**section, name: {**model, "model_settings": settings}}


def _keys(value: Any, key: Key = ()) -> Iterator[Key]:
    """Yield the keys of mappings at every depth."""
    for name, inner in value.items() if isinstance(value, dict) else ():
        yield (*key, name)
        yield from _keys(inner, (*key, name))


def _moves(under: Any, over: Any) -> bool:
    """Return whether `over` changes an address of `under` at any depth."""
    if not isinstance(over, dict):
        return False
    under = under if isinstance(under, dict) else {}
    return any(
        (name in _ADDRESSES and value != under.get(name, _ADDRESSES[name]))
        or _moves(under.get(name), value)
        for name, value in over.items()
    )
