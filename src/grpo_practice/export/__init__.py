"""The enhanced agent as a file: its exact system prompt, and where it comes from."""

from grpo_practice.export.enhanced_agent import ExportedAgent, Measured, Provenance
from grpo_practice.export.render import Format, render

__all__ = ["ExportedAgent", "Format", "Measured", "Provenance", "render"]
