"""Ways of secrets: which variable of the environment goes to which host, and who says so."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from grpo_practice.config.reading.env import PROCESS
from grpo_practice.config.reading.yaml_reader import Key
from grpo_practice.config.schema.provider import ModelConfig
from grpo_practice.config.schema.runs import RunConfig
from grpo_practice.config.schema.tools import McpToolkit, SearchToolkit, Toolkit

LINE = 74
"""Characters that a line of a narrow terminal has for a route, behind `note: `."""


@dataclass(frozen=True, slots=True)
class NamedBy:
    """The key of a config, or the variable, that names an address or a key."""

    text: str
    """Key or variable, with its place."""
    place: str
    """File with the line, or the environment; '' where there is none."""


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
    line: str
    """File and line of that alone, or the environment; '' where there is none."""

    @property
    def sentence(self) -> str:
        """The route, for people: the most that fits into one line, else the least.

        The key that says so is shortened to file and line; `(the environment)` is left out last.
        """
        way = f"{self.variable} ({here(self.place)}) goes to {self.to}"
        forms = [f"{way}: {here(self.named_by)}"]
        if self.line and self.line == self.place:
            forms.append(way)
        elif self.line:
            forms.append(f"{way}: {here(self.line)}")
            forms.append(forms[-1].replace(f" ({PROCESS})", "", 1))
        return next((form for form in forms if len(form) <= LINE), forms[-1])

    def document(self) -> dict[str, str]:
        """Return the route as documents have it."""
        return {
            "variable": self.variable,
            "place": self.place,
            "to": self.to,
            "named_by": self.named_by,
        }


def here(text: str) -> str:
    """Return a text, files below the current folder named from there."""
    return text.replace(f"{Path.cwd()}{os.sep}", "")


def sentences(routes: Iterable[KeyRoute]) -> list[str]:
    """Return the routes for people, each once."""
    return list(dict.fromkeys(route.sentence for route in routes))


@dataclass(frozen=True, slots=True)
class Receiver:
    """Somebody who is given what stands under a key."""

    section: Key
    """Key whose `Written` says who named the address."""
    url: str | None = None
    program: str | None = None
    """Program, where it is one."""


def receiver(key: Key, config: RunConfig) -> Receiver | None:
    """Return who is given what stands under a key of a model or a toolkit; None if nobody is."""
    above = key[:1] if key[:1] == ("evaluation",) else ()
    match key[len(above) :]:
        case ("practice", "teacher_model", *_) if config.teacher is not None:
            return _model(config.teacher, ("practice", "teacher_model"))
        case ("judge_model", *_):
            return _model(config.judge, (*above, "judge_model"))
        case ("agent", "model", *_):
            return _model(config.student, (*above, "agent", "model"))
        case ("agent", "command", *_):
            command = config.evaluation.agent.command or ("",)
            return Receiver((*above, "agent", "command"), program=f"the program {command[0]}")
        case ("agent", "toolkits", str(name), *rest):
            at: Key = (*above, "agent", "toolkits", name)
            return _toolkit(config.evaluation.agent.toolkits.get(name), at, rest)
        case _:
            return None


def _model(model: ModelConfig, at: Key) -> Receiver:
    return Receiver((*at, "model_provider"), model.model_provider.base_url or None)


def _toolkit(kit: Toolkit | None, at: Key, rest: Sequence[str | int]) -> Receiver | None:
    match kit:
        case SearchToolkit(config_llm=ModelConfig() as reader) if rest[:1] == ["config_llm"]:
            return _model(reader, (*at, "config_llm"))
        case SearchToolkit(config=config):
            crawls = any(str(part).startswith("crawl") for part in rest[1:2])
            name = "crawl" if crawls else "search"
            address = config.crawl_address if name == "crawl" else config.search_address
            return Receiver((*at, "config", f"{name}_url"), address)
        case McpToolkit(config=config):
            program = None if config.url else f"the program {config.command}"
            return Receiver((*at, "config", "url"), config.url, program)
        case _:
            return None
