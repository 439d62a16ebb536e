"""Ways of secrets: which variable of the environment goes to which host, and who says so."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_practice.config.reading.env import Environment
from grpo_practice.config.reading.interpolate import LITERAL, variables
from grpo_practice.config.reading.problems import dotted
from grpo_practice.config.reading.yaml_reader import Key, Tree
from grpo_practice.config.redact import leaves
from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.config.schema.provider import ModelConfig
from grpo_practice.config.schema.runs import RunConfig
from grpo_practice.config.schema.tools import McpToolkit, SearchToolkit
from grpo_practice.config.trust import host_of

_ENDPOINT = frozenset({"type", "model", "base_url", "api_key"})


@dataclass(frozen=True, slots=True)
class KeyRoute:
    """A variable of the environment that is sent somewhere."""

    variable: str
    place: str
    """Place of the variable: the environment, or a `.env` file."""
    to: str
    """Host, or program, that is given it."""
    named_by: str
    """Key of the config with file and line, or variable, that says so."""

    @property
    def sentence(self) -> str:
        """The route, for people."""
        return f"{self.variable} ({self.place}) goes to {self.to}: {self.named_by}"


def sentences(routes: Iterable[KeyRoute]) -> list[str]:
    """Return the routes for people, each once."""
    return list(dict.fromkeys(route.sentence for route in routes))


def routes_of_values(
    data: Mapping[str, Any], tree: Tree, env: Environment, config: RunConfig
) -> Iterator[KeyRoute]:
    """Yield where variables go that are no key of an endpoint: headers, queries, tools' settings.

    Args:
        data: The config before variables are filled in.
        tree: Its places.
        env: Where variables are looked up.
        config: The config, with every endpoint resolved.
    """
    for key, value in leaves(data):
        names = [] if LITERAL & {*key[-1:]} else [n for n in variables(value) if env.get(n)]
        if not names or (key[-2:-1] == ("model_provider",) and _whole(key, str(value))):
            continue
        place = tree.place(key)
        shown = ", ".join([dotted((*tree.prefix, *key)), *([place.shown] if place else [])])
        for to in _receivers(key, config):
            for name in names:
                yield KeyRoute(name, env.origin(name), to, shown)


def _whole(key: Key, value: str) -> bool:
    """Return whether it is an endpoint's own value, and not a secret inside its URL."""
    return key[-1] in _ENDPOINT and (key[-1] != "base_url" or value.startswith("${"))


def _receivers(key: Key, config: RunConfig) -> Sequence[str]:
    """Return who is given what stands under a key."""
    path = key[1:] if key[:1] == ("evaluation",) else key
    match path:
        case ("practice", "teacher_model", *_) if config.teacher is not None:
            return hosts(config.teacher)
        case ("judge_model", *_):
            return hosts(config.judge)
        case ("agent", "model", *_):
            return hosts(config.student)
        case ("agent", "toolkits", name, *rest):
            return _of_toolkit(config.evaluation.agent, str(name), rest)
        case _:
            return ()


def _of_toolkit(agent: AgentConfig, name: str, rest: Sequence[str | int]) -> Sequence[str]:
    match agent.toolkits.get(name):
        case SearchToolkit(config_llm=ModelConfig() as reader) if rest[:1] == ["config_llm"]:
            return hosts(reader)
        case SearchToolkit(config=config):
            if str(rest[-1]).startswith("crawl"):
                return [host_of(config.crawl_address)]
            return [host_of(config.search_address)]
        case McpToolkit(config=config):
            return [host_of(config.url)] if config.url else [f"the program {config.command}"]
        case _:
            return ()


def hosts(model: ModelConfig) -> list[str]:
    """Return the hosts of a model."""
    return [host_of(url) for url in model.model_provider.base_url]
