"""Export of the agent as a Markdown page for readers."""

from grpo_practice.core.foreign_text import fenced, no_markup
from grpo_practice.core.text import visible
from grpo_practice.export.exported_agent import ExportedAgent

CHANGED = (
    "Control characters are spelt out here; the YAML and the JSON export have them as they are."
)


def to_markdown(agent: ExportedAgent) -> str:
    """Return a page with the origin, the system prompt to copy, and a list of experiences."""
    prompt = agent.system_prompt
    lines = [f"# {no_markup(agent.name)}", ""]
    lines += [f"- {no_markup(fact)}" for fact in (*agent.facts, *_model(agent))]
    lines += ["", "## System prompt", ""]
    if visible(prompt) != prompt:
        lines += [CHANGED, ""]
    lines += [fenced(prompt), "", "## Experiences", ""]
    lines += [f"- **{e.id}** {no_markup(e.text)}" for e in agent.library.experiences] or ["None."]
    return "\n".join(lines) + "\n"


def _model(agent: ExportedAgent) -> list[str]:
    """Return sentences that name the model and, if known, its address."""
    url = agent.endpoint.get("base_url")
    return [f"model: {agent.model}", *([f"asked at: {url}"] if url else [])]
