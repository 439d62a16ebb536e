"""The export formats, each defined by its entry in `FORMATS`; a slice may add some.

Renderers are imported on use, because the command line reads this table for its help.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
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
    loadable: bool = False
    """Whether `eval --agent` can read the output."""
    put: Callable[[Path, str], None] | None = None
    """Function that puts the text into a file with other text; None replaces the whole file."""


def _yaml(agent: "ExportedAgent") -> Files:
    from grpo_practice.reports.agent_documents import to_yaml

    return {"": to_yaml(agent)}


def _markdown(agent: "ExportedAgent") -> Files:
    from grpo_practice.reports.agent_documents import to_markdown

    return {"": to_markdown(agent)}


def _json(agent: "ExportedAgent") -> Files:
    from grpo_practice.reports.agent_documents import to_json

    return {"": to_json(agent)}


FORMATS: dict[str, Format] = {
    "yaml": Format(_yaml, ".yaml", loadable=True),
    "md": Format(_markdown, ".md"),
    "json": Format(_json, ".json"),
}
DEFAULT = "yaml"


def format_by_name(path: str) -> str:
    """Return the format selected by the suffix of a path, or else the default."""
    path = f"/{path.lower()}"
    known = {f.suffix: name for name, f in FORMATS.items() if f.suffix and path.endswith(f.suffix)}
    return known[max(known, key=len)] if known else DEFAULT


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
