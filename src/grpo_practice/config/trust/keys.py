"""Routes of keys: the host that receives each variable, its source, and the trust check."""

import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_practice.config.reading.env import PROCESS, Environment
from grpo_practice.config.reading.interpolate import LITERAL, variable, variables
from grpo_practice.config.reading.problems import Problem, dotted, section_at
from grpo_practice.config.reading.yaml_reader import Key, Tree
from grpo_practice.config.redact import leaves, redact
from grpo_practice.config.schema.provider import ModelProvider
from grpo_practice.config.schema.runs import RunConfig
from grpo_practice.config.schema.tools import McpToolkit, SearchToolkit, Toolkit
from grpo_practice.config.trust.foreign import is_endpoint
from grpo_practice.config.trust.word import host_of, typed_host
from grpo_practice.core.redact import REDACTED, redact_url

LINE = 74
"""Number of characters available for a route on one line of a narrow terminal, after `note: `."""


@dataclass(frozen=True, slots=True)
class Address:
    """Source of the address of a model or a service."""

    text: str = ""
    """Config key or variable that names the address, with its place."""
    place: str = ""
    """File with the line, or the environment; '' if neither is known."""
    variables: tuple[str, ...] = ()
    """Variables that the address is filled from."""
    literal: bool = False
    """Whether the address, or a part of it, is literal text in a config."""
    foreign: bool = False
    """Whether a third-party file names the address."""


NOWHERE = Address()


@dataclass(frozen=True, slots=True)
class KeyRoute:
    """An environment variable that is sent to a host or a program."""

    variable: str
    place: str
    """Source of the variable: the environment, or a `.env` file."""
    to: str
    """Host or program that receives the variable."""
    named_by: str
    """Config key with file and line, or variable, that names the recipient."""
    line: str
    """File and line of `named_by` alone, or the environment; '' if neither is known."""

    @property
    def sentence(self) -> str:
        """The route as a message: the longest form that fits on one line, otherwise the shortest.

        The key that names the recipient is shortened to file and line first; `(the environment)` is
        dropped last.
        """
        way = f"{self.variable} ({here(self.place)}) goes to {self.to}"
        forms = [f"{way}: {here(self.named_by)}"]
        if self.line and self.line == self.place:
            forms.append(way)
        elif self.line:
            forms.append(f"{way}: {here(self.line)}")
            forms.append(forms[-1].replace(f" ({PROCESS})", "", 1))
        return next((form for form in forms if len(form) <= LINE), forms[-1])


def here(text: str) -> str:
    """Return a text with paths below the current folder made relative to it."""
    return text.replace(f"{Path.cwd()}{os.sep}", "")


def sentences(routes: Iterable[KeyRoute]) -> list[str]:
    """Return the routes as messages, without duplicates."""
    return list(dict.fromkeys(route.sentence for route in routes))


class Keys:
    """The keys of one config and their recipients.

    A route that needs the user's trust is a problem. A key from the process environment may go to
    hosts named by a process variable or by the user's own config. A key from a `.env` file may go
    to hosts named by the same file or by the user's own config.
    """

    def __init__(
        self, data: dict[str, Any], tree: Tree, env: Environment, problems: list[Problem]
    ) -> None:
        """Track the keys of a config: `data`, with variables not filled in, read from `tree`."""
        self.data = data
        self.tree = tree
        self.env = env
        self.problems = problems
        self.routes = list[KeyRoute]()
        self.models = dict[Key, tuple[ModelProvider, Address]]()
        """Endpoints of the models that are called, by the key of their section."""

    def address(self, key: Key) -> Address:
        """Return the source of the value at a key of the config."""
        value, place = section_at(self.data, key[:-1]).get(str(key[-1])), self.tree.place(key)
        held, name = self.held(value), dotted((*self.tree.prefix, *key))
        return Address(
            f"{name}, {place.shown}" if place else name,
            place.shown if place else "",
            held,
            # A text around a variable counts as literal, because
            # `${oc.env:UTU_LLM_BASE_URL}.example` is another host.
            literal=bool(value) and variable(value) not in held,
            foreign=self.foreign(key),
        )

    def foreign(self, key: Key) -> bool:
        """Return whether a third-party file supplies the value at a key of the config."""
        place = self.tree.place(key)
        return place is not None and place.brought_by is not None

    def names_host(self, provider: Key) -> bool:
        """Return whether the config itself names a host to which it sends an environment key."""
        api_key = section_at(self.data, provider).get("api_key")
        return self.address((*provider, "base_url")).literal and bool(self.held(api_key))

    def of_others(self, provider: Key) -> bool:
        """Return whether a third-party file supplies a model's host, or a key for it."""
        address = self.address((*provider, "base_url"))
        return address.literal and (address.foreign or self.foreign((*provider, "api_key")))

    def held(self, value: object) -> tuple[str, ...]:
        """Return the variables that fill a value and that are set."""
        return tuple(name for name in variables(value) if self.env.get(name))

    def asked_by_dotenv(self) -> list[str]:
        """Return a message for each URL from a `.env` file, whose host receives every request.

        URLs that a route already mentions are skipped.
        """
        known, found = {route.to for route in self.routes}, list[str]()
        for provider, address in self.models.values():
            url, theirs = provider.base_url, self._of_dotenv(address)
            if theirs and url and host_of(url) not in known:
                where = here(f"{theirs[0]} in {self.env.path}")
                found.append(f"{provider.model} is called at {redact_url(url)} ({where})")
        return list(dict.fromkeys(found))

    def _of_dotenv(self, address: Address) -> list[str]:
        """Return the variables of a `.env` file that an address is filled from."""
        return [name for name in address.variables if self.env.origin(name) == str(self.env.path)]

    def sends(
        self, name: str, url: str, key: Key, address: Address, *, in_file: bool = True
    ) -> None:
        """Record that a variable is sent to an address; add a problem if that needs trust.

        `key` is the variable's place in the config if a file names it; otherwise `address` is the
        source of the route.
        """
        place, by = self.env.origin(name), self.address(key) if in_file else address
        self.routes.append(KeyRoute(name, place, host_of(url), by.text, by.place))
        foreign = address.foreign or by.foreign
        elsewhere = [address.text] if foreign and address.literal else []
        apart = [n for n in address.variables if not self.env.together(n, name)]
        for url_name in address.variables:
            # `UTU_LLM_BASE_URL` and `UTU_LLM_API_KEY` belong together, whoever combines them.
            pair = url_name.removesuffix("_BASE_URL") == name.removesuffix("_API_KEY")
            if url_name in apart or (foreign and not pair):
                elsewhere.append(f"{url_name} in {self.env.line(url_name)}")
        if elsewhere and not self.env.trust.host(url, name):
            local = apart[0] if apart and place == PROCESS else name
            beside = f"; or set {local} in the environment too" if apart else ""
            text = (
                f"{name} ({place}) would go to {host_of(url)}, which is named elsewhere:"
                f" {', '.join(dict.fromkeys(elsewhere))}; to allow it,"
                f" add --trust-host {typed_host(url)}{beside}"
            )
            # Only the command, so that the line can be copied.
            hint = f"grpo-practice trust --host {typed_host(url)} --key {name}"
            self.problems.append(Problem(key, text, hint, private=True))

    def sends_values(self, values: Mapping[str, Any], config: RunConfig, folder: Path) -> None:
        """Record variables sent outside an endpoint's key: headers, queries and tool settings.

        `values` is the config as it is stored, and `folder` is its folder.
        """
        for key, value in leaves(values):
            receiver, address = self._receiver(key, config)
            if not receiver or key[-1] in LITERAL:
                continue
            names, by = self.held(value), self.address(key)
            if not names and address is not None:
                self._keep_from_dotenv(key, value, address, folder)
            for name in names if not is_endpoint(key, value) else ():
                if address is not None:
                    self.sends(name, receiver, key, address)
                else:
                    place = self.env.origin(name)
                    self.routes.append(KeyRoute(name, place, receiver, by.text, by.place))

    def _keep_from_dotenv(self, key: Key, value: object, address: Address, folder: Path) -> None:
        """Refuse to send a secret of the config to an address from another folder's `.env` file."""
        env, theirs = self.env, self._of_dotenv(address)
        if env.path is None or folder.resolve().is_relative_to(env.path.parent.resolve()):
            return
        if theirs and value and redact(value, key) == REDACTED and not env.trusts_dotenv:
            text = f"would go to the address that {env.line(theirs[0])} names"
            trust = f"grpo-practice trust {shlex.quote(str(env.path.parent))}"
            hint = f"write the address next to it, or trust that folder: {trust}"
            self.problems.append(Problem(key, text, hint, private=True))

    def _receiver(self, key: Key, config: RunConfig) -> tuple[str, Address | None]:
        """Return the recipient of the value at a key: a URL with its source, a program, or ''."""
        for n in range(len(key)):
            if key[:n] in self.models:
                provider, address = self.models[key[:n]]
                return provider.base_url, address
        agent, above = config.evaluation.agent, int(key[:1] == ("evaluation",))
        match key[above:]:
            case ("agent", "command", *_):
                return f"the program {(agent.command or ('',))[0]}", None
            case ("agent", "toolkits", str(name), "config", str(field), *_):
                return self._tool(agent.toolkits.get(name), key[: above + 4], field)
            case _:
                return "", None

    def _tool(self, kit: Toolkit | None, at: Key, field: str) -> tuple[str, Address | None]:
        match kit:
            case SearchToolkit(config=config) if field.startswith("crawl"):
                return config.crawl_address, self.address((*at, "crawl_url"))
            case SearchToolkit(config=config):
                return config.search_address, self.address((*at, "search_url"))
            case McpToolkit(config=config) if config.url:
                return config.url, self.address((*at, "url"))
            case McpToolkit(config=config):
                return f"the program {config.command}", None
            case _:
                return "", None
