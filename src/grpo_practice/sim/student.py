"""The simulated student: it reads a question and a library, and answers right or wrong."""

import re
from collections.abc import Mapping, Sequence
from string import ascii_uppercase

from grpo_practice.core.text import CHARS_PER_TOKEN
from grpo_practice.sim.experience_texts import advice, keys_in
from grpo_practice.sim.questions import LORE, SUMS, TOPICS, MadeQuestion, find
from grpo_practice.sim.request import SimRequest, labels
from grpo_practice.sim.world import EffectKind, Failing, World, topic_of, unit

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


def play(asked: SimRequest, world: World) -> str:
    """Write a short worked solution that ends with the answer in a box.

    The answer to an unknown question is an arbitrary number, or one of its options.
    """
    question = find(asked.asked)
    if question is None:
        guessed = letter_for(None, guess(asked, world), asked, world)
        return f"Step 1: I do not know this kind of question, so I guess.\n\n\\boxed{{{guessed}}}"
    answer, lines = way(question, asked, world)
    lines.append(f"Step 2: That gives {answer}.")
    said = letter_for(question, answer, asked, world)
    return "\n".join(lines) + f"\n\n\\boxed{{{said}}}"


def way(question: MadeQuestion, asked: SimRequest, world: World) -> tuple[int | str, list[str]]:
    """Return the answer, and the lines that explain how the student approaches the question.

    The answer is right with the probability that the world assigns to this question, given the
    experiences in the request.
    """
    keys = keys_in(asked.told)
    right = _solves(question, keys, asked, world)
    followed, key, answer = _way(question, keys, world, right=right, asked=asked)
    lines = [f"Step 1: Here {LORE[question.topic].when}."]
    # The simulated teacher finds this sentence in the attempt (`teacher_prompts.witness`).
    ids = [label for label, shown in labels(asked.told).items() if shown == followed]
    if ids:
        lines.append(f"Followed {', '.join(ids)}.")
    lines.append(f"Method {key}: {advice(world, key).do}.")
    return answer, lines


def _solves(question: MadeQuestion, keys: Sequence[str], asked: SimRequest, world: World) -> bool:
    draw = unit(world.seed, "play", asked.sha)
    # Only instructions and library dilute; a long question must not lower its own chance.
    read = tokens(asked.told) - tokens(question.text)
    return draw < world.p(question.text, keys, read, served=asked.served)


def request_fails(asked: SimRequest, world: World) -> bool:
    """Return whether the world makes the request fail; only an attempt's first request can fail."""
    # Only first requests fail; otherwise attempts with more turns would fail more often.
    question = find(asked.asked) if world.fail != Failing() and not asked.turns else None
    if question is None:
        return False
    right = _solves(question, keys_in(asked.told), asked, world)
    chance = world.fail.right if right else world.fail.wrong
    return unit(world.seed, "fail", asked.sha) < chance


def tokens(text: str) -> float:
    """Estimate the number of tokens in a text."""
    return len(text) / CHARS_PER_TOKEN


def guess(asked: SimRequest, world: World) -> int:
    """Return an arbitrary number."""
    return int(unit(world.seed, "play", asked.sha) * 1_000)


def _way(
    question: MadeQuestion, keys: Sequence[str], world: World, *, right: bool, asked: SimRequest
) -> tuple[str | None, str, int | str]:
    """Return the experience followed, if any, the key of the method, and the resulting answer."""
    kind: EffectKind = "help" if right else "harm"
    shown = [k for k in keys if topic_of(k) == question.topic and world.item(k).kind == kind]
    followed = shown[0] if shown else None
    if right:
        return followed, followed or world.key(question.topic, kind), question.answer
    second = unit(world.seed, "slip", asked.sha) < 0.5
    # A harmful experience leads to its own slip, whichever was drawn.
    if followed is not None:
        second = followed == world.key(question.topic, kind, 1)
    key = followed or world.key(question.topic, kind, int(second))
    return followed, key, question.slips[second]


def program(question: MadeQuestion, answer: int | str) -> str:
    """Write a program that prints the given answer: the right one, or one of the slips."""
    numbers = dict(question.numbers)
    if question.topic not in SUMS:
        return f"print({str(answer)!r})"
    nth = (question.answer, *question.slips).index(answer)
    expression = SUMS[question.topic].program[nth]
    if nth and int(TOPICS[question.topic].slips[nth - 1](**numbers)) != answer:
        expression += " + 1"  # as in `questions`: a slip must not equal the right answer
    given = "".join(f"{name} = {value}\n" for name, value in numbers.items())
    return f"{given}print({expression})"
