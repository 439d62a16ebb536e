"""The agent as a YAML file that this tool and the method's reference implementation load."""

import re
from collections.abc import Mapping
from typing import Any

import yaml
from typing_extensions import override

from grpo_practice.config.reading.interpolate import escaped
from grpo_practice.export.enhanced_agent import ExportedAgent
from grpo_practice.export.plain import one_line, respell, unseen

_HYDRA = "# @package _global_\n"
"""First line, without which the reference puts the keys elsewhere and loads another agent."""

_WORD = re.compile("[A-Za-z][A-Za-z0-9_.-]*")


def to_yaml(agent: ExportedAgent) -> str:
    """Return the agent as YAML; its instructions are the whole system prompt, byte for byte.

    A URL that its config does not name, or not in the open, and every key come from the
    environment of whoever uses it.
    """
    document = {
        "type": "simple",
        "model": {
            "model_provider": {
                "type": "chat.completions",
                "model": _literal(agent.model),
                **agent.endpoint,  # the variable of its key stays one
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
    """Return the mapping as a YAML document in which no text acts, or ends it."""
    body = yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return respell(body, _spelt)


def _literal(value: Any) -> Any:
    r"""Return the value with `${` as `\${`: loading resolves it but for instructions."""
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
    """Return the YAML escape of a character, which is valid in double quotes only."""
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


class _Dumper(yaml.SafeDumper):
    """A dumper of words as plain, of pages as literal blocks, of all else in double quotes.

    No text then depends on what a YAML version takes for a number, a date or a line break.
    """

    @override
    def ignore_aliases(self, data: Any) -> bool:
        """Write a repeated value out, without an alias."""
        return True

    def text(self, text: str) -> yaml.ScalarNode:
        """Represent a text in the one style that every loader reads alike."""
        style: str | None = '"'
        if _WORD.fullmatch(text):
            style = None
        elif "\n" in text and not any(map(unseen, text)):
            style = "|"  # the emitter itself quotes what no block can hold, as spaces before breaks
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _Dumper.text)
