"""The export formats, each defined by its entry in `FORMATS`.

Writers are imported on use, because the command line reads this table for its help.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo_practice.core.errors import ConfigError

if TYPE_CHECKING:
    from grpo_practice.reports.exported_agent import ExportedAgent

Files = Mapping[str, str]
"""Relative path → text; the file of a single-file format has the path `""`."""


@dataclass(frozen=True, slots=True)
class Format:
    """An export format of the agent."""

    files: Callable[["ExportedAgent"], Files]
    """Function that renders the agent; equal agents give equal texts."""
    suffix: str = ""
    """Suffix of paths that select this format; "" for a folder."""
    section: bool = False
    """Whether the output is a section of a file with other text."""
    loadable: bool = False
    """Whether `eval --agent` can read the output."""


def _yaml(agent: "ExportedAgent") -> Files:
    from grpo_practice.reports.agent_documents import to_yaml

    return {"": to_yaml(agent)}


def _markdown(agent: "ExportedAgent") -> Files:
    from grpo_practice.reports.agent_documents import to_markdown

    return {"": to_markdown(agent)}


def _json(agent: "ExportedAgent") -> Files:
    from grpo_practice.reports.agent_documents import to_json

    return {"": to_json(agent)}


def _skill(agent: "ExportedAgent") -> Files:
    from grpo_practice.export.skill import to_skill

    return to_skill(agent)


def _agents_md(agent: "ExportedAgent") -> Files:
    from grpo_practice.export.agents_md import to_section

    return {"": to_section(agent)}


def _openai_agents(agent: "ExportedAgent") -> Files:
    from grpo_practice.export.openai_agents import to_python

    return {"": to_python(agent)}


FORMATS: dict[str, Format] = {
    "yaml": Format(_yaml, ".yaml", loadable=True),
    "skill": Format(_skill),
    # Before `md`, whose suffix also matches.
    "agents-md": Format(_agents_md, "/agents.md", section=True),
    "openai-agents": Format(_openai_agents, ".py"),
    "md": Format(_markdown, ".md"),
    "json": Format(_json, ".json"),
}
DEFAULT = "yaml"


def format_by_name(path: str) -> str:
    """Return the format selected by the suffix of a path, or else the default."""
    path = f"/{path.lower()}"
    known = (name for name, f in FORMATS.items() if f.suffix and path.endswith(f.suffix))
    return next(known, DEFAULT)


def render_files(agent: "ExportedAgent", format: str) -> Files:
    """Render the agent in a format; raise ConfigError for an unknown format."""
    if format not in FORMATS:
        raise ConfigError(
            f"there is no export format {format!r}", hint=f"choose one of {', '.join(FORMATS)}"
        )
    return FORMATS[format].files(agent)


def one_text(files: Files, format: str) -> str:
    """Return the text of a single-file format; raise ConfigError for a format that is a folder."""
    if set(files) != {""}:
        raise ConfigError(
            f"the export format {format} writes a folder", hint="name the folder with --output"
        )
    return files[""]
