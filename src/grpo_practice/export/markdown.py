"""The agent as a page for people."""

import re

from grpo_practice.export.enhanced_agent import ExportedAgent
from grpo_practice.export.plain import one_line
from grpo_practice.text import visible

_MARKUP = re.compile(r"([\\`*_{}\[\]<>&~|$#])")
CHANGED = (
    "Control characters are spelt out here; the YAML and the JSON export have them as they are."
)


def to_markdown(agent: ExportedAgent) -> str:
    """Return provenance, the system prompt to copy, and the experiences one by one."""
    prompt = agent.system_prompt
    shown = visible(prompt)
    lines = [f"# {_no_markup(agent.name)}", ""]
    lines += [f"- {_no_markup(fact)}" for fact in (*agent.facts, *_model(agent))]
    lines += ["", "## System prompt", ""]
    if shown != prompt:
        lines += [CHANGED, ""]
    # Longer than any run of backticks in the prompt: no text of the agent can end its fence.
    fence = "`" * (1 + max([2, *map(len, re.findall("`+", shown))]))
    lines += [f"{fence}text", shown, fence, "", "## Experiences", ""]
    lines += [f"- **{e.id}** {_no_markup(e.text)}" for e in agent.library.experiences] or ["None."]
    return "\n".join(lines) + "\n"


def _model(agent: ExportedAgent) -> list[str]:
    """Return the model, and each address of it that is known, a sentence each."""
    urls = agent.endpoint.get("base_url") or []
    asked = [urls] if isinstance(urls, str) else urls
    return [f"model: {agent.model}", *(f"asked at: {url}" for url in asked)]


def _no_markup(text: str) -> str:
    """Return the text as one line of Markdown that shows it as it is."""
    return _MARKUP.sub(r"\\\1", one_line(text))
