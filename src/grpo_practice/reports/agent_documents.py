"""Export of the agent as one file: JSON for programs, Markdown for readers, YAML to load again."""

import json
from typing import Any

from grpo_practice.config.reading.interpolate import escaped
from grpo_practice.config.yaml_document import to_document
from grpo_practice.core.foreign_text import fenced, no_markup, one_line, respell
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.text import visible
from grpo_practice.reports.exported_agent import ExportedAgent, Measured


def to_json(agent: ExportedAgent) -> str:
    """Return a document of schema `grpo-practice.agent/1`.

    Keys may be added within a schema version, but not removed or changed. Unknown numbers are null.
    """
    origin = agent.provenance
    document = {
        "schema": "grpo-practice.agent/1",
        "name": agent.name,
        "system_prompt": agent.system_prompt,
        "instructions": agent.instructions,
        "experiences": [{"id": e.id, "text": e.text} for e in agent.library.experiences],
        "model": {
            "type": agent.api,
            "name": agent.model,
            "base_url": agent.endpoint.get("base_url"),
            "settings": dict(agent.model_settings),
        },
        "toolkits": dict(agent.toolkits),
        "max_turns": agent.max_turns,
        **agent.more,
        "provenance": {
            "run": origin.run,
            "branch": origin.branch,
            "step": origin.step,
            "library": f"L{agent.library.id}",
            "library_sha256": library_sha(agent.library).hex(),
            "simulated": origin.simulated,
            "left_out": list(origin.left_out),
        },
        "before": _measured(origin.before),
        "after": _measured(origin.after),
        "difference": origin.difference,
    }
    text = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)
    return respell(text, lambda c: json.dumps(c)[1:-1]) + "\n"


def _measured(known: Measured | None) -> dict[str, Any] | None:
    if known is None:
        return None
    s = known.score
    return {
        "run": known.run,
        "dataset": known.dataset,
        "mean": s.mean,
        "ci95": list(s.ci95) if s.ci95 else None,
        "questions": s.questions,
        "rollouts": {"planned": s.planned, "scored": s.scored},
    }


CHANGED = (
    "Control characters are spelt out here; the YAML and the JSON export have them as they are."
)


def to_markdown(agent: ExportedAgent) -> str:
    """Return a page with the origin, the system prompt to copy, and a list of experiences."""
    prompt = agent.system_prompt
    lines = [f"# {no_markup(agent.name)}", ""]
    url = agent.endpoint.get("base_url")
    facts = [*agent.facts, f"model: {agent.model}", *([f"asked at: {url}"] if url else [])]
    lines += [f"- {no_markup(fact)}" for fact in facts]
    lines += ["", "## System prompt", ""]
    if visible(prompt) != prompt:
        lines += [CHANGED, ""]
    lines += [fenced(prompt), "", "## Experiences", ""]
    lines += [f"- **{e.id}** {no_markup(e.text)}" for e in agent.library.experiences] or ["None."]
    return "\n".join(lines) + "\n"


_HYDRA = "# @package _global_\n"
"""First line of the file; without it, the reference nests the keys and loads the wrong agent."""


def to_yaml(agent: ExportedAgent) -> str:
    """Return the agent as YAML; its instructions are the whole system prompt, byte for byte.

    API keys always come from the environment of the user who loads the file. The URL does too if
    the config does not name it, or names it together with a secret.
    """
    document = {
        "type": "simple",
        "model": {
            "model_provider": {
                "type": agent.api,
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
