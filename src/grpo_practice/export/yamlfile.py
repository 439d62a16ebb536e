"""Export of the agent as a YAML file for this tool and the method's reference implementation."""

import re
from collections.abc import Mapping
from typing import Any

import yaml
from typing_extensions import override

from grpo_practice.config.reading.interpolate import escaped
from grpo_practice.core.foreign_text import one_line, respell, unseen
from grpo_practice.export.exported_agent import ExportedAgent

_HYDRA = "# @package _global_\n"
"""First line of the file; without it, the reference nests the keys and loads another agent."""

_WORD = re.compile("[A-Za-z][A-Za-z0-9_.-]*")


def to_yaml(agent: ExportedAgent) -> str:
    """Return the agent as YAML; its instructions are the whole system prompt, byte for byte.

    API keys always come from the environment of the user who loads the file. The URL does too if
    the config does not name it, or names it together with a secret.
    """
    document = {
        "type": "simple",
        "model": {
            "model_provider": {
                "type": "chat.completions",
                "model": _literal(agent.model),
                **agent.endpoint,  # not escaped: its key stays a variable
            },
            "model_settings": _literal(dict(agent.model_settings)),
        },
        "agent": {"name": _literal(agent.name), "instructions": escaped(agent.system_prompt)},
        "toolkits": _literal(dict(agent.toolkits)),
        "max_turns": agent.max_turns,
        **_literal(dict(agent.more)),
    }
    header = "".join(f"# {one_line(fact)}\n" for fact in agent.facts)
    return _HYDRA + header + to_document(document)


def to_document(value: Mapping[str, Any]) -> str:
    """Return the mapping as a YAML document; no text in it can act as syntax or end it."""
    body = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return respell(body, _spelt)


def _literal(value: Any) -> Any:
    r"""Escape `${` as `\${`, because loading expands it everywhere except in instructions."""
    match value:
        case str():
            return value.replace("${", r"\${")
        case dict():
            return {k: _literal(v) for k, v in value.items()}
        case list() | tuple():
            return [_literal(v) for v in value]
        case _:
            return value


def _spelt(char: str) -> str:
    """Return the YAML escape of a character, which is valid only in double quotes."""
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


class _Dumper(yaml.SafeDumper):
    """Dumper that writes words plain, multi-line texts as literal blocks, and the rest in quotes.

    No text then depends on a YAML version's rules for numbers, dates or line breaks.
    """

    @override
    def ignore_aliases(self, data: Any) -> bool:
        """Return True, so that repeated values are written in full, without aliases."""
        return True

    def text(self, text: str) -> yaml.ScalarNode:
        """Represent a text in the one style that all loaders read alike."""
        style: str | None = '"'
        if _WORD.fullmatch(text):
            style = None
        elif "\n" in text and not any(map(unseen, text)):
            style = "|"  # PyYAML quotes texts that no block can hold
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.text)
