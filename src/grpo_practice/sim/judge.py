"""The simulated judge of responses, and the simulated reader of web pages."""

import re
from fractions import Fraction

from grpo_practice.sim.questions import solve
from grpo_practice.sim.request import SimRequest

_BOX = re.compile(r"\\boxed\{([^{}]*)\}")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_WORD = re.compile(r"\w{3,}")
CHARS = 300
"""Maximum number of characters to quote from a line of a page."""


def grade(asked: SimRequest) -> str:
    """Describe the end of the response, and grade its last box or else its last number.

    Without a reference, the judge solves the question itself if it belongs to this world.
    """
    response = "\n".join(asked.fenced("answer"))
    found = _BOX.findall(response) or _NUMBER.findall(response)
    said = found[-1].strip() if found else None
    references = asked.fenced("reference")
    known = solve("\n".join(asked.fenced("question")))
    if not references and known is not None:
        references = [str(known)]
    right = said is not None and any(_same(said, reference) for reference in references)
    told = "The response gives no answer." if said is None else f"The response ends with {said}."
    return f"{told}\nGRADE: {'CORRECT' if right else 'INCORRECT'}"


def _same(said: str, reference: str) -> bool:
    """Return True for equal numbers, and for texts that are equal apart from case."""
    # Compare as fractions, so that 0.5 equals 1/2 and large numbers are exact.
    try:
        return Fraction(said) == Fraction(reference.strip())
    except (ValueError, ZeroDivisionError):
        return said.casefold() == reference.strip().casefold()


def read_page(asked: SimRequest) -> str:
    """Quote the first line of the page among the lines that share most words with the question."""
    wanted = _words("\n".join(asked.fenced("question")))
    lines = [line.strip() for line in "\n".join(asked.fenced("web")).splitlines() if line.strip()]
    best = max(lines, key=lambda line: len(_words(line) & wanted), default="")
    if not _words(best) & wanted:
        return "The page does not answer the question."
    return f"The page says: {best[:CHARS]}"


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
