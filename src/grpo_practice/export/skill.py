"""Export of the agent as an Agent Skill: a folder with `SKILL.md`, as specified at agentskills.io.

An agent with the skill always sees its name and description. The agent reads `SKILL.md` when it
uses the skill, and the reference when it follows the link.
"""

import re

from grpo_practice import __version__
from grpo_practice.config.yaml_document import to_document
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.foreign_text import fenced, fenced_experiences, no_markup
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.text import brief, count
from grpo_practice.reports.exported_agent import ExportedAgent

NAME = re.compile("[a-z0-9]+(?:-[a-z0-9]+)*")
NAME_CHARS = 64
DESCRIPTION_CHARS = 1024
_TASK_CHARS = 600
_REFERENCE = "references/experiences.md"


def to_skill(agent: ExportedAgent) -> dict[str, str]:
    """Return `SKILL.md`, and a reference file with the experiences and their origin.

    Raises:
        ConfigError: The folder's name, which is also the skill's name, is invalid for a skill.
    """
    name = _name(agent)
    return {
        "SKILL.md": f"---\n{_front_matter(agent, name)}---\n\n{_body(agent, name)}",
        _REFERENCE: _reference(agent),
    }


def _name(agent: ExportedAgent) -> str:
    slug = re.sub("[^a-z0-9]+", "-", agent.name.lower()).strip("-")[:NAME_CHARS].strip("-")
    slug = slug or "practised-agent"
    if not agent.place or (NAME.fullmatch(agent.place) and len(agent.place) <= NAME_CHARS):
        return agent.place or slug
    raise ConfigError(
        f"{agent.place}: a skill's folder has the skill's name: lowercase letters, digits and"
        f" single hyphens, at most {NAME_CHARS} characters",
        hint=f"name the folder {slug}",
    )


def _front_matter(agent: ExportedAgent, name: str) -> str:
    # Agents with the skill read this during any task, so it must not contain experiences.
    learnt = count(len(agent.library), "lesson")
    task = brief(agent.instructions, _TASK_CHARS) or "those that it practised"
    description = (
        f"Gives {learnt} from practice on tasks of one kind. Use it before you begin a task like"
        f" this one: {task}"
    )
    origin = agent.provenance
    metadata = {
        "made-by": f"grpo-practice {__version__}",
        "run": origin.run,
        "library": f"L{agent.library.id}",
        "library-sha256": library_sha(agent.library).hex(),
        "simulated": "yes" if origin.simulated else "no",
    }
    # Some readers reject a description with tags.
    plain = description.translate({ord("<"): "(", ord(">"): ")"})
    assert len(plain) <= DESCRIPTION_CHARS
    given = {"name": name, "description": plain, "metadata": metadata}
    # The published validator treats `---` as the end, even in a quoted text.
    return to_document(given).replace("---", "\u2014")


def _body(agent: ExportedAgent, name: str) -> str:
    lines = [f"# {name}", ""]
    if len(agent.library):
        lines += [
            f"Read [what was learnt]({_REFERENCE}) before you begin. Follow each entry where it"
            " applies.",
            "",
        ]
    if agent.provenance.simulated:
        lines += ["SIMULATED: made with a simulated model; it says nothing about a real one.", ""]
    if agent.instructions:
        lines += ["## Instructions of the agent that practised", "", fenced(agent.instructions), ""]
    return "\n".join(lines)


def _reference(agent: ExportedAgent) -> str:
    learnt = fenced_experiences(agent.library) if len(agent.library) else "None yet."
    origin = "\n".join(f"- {no_markup(fact)}" for fact in agent.facts)
    return f"# Experience from practice\n\n{learnt}\n\n## Origin\n\n{origin}\n"
