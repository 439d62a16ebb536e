"""Lettered options of a multiple-choice question, read from a prompt, and the letter to answer."""

import re
from collections.abc import Mapping
from string import ascii_uppercase

from grpo_practice.sim.questions import MadeQuestion
from grpo_practice.sim.request import SimRequest
from grpo_practice.sim.world import World, unit

_OPTION = re.compile(
    r"^[ \t]*(?P<line>[A-Z])[.)][ \t]+(?P<rest>\S[^\n]*)"
    r"|(?<!\w)\((?P<within>[A-Z])\)[ \t]*(?P<text>[^\s(][^\n(]*)",
    re.MULTILINE,
)


def options_in(text: str) -> Mapping[str, str]:
    """Return the last list of two or more lettered options, from A on, in a text; else empty."""
    found, last = dict[str, str](), dict[str, str]()
    for match in _OPTION.finditer(text):
        letter, option = match["line"] or match["within"], match["rest"] or match["text"]
        if letter == "A":
            found = {}
        if letter == ascii_uppercase[len(found) :][:1]:
            found[letter] = option.strip()
        if len(found) > 1:
            last = found
    return last


def letter_for(
    question: MadeQuestion | None, answer: int | str, asked: SimRequest, world: World
) -> int | str:
    """Return the letter of the option that contains the answer; the answer if there are no options.

    A wrong answer that matches no option gets the letter of a random wrong option; an answer to an
    unknown question gets any letter.
    """
    options = options_in(asked.asked)
    if not options:
        return answer
    letters = [letter for letter, text in options.items() if _says(text, answer)]
    if not letters:
        wrong = [k for k, text in options.items() if question and not _says(text, question.answer)]
        letters = wrong or [*options]
    # Draw from the first request: like the answer, the letter must not depend on later turns.
    draw = unit(world.seed, "option", asked.first.sha)
    return letters[int(draw * len(letters))]


def _says(option: str, answer: int | str) -> bool:
    """Return whether an option contains the answer as a separate word: `$45`, `45 apples`."""
    return str(answer) in re.findall(r"-?\w+", option)
