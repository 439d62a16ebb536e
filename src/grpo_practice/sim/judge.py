"""The simulated judge: compares the end of a response with the reference."""

import re
from fractions import Fraction

from grpo_practice.sim.questions import solve
from grpo_practice.sim.request import SimRequest

_BOX = re.compile(r"\\boxed\{([^{}]*)\}")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def grade(asked: SimRequest) -> str:
    """Write a sentence, then the grade on a line of its own.

    Without a reference the judge works the question out, where it is one of this world.
    """
    said = _final_answer("\n".join(asked.fenced("answer")))
    references = asked.fenced("reference")
    known = solve("\n".join(asked.fenced("question")))
    if not references and known is not None:
        references = [str(known)]
    right = said is not None and any(_same(said, reference) for reference in references)
    told = "The response gives no answer." if said is None else f"The response ends with {said}."
    return f"{told}\nGRADE: {'CORRECT' if right else 'INCORRECT'}"


def _final_answer(response: str) -> str | None:
    """Return the last box of a response, else its last number."""
    found = _BOX.findall(response) or _NUMBER.findall(response)
    return found[-1].strip() if found else None


def _same(said: str, reference: str) -> bool:
    """Return True for equal numbers, and for equal texts but for case."""
    try:
        return Fraction(said) == Fraction(reference.strip())
    except (ValueError, ZeroDivisionError):
        return said.casefold() == reference.strip().casefold()
