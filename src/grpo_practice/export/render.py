"""The formats that an agent is exported in: one entry of `FORMATS` each, named nowhere else.

The writers are imported when they are used: the command line reads this table for its help.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from grpo_practice.errors import ConfigError

if TYPE_CHECKING:
    from grpo_practice.export.enhanced_agent import ExportedAgent

Files = Mapping[str, str]
"""Relative path → text; the one file of a format that is no folder has the path `""`."""


@dataclass(frozen=True, slots=True)
class Format:
    """One form of the exported agent."""

    files: Callable[["ExportedAgent"], Files]
    """Function that writes it; the same agent gives the same text."""
    suffix: str = ""
    """Ending of file names that mean this format; "" for a folder."""
    loadable: bool = False
    """Whether `eval --agent` reads it."""


def _yaml(agent: "ExportedAgent") -> Files:
    from grpo_practice.export.yamlfile import to_yaml

    return {"": to_yaml(agent)}


def _markdown(agent: "ExportedAgent") -> Files:
    from grpo_practice.export.markdown import to_markdown

    return {"": to_markdown(agent)}


def _json(agent: "ExportedAgent") -> Files:
    from grpo_practice.export.jsonfile import to_json

    return {"": to_json(agent)}


FORMATS: dict[str, Format] = {
    "yaml": Format(_yaml, ".yaml", loadable=True),
    "md": Format(_markdown, ".md"),
    "json": Format(_json, ".json"),
}
DEFAULT = "yaml"


def format_by_name(path: str) -> str:
    """Return the format that the end of a file's name means; the default where it means none."""
    known = (name for name, f in FORMATS.items() if f.suffix and path.lower().endswith(f.suffix))
    return next(known, DEFAULT)


def render_files(agent: "ExportedAgent", format: str) -> Files:
    """Return the agent in that format; raise ConfigError where there is no such format."""
    if format not in FORMATS:
        raise ConfigError(
            f"there is no export format {format!r}", hint=f"there are {', '.join(FORMATS)}"
        )
    return FORMATS[format].files(agent)


def one_text(files: Files, format: str) -> str:
    """Return the text of a format's one file; raise ConfigError for a format that is a folder."""
    if set(files) != {""}:
        raise ConfigError(
            f"the export format {format} is a folder", hint="name the folder with --output"
        )
    return files[""]


def render(agent: "ExportedAgent", format: str) -> str:
    """Return the agent as the text of one file; see `render_files` and `one_text`."""
    return one_text(render_files(agent, format), format)
