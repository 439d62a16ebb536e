"""One agent, three forms."""

from grpo_practice.export.enhanced_agent import ExportedAgent
from grpo_practice.export.formats import Format
from grpo_practice.export.jsonfile import to_json
from grpo_practice.export.markdown import to_markdown
from grpo_practice.export.yamlfile import to_yaml


def render(agent: ExportedAgent, format: Format) -> str:
    """Return the agent as a file of that format; the same agent gives the same text."""
    match format:
        case "yaml":
            return to_yaml(agent)
        case "md":
            return to_markdown(agent)
        case "json":
            return to_json(agent)
