"""Words of the people of the world: of each experience and of each method.

An experience is recognised by the marker in its text, `(#percent-b6)`, wherever it stands. The
words around it are for people, and for a teacher that knows no more than it reads: they say what
the experience is about (`about`) and what it is called (`named`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from grpo_practice.sim.labels import LABELS
from grpo_practice.sim.world import World, topic_of

MARKER = re.compile(r"\(#([a-z]+-[0-9a-f]{2,})\)")
_WARNING = re.compile(r"do not follow E\d+, which misled, but |\s*\(about E\d+: \w+\)")


@dataclass(frozen=True, slots=True)
class Advice:
    """A piece of advice: its short name and what it says to do."""

    name: str
    do: str
    tex: str = ""
    """The same as a formula, as models write it between dollars."""


@dataclass(frozen=True, slots=True)
class Lore:
    """Advice about one topic."""

    when: str
    right: Advice
    wrong: tuple[Advice, Advice]
    """One for each common slip of the topic, in the order of `Topic.slips`."""


NULL = (
    Advice("Calm reading", "read the whole text once more before you calculate"),
    Advice("Tidy work", "write every number down on a line of its own"),
)
"""Advice that changes nothing, on any topic."""

_SUMS: Mapping[str, Lore] = {
    "percent": Lore(
        "a change in percent is asked for",
        Advice(
            "Percent change base",
            "divide the change by the original value",
            r"\frac{b-a}{a} \times 100",
        ),
        (
            Advice(
                "Percent of the new",
                "divide the change by the new value",
                r"\frac{b-a}{b} \times 100",
            ),
            Advice("Percent as difference", "give the difference of the two values", r"b - a"),
        ),
    ),
    "remainder": Lore(
        "things are packed or shared and a rest is asked for",
        Advice(
            "What is left over",
            "take away the full groups and keep what remains",
            r"r = a - d \times \lfloor a/d \rfloor",
        ),
        (
            Advice("Count the groups", "give the number of full groups", r"\lfloor a/d \rfloor"),
            Advice(
                "Fill the last group",
                "give what is missing to the next full group",
                r"d - r, r \leq d",
            ),
        ),
    ),
    "perimeter": Lore(
        "the length all around a rectangle is asked for",
        Advice("All four sides", "add length and width and double the sum", r"2 \times (a+b)"),
        (
            Advice("Length plus width", "add length and width once", r"a + b"),
            Advice("Multiply the sides", "multiply length by width", r"a \times b"),
        ),
    ),
    "rate": Lore(
        "several workers work for several hours",
        Advice(
            "Unit rate first",
            "find what one worker does in one hour, then multiply by both",
            r"\rho = \frac{p}{m \times h}",
        ),
        (
            Advice(
                "Only hours count", "scale the amount by the hours alone", r"\frac{p \times k}{h}"
            ),
            Advice(
                "Only workers count",
                "scale the amount by the workers alone",
                r"\frac{p \times v}{m}",
            ),
        ),
    ),
    "sequence": Lore(
        "a term of an evenly growing sequence is asked for",
        Advice(
            "One step fewer",
            "add the step one time fewer than the term's number",
            r"a_k = a_1 + (k-1) \times d",
        ),
        (
            Advice(
                "Steps as terms",
                "add the step as often as the term's number says",
                r"a_k = a_1 + k \times d",
            ),
            Advice("Step times number", "multiply the step by the term's number", r"k \times d"),
        ),
    ),
    "average": Lore(
        "one more value changes an average",
        Advice(
            "Totals, not averages",
            "compare the total before with the total after",
            r"(k+1) \times \bar{y} - k \times \bar{x}",
        ),
        (
            Advice(
                "Mirror the average",
                "go as far above the new average as the old one is below",
                r"2 \bar{y} - \bar{x}",
            ),
            Advice(
                "Middle of averages",
                "take the middle of the two averages",
                r"\frac{\bar{x} + \bar{y}}{2}",
            ),
        ),
    ),
    "posts": Lore(
        "things stand at equal distances with one at each end",
        Advice("Both ends count", "count the gaps and add one", r"\frac{s}{d} + 1"),
        (
            Advice("Count the gaps", "give the number of gaps", r"\frac{s}{d}"),
            Advice("Inner ones only", "count the gaps and take one away", r"\frac{s}{d} - 1"),
        ),
    ),
    "legs": Lore(
        "two kinds share a number of heads and of legs or wheels",
        Advice(
            "Legs beyond two",
            "take two for each head away and halve what is left",
            r"\frac{f - 2 \cdot h}{2}",
        ),
        (
            Advice(
                "The other kind",
                "give the number of those with two",
                r"h - \frac{f - 2 \cdot h}{2}",
            ),
            Advice("Four for each", "divide the legs or wheels by four", r"\frac{f}{4}"),
        ),
    ),
    "speed": Lore(
        "an average speed out and back is asked for",
        Advice(
            "Distance over time",
            "divide the whole way by the whole time",
            r"\bar{v} = \frac{2d}{\tau_1 + \tau_2}",
        ),
        (
            Advice(
                "Mean of speeds", "take the mean of the two speeds", r"\theta = \frac{v_1 + v_2}{2}"
            ),
            Advice(
                "Gap of speeds",
                "subtract the smaller speed from the larger",
                r"v_2 - v_1, v_1 \leq v_2",
            ),
        ),
    ),
    "discount": Lore(
        "one reduction follows another",
        Advice(
            "One after the other",
            "take the second reduction from the reduced price",
            r"p \times (1-\alpha) \times (1-\beta)",
        ),
        (
            Advice(
                "Add the percents",
                "add the two reductions and take them off at once",
                r"p \times (1-\alpha-\beta)",
            ),
            Advice(
                "Size of the saving",
                "give what the two reductions take off",
                r"p \times (\alpha+\beta)",
            ),
        ),
    ),
}


_WORDS: Mapping[str, Lore] = {
    topic.name: Lore(
        topic.when,
        Advice(topic.names[0], topic.advice(topic.label)),
        (
            Advice(topic.names[1], topic.advice(topic.slips[0])),
            Advice(topic.names[2], topic.advice(topic.slips[1])),
        ),
    )
    for topic in LABELS
}
LORE: Mapping[str, Lore] = {**_SUMS, **_WORDS}


def advice(world: World, key: str) -> Advice:
    """Return what the experience with this key says.

    A key the world's people do not use themselves is put into the words of its kind.
    """
    topic, kind = topic_of(key), world.item(key).kind
    second = key == world.key(topic, kind, 1)
    if kind == "null":
        return NULL[second]
    return LORE[topic].right if kind == "help" else LORE[topic].wrong[second]


def sentence(world: World, key: str, *, instead_of: str | None = None) -> str:
    """Return the experience as a lesson: `When …, … . (#key)`."""
    return told(key, advice(world, key).do, instead_of=instead_of)


def told(key: str, do: str, *, instead_of: str | None = None) -> str:
    """Return a lesson about a way of working that goes by this key and these words.

    The formula that says the same is added where the world has one; models like to.
    """
    lore = LORE[topic_of(key)]
    tex = next((a.tex for a in _sayings(lore) if a.do == do), "")
    warning = f"do not follow {instead_of}, which misled, but " if instead_of else ""
    return f"When {lore.when}, {warning}{do}{f', ${tex}$' if tex else ''}. (#{key})"


def text(world: World, key: str) -> str:
    """Return the experience as it stands in a library: `Name: sentence (#key)`."""
    return named(sentence(world, key))


def named(lesson: str) -> str:
    """Return the lesson as an experience: under the name of its advice, else its first words."""
    topic, plain = about(lesson), _WARNING.sub("", lesson)
    found = next((a for a in _sayings(LORE[topic]) if a.do in plain), None) if topic else None
    name = found.name if found else " ".join(plain.partition(", ")[2].split()[:3])
    return f"{name or 'Lesson'}: {plain}"


def about(text: str) -> str | None:
    """Return the topic a text says it is about, by its words or else by its marker."""
    said = next((name for name, lore in LORE.items() if lore.when in text), None)
    marker = MARKER.search(text)
    return said or (topic_of(marker[1]) if marker else None)


def is_platitude(do: str) -> bool:
    """Return True for advice that says nothing about any way of working."""
    return any(advice.do == do for advice in NULL)


def keys_in(text: str) -> list[str]:
    """Return the keys of the experiences a text holds, each once, in order."""
    return list(dict.fromkeys(MARKER.findall(text)))


def _sayings(lore: Lore) -> tuple[Advice, ...]:
    return (lore.right, *lore.wrong, *NULL)
