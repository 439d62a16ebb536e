"""Configs written as YAML: for every loader to read in the same way, and for display."""

import re
from collections.abc import Mapping
from secrets import token_hex
from typing import Any

import yaml
from pydantic import BaseModel
from typing_extensions import override

from grpo_practice.config.reading.interpolate import LITERAL, escaped, unescaped
from grpo_practice.config.reading.yaml_reader import Key, dump_yaml, parse_yaml
from grpo_practice.config.redact import leaves, only_names_variable, redacted
from grpo_practice.config.schema.provider import WORKED_OUT
from grpo_practice.core.foreign_text import respell, unseen
from grpo_practice.core.redact import REDACTED
from grpo_practice.core.text import brief

_WORD = re.compile("[A-Za-z][A-Za-z0-9_.-]*")


def to_document(value: Mapping[str, Any]) -> str:
    """Return the mapping as a YAML document; no text in it can act as syntax or end it."""
    body = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return respell(body, _spelt)


def _spelt(char: str) -> str:
    """Return the YAML escape of a character, which is valid only in double quotes."""
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


class _Dumper(yaml.SafeDumper):
    """Dumper that writes words plain, multi-line texts as literal blocks, and the rest in quotes.

    The meaning of a text then does not depend on a YAML version's rules for numbers, dates or line
    breaks.
    """

    @override
    def ignore_aliases(self, data: Any) -> bool:
        """Return True, so that repeated values are written in full, without aliases."""
        return True

    def text(self, text: str) -> yaml.ScalarNode:
        """Represent a text in the only style that all loaders read in the same way."""
        style: str | None = '"'
        if _WORD.fullmatch(text):
            style = None
        elif "\n" in text and not any(map(unseen, text)):
            style = "|"  # the emitter itself quotes texts that no block can hold
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.text)


LINE = 500
"""Maximum number of characters in a comment."""


def show(config: BaseModel, text: str) -> str:
    """Return the resolved config as YAML that can be loaded again, with secrets hidden.

    Secrets and the origins of an endpoint appear as comments because neither can be loaded. If the
    composed config, `text`, takes a secret from a variable, the variable appears in its place.
    """
    named = dict(leaves(parse_yaml(text, "the config").data))
    comments = dict[str, str]()

    def commented(value: Any, key: Key) -> Any:
        match value:
            case dict():
                return {k: commented(v, (*key, k)) for k, v in value.items()}
            case list() | tuple():
                return [commented(v, (*key, n)) for n, v in enumerate(value)]
            case str() if key[-1] in LITERAL:
                return value if unescaped(value) == value else escaped(value)
            case str() if key[-1] in WORKED_OUT and "model_provider" in key:
                shown = brief(value, LINE)
            case str() if value == REDACTED:
                if only_names_variable(named.get(key)):
                    return named[key]
                shown = f'"{value}"'
            case str():
                return value.replace("${", r"\${")  # already filled in, so not a variable
            case _:
                return value
        # A random mark that no config text can contain, so that only this line becomes a comment.
        mark = f"x{token_hex(16)}"
        comments[mark] = shown
        return mark

    dumped = dump_yaml(commented(redacted(config), ()))
    line = re.compile(r"^( *)(\S+: )(x[0-9a-f]{32})$", re.MULTILINE)
    return line.sub(
        lambda m: f"{m[1]}# {m[2]}{comments[m[3]]}" if m[3] in comments else m[0], dumped
    )
