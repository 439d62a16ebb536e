"""The system prompt of an agent: its instructions and its library, put together in one place.

The same function serves practice, eval and export, so what is shipped is byte for byte what was
measured. It concatenates: instructions may contain `{{`, `%s` or anything else.
"""

from grpo_practice.canonical import text_sha
from grpo_practice.types import Library

HEADING = """\
## Experience from practice

Learnt from earlier attempts at tasks like this one. Follow each entry where it applies."""


def render_library(library: Library) -> str:
    """The library as a block of text; '' when it is empty."""
    if not library.experiences:
        return ""
    return f"{HEADING}\n\n{experience_lines(library)}"


def experience_lines(library: Library) -> str:
    """One line an experience, `[E12] Name: sentence`; '' when there are none."""
    return "\n".join(f"[{e.id}] {e.text}" for e in library.experiences)


def library_sha(library: Library) -> bytes:
    """sha256 of the rendered block, so that equal text is equal. Shape: [32] bytes."""
    return text_sha(render_library(library))


def system_prompt(instructions: str, library: Library) -> str:
    """What the agent is told: the instructions, then the library where there is one."""
    block = render_library(library)
    if not block:
        return instructions
    return f"{instructions}\n\n{block}" if instructions else block
