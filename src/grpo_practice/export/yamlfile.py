"""Export of the agent as a YAML file for this tool and the method's reference implementation."""

from typing import Any

from grpo_practice.config.reading.interpolate import escaped
from grpo_practice.config.yaml_document import to_document
from grpo_practice.core.foreign_text import one_line
from grpo_practice.export.exported_agent import ExportedAgent

_HYDRA = "# @package _global_\n"
"""First line of the file; without it, the reference nests the keys and loads another agent."""


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
