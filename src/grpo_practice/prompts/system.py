"""The system prompt of an agent: instructions and library, joined in one place.

The same function serves practice, eval and export, so that the exported text is byte for byte the
measured one. Texts are concatenated: instructions may contain `{{`, `%s` or anything else.
"""

from grpo_practice.canonical import text_sha
from grpo_practice.text import CHARS_PER_TOKEN
from grpo_practice.types import Library

HEADING = """\
## Experience from practice

Learnt from earlier attempts at tasks like this one. Follow each entry where it applies."""


def render_library(library: Library) -> str:
    """Return the library as a block of text; '' when it is empty."""
    if not library.experiences:
        return ""
    return f"{HEADING}\n\n{experience_lines(library)}"


def experience_lines(library: Library) -> str:
    """Return one line per experience, `[E12] Name: sentence`; '' when there are none."""
    return "\n".join(f"[{e.id}] {e.text}" for e in library.experiences)


def library_tokens(library: Library) -> int:
    """Return about how many tokens the rendered block takes: its UTF-8 bytes / 4, rounded up.

    The text alone decides, so that each machine comes to the same number.
    """
    return -(-len(render_library(library).encode()) // CHARS_PER_TOKEN)


def library_sha(library: Library) -> bytes:
    """Hash the rendered block, so that equal text is equal. Shape: [32] bytes."""
    return text_sha(render_library(library))


def block_sha(instructions: str) -> bytes | None:
    """Hash the library that instructions end with, an exported agent's; None where there is none.

    Equal to `library_sha` of that library.
    """
    start = instructions.rfind(HEADING)
    return text_sha(instructions[start:]) if start >= 0 else None


def without_block(instructions: str) -> str:
    """Return instructions without the library that they end with, and without space at the end."""
    return instructions.rsplit(HEADING, 1)[0].rstrip()


def system_prompt(instructions: str, library: Library) -> str:
    """Join the instructions and the library, where there is one."""
    block = render_library(library)
    if not block:
        return instructions
    return f"{instructions}\n\n{block}" if instructions else block
