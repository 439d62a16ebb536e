"""An exported agent as the text of one file."""

from grpo_practice.app.agent_export import exported
from grpo_practice.app.library_refs import library_of
from grpo_practice.export.enhanced_agent import ExportedAgent
from grpo_practice.export.render import one_text, render_files
from grpo_practice.store import Store


def render(agent: ExportedAgent, format: str) -> str:
    """Return the agent in this format."""
    return one_text(render_files(agent, format), format)


def export_agent(store: Store, ref: str | None, step: str, format: str) -> str:
    """Return the agent with the library that `ref` and `step` name."""
    return render(exported(store, library_of(store, ref, step)), format)
