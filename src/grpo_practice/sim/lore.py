"""What the people of the world say: the words of each experience and of each method.

An experience is recognised by the marker in its text, `(#percent-b6)`, wherever it stands; the
words around it are for people.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from grpo_practice.sim.world import World, topic_of

MARKER = re.compile(r"\(#([a-z]+-[0-9a-f]{2,})\)")


@dataclass(frozen=True, slots=True)
class Advice:
    """A piece of advice: its short name and what it says to do."""

    name: str
    do: str


@dataclass(frozen=True, slots=True)
class Lore:
    """What is said about one topic."""

    when: str
    right: Advice
    wrong: tuple[Advice, Advice]
    """One for each common slip of the topic, in the order of `Topic.slips`."""


NULL = (
    Advice("Calm reading", "read the whole text once more before you calculate"),
    Advice("Tidy work", "write every number down on a line of its own"),
)
"""Advice that changes nothing, on any topic."""

LORE: Mapping[str, Lore] = {
    "percent": Lore(
        "a change in percent is asked for",
        Advice("Percent change base", "divide the change by the original value"),
        (
            Advice("Percent of the new", "divide the change by the new value"),
            Advice("Percent as difference", "give the difference of the two values"),
        ),
    ),
    "remainder": Lore(
        "things are packed or shared and a rest is asked for",
        Advice("What is left over", "take away the full groups and keep what remains"),
        (
            Advice("Count the groups", "give the number of full groups"),
            Advice("Fill the last group", "give what is missing to the next full group"),
        ),
    ),
    "perimeter": Lore(
        "the length all around a rectangle is asked for",
        Advice("All four sides", "add length and width and double the sum"),
        (
            Advice("Length plus width", "add length and width once"),
            Advice("Multiply the sides", "multiply length by width"),
        ),
    ),
    "rate": Lore(
        "several workers work for several hours",
        Advice("Unit rate first", "find what one worker does in one hour, then multiply by both"),
        (
            Advice("Only hours count", "scale the amount by the hours alone"),
            Advice("Only workers count", "scale the amount by the workers alone"),
        ),
    ),
    "sequence": Lore(
        "a term of an evenly growing sequence is asked for",
        Advice("One step fewer", "add the step one time fewer than the term's number"),
        (
            Advice("Steps as terms", "add the step as often as the term's number says"),
            Advice("Step times number", "multiply the step by the term's number"),
        ),
    ),
    "average": Lore(
        "one more value changes an average",
        Advice("Totals, not averages", "compare the total before with the total after"),
        (
            Advice("Mirror the average", "go as far above the new average as the old one is below"),
            Advice("Middle of averages", "take the middle of the two averages"),
        ),
    ),
    "posts": Lore(
        "things stand at equal distances with one at each end",
        Advice("Both ends count", "count the gaps and add one"),
        (
            Advice("Count the gaps", "give the number of gaps"),
            Advice("Inner ones only", "count the gaps and take one away"),
        ),
    ),
    "legs": Lore(
        "two kinds share a number of heads and of legs or wheels",
        Advice("Legs beyond two", "take two for each head away and halve what is left"),
        (
            Advice("The other kind", "give the number of those with two"),
            Advice("Four for each", "divide the legs or wheels by four"),
        ),
    ),
    "speed": Lore(
        "an average speed out and back is asked for",
        Advice("Distance over time", "divide the whole way by the whole time"),
        (
            Advice("Mean of speeds", "take the mean of the two speeds"),
            Advice("Gap of speeds", "subtract the smaller speed from the larger"),
        ),
    ),
    "discount": Lore(
        "one reduction follows another",
        Advice("One after the other", "take the second reduction from the reduced price"),
        (
            Advice("Add the percents", "add the two reductions and take them off at once"),
            Advice("Size of the saving", "give what the two reductions take off"),
        ),
    ),
}


def advice(world: World, key: str) -> Advice:
    """What the experience with this key says.

    A key the world's people do not use themselves is put into the words of its kind.
    """
    topic, kind = topic_of(key), world.item(key).kind
    second = key == world.key(topic, kind, 1)
    if kind == "null":
        return NULL[second]
    return LORE[topic].right if kind == "help" else LORE[topic].wrong[second]


def sentence(world: World, key: str, *, instead_of: str | None = None) -> str:
    """The experience as a lesson: `When …, … . (#key)`."""
    warning = f"do not follow {instead_of}, which misled, but " if instead_of else ""
    when = LORE[topic_of(key)].when
    return f"When {when}, {warning}{advice(world, key).do}. (#{key})"


def text(world: World, key: str) -> str:
    """The experience as it stands in a library: `Name: sentence (#key)`."""
    return f"{advice(world, key).name}: {sentence(world, key)}"


def keys_in(text: str) -> list[str]:
    """The experiences a text holds, each once, in order."""
    return list(dict.fromkeys(MARKER.findall(text)))
