"""An exported agent as the text of one file."""

from grpo_practice.reports.agent_formats import one_text, render_files
from grpo_practice.reports.before_after import before_after
from grpo_practice.reports.exported_agent import ExportedAgent
from grpo_practice.run.agent_export import exported
from grpo_practice.run.library_refs import library_of
from grpo_practice.store import Store


def render(agent: ExportedAgent, format: str) -> str:
    """Return the agent in this format."""
    return one_text(render_files(agent, format), format)


def export_agent(store: Store, ref: str | None, step: str, format: str) -> str:
    """Return the agent with the library that `ref` and `step` name."""
    found = library_of(store, ref, step)
    known = before_after(store, found.branch, found.run, found.library)
    return render(exported(store, found, known), format)
