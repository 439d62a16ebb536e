"""One agent, three forms."""

from typing import Literal

from grpo_practice.export.enhanced_agent import ExportedAgent
from grpo_practice.export.jsonfile import to_json
from grpo_practice.export.markdown import to_markdown
from grpo_practice.export.yamlfile import to_yaml

Format = Literal["yaml", "md", "json"]


def render(agent: ExportedAgent, format: Format) -> str:
    """The agent as a file of that format; the same agent gives the same text."""
    match format:
        case "yaml":
            return to_yaml(agent)
        case "md":
            return to_markdown(agent)
        case "json":
            return to_json(agent)
