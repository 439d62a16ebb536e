"""Export of the agent as a JSON document for programs."""

import json
from typing import Any

from grpo_practice.core.foreign_text import respell
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.export.exported_agent import ExportedAgent, Measured


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
            "type": "chat.completions",
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
