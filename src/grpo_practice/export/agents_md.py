"""Experiences as a section of an `AGENTS.md`, between two marks."""

import re

from grpo_practice.errors import ConfigError
from grpo_practice.export.enhanced_agent import ExportedAgent
from grpo_practice.export.plain import fenced_experiences, no_markup
from grpo_practice.prompts.system import HEADING

_MARK = "<!-- grpo-practice"
BEGIN = f"{_MARK} begin: the next export replaces all from here to the end mark -->"
END = f"{_MARK} end -->"
_ANY = re.compile(rf"^[ \t]*{_MARK}[^\r\n]*", re.MULTILINE)
_WHOLE = re.compile(rf"[ \t]*{_MARK} (begin\b.*|end) -->[ \t]*")


def to_section(agent: ExportedAgent) -> str:
    """Return the experiences and their origin, marks and all; the file has its own instructions."""
    learnt = fenced_experiences(agent.library) if len(agent.library) else "None yet."
    origin = "\n".join(f"- {no_markup(fact)}" for fact in agent.facts)
    return f"{BEGIN}\n{HEADING}\n\n{learnt}\n\n{origin}\n{END}\n"


def with_section(text: str, section: str) -> str:
    """Return the text with this section: in place of the one that it has, else at its end.

    All else in it stays as it is; the section takes the line breaks of the text.

    Raises:
        ConfigError: The marks in it are not one that begins and one that ends.
    """
    marks = list(_ANY.finditer(text))
    # Those of the section that is there: else one written after a lone \r were another each time.
    breaks = text[marks[0].end() :][:2] if marks else text
    end = "\r\n" if "\r\n" in breaks else "\n"
    section = section.replace("\n", end)
    if not marks:
        apart = "" if not text else end if text.endswith("\n") else 2 * end
        return text + apart + section
    kinds = [(_WHOLE.fullmatch(mark[0]) or ["", "no mark"])[1][:5] for mark in marks]
    if kinds != ["begin", "end"]:
        lines = ", ".join(str(text.count("\n", 0, mark.start()) + 1) for mark in marks)
        raise ConfigError(
            f"the marks around its section are damaged: not one that begins and then one that ends"
            f" (lines {lines})",
            hint=f"remove the lines that begin with {_MARK}, and the section; it is then added"
            " at the end",
        )
    return text[: marks[0].start()] + section.removesuffix(end) + text[marks[1].end() :]
