"""A resolved config as YAML for display, in a form that can be loaded again."""

import re
from secrets import token_hex
from typing import Any

from pydantic import BaseModel

from grpo_practice.config.reading.interpolate import LITERAL, escaped, unescaped
from grpo_practice.config.reading.yaml_reader import Key, dump_yaml, parse_yaml
from grpo_practice.config.redact import leaves, only_names_variable, redacted
from grpo_practice.config.schema.provider import WORKED_OUT
from grpo_practice.core.redact import REDACTED
from grpo_practice.core.text import brief

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
