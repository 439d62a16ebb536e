"""Files for other programs: more formats of the agent, which this module adds; rows of rollouts."""

from pathlib import Path
from typing import TYPE_CHECKING

from grpo_practice.reports.agent_formats import FORMATS, Files, Format

if TYPE_CHECKING:
    from grpo_practice.reports.exported_agent import ExportedAgent


def _skill(agent: "ExportedAgent") -> Files:
    from grpo_practice.export.skill import to_skill

    return to_skill(agent)


def _agents_md(agent: "ExportedAgent") -> Files:
    from grpo_practice.export.agents_md import to_section

    return {"": to_section(agent)}


def _put_section(path: Path, section: str) -> None:
    from grpo_practice.export.agents_md import write_section

    write_section(path, section)


def _openai_agents(agent: "ExportedAgent") -> Files:
    from grpo_practice.export.openai_agents import to_python

    return {"": to_python(agent)}


FOREIGN = {
    "skill": Format(_skill),
    "agents-md": Format(_agents_md, "/agents.md", put=_put_section),
    "openai-agents": Format(_openai_agents, ".py"),
}
FORMATS.update(FOREIGN)
