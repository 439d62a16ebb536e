"""A resolved configuration as YAML for a person, which reads back."""

import re
from secrets import token_hex
from typing import Any

from pydantic import BaseModel

from grpo_practice.config.reading.interpolate import LITERAL, escaped, unescaped
from grpo_practice.config.reading.yaml_reader import Key, dump_yaml, parse_yaml
from grpo_practice.config.redact import leaves, only_names_variable, redacted
from grpo_practice.config.schema.provider import WORKED_OUT
from grpo_practice.redact import REDACTED
from grpo_practice.text import brief

LINE = 500
"""Characters of a comment."""


def show(config: BaseModel, text: str) -> str:
    """Return the resolved config as YAML that reads back, secrets hidden.

    Secrets, and notes on the origin of an endpoint, are comments: neither can be read back. A
    secret that the composed config, `text`, takes from a variable is that variable.
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
                return value.replace("${", r"\${")  # it was filled in: no variable any more
            case _:
                return value
        # A mark that no text of the config can hold: its line, and no other, becomes a comment.
        mark = f"x{token_hex(16)}"
        comments[mark] = shown
        return mark

    dumped = dump_yaml(commented(redacted(config), ()))
    line = re.compile(r"^( *)(\S+: )(x[0-9a-f]{32})$", re.MULTILINE)
    return line.sub(
        lambda m: f"{m[1]}# {m[2]}{comments[m[3]]}" if m[3] in comments else m[0], dumped
    )
