"""The system prompt of an agent: the only place where instructions and library are joined.

The same function serves practice, evaluation and export, so that the exported text equals the
measured one byte for byte. Texts are concatenated: instructions may contain `{{`, `%s` or anything
else.
"""

from grpo_practice.core.hashing import text_sha
from grpo_practice.core.text import CHARS_PER_TOKEN
from grpo_practice.core.types import Library

HEADING = """\
## Experience from practice

Learnt from earlier attempts at tasks like this one. Follow each entry where it applies."""


def render_library(library: Library) -> str:
    """Return the library as a block of text; '' if it is empty."""
    if not library.experiences:
        return ""
    return f"{HEADING}\n\n{experience_lines(library)}"


def experience_lines(library: Library) -> str:
    """Return one line per experience, `[E12] Name: sentence`; '' for an empty library."""
    return "\n".join(f"[{e.id}] {e.text}" for e in library.experiences)


def library_tokens(library: Library) -> int:
    """Estimate the tokens of the rendered block: its UTF-8 bytes / 4, rounded up.

    The estimate depends only on the text, so that every machine computes the same number.
    """
    return -(-len(render_library(library).encode()) // CHARS_PER_TOKEN)


def library_sha(library: Library) -> bytes:
    """Hash the rendered block, so that equal texts have equal hashes. Shape: [32] bytes."""
    return text_sha(render_library(library))


def block_sha(instructions: str) -> bytes | None:
    """Hash the library at the end of an exported agent's instructions; None if there is no library.

    The result equals `library_sha` of that library.
    """
    # Search from the end: the instructions themselves may contain the heading.
    start = instructions.rfind(HEADING)
    return text_sha(instructions[start:]) if start >= 0 else None


def without_block(instructions: str) -> str:
    """Return the instructions without the library at their end and without trailing space."""
    return instructions.rsplit(HEADING, 1)[0].rstrip()


def system_prompt(instructions: str, library: Library) -> str:
    """Join the instructions and the library, if it is not empty."""
    block = render_library(library)
    if not block:
        return instructions
    return f"{instructions}\n\n{block}" if instructions else block
