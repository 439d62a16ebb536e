"""Words of the people of the world: of each experience and of each method.

An experience is recognised by the marker in its text, `(#percent-b6)`, wherever it stands. The
words around it are for people, and for a teacher that knows no more than it reads: they say what
the experience is about (`about`) and what it is called (`named`).
"""

import re

from grpo_practice.sim.topics import LORE, Advice, Lore
from grpo_practice.sim.world import World, topic_of

MARKER = re.compile(r"\(#([a-z]+-[0-9a-f]{2,})\)")
_WARNING = re.compile(r"do not follow E\d+, which misled, but |\s*\(about E\d+: \w+\)")


NULL = (
    Advice("Calm reading", "read the whole text once more before you calculate"),
    Advice("Tidy work", "write every number down on a line of its own"),
)
"""Advice that changes nothing, on any topic."""


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


def keys_in(text: str) -> list[str]:
    """Return the keys of the experiences a text holds, each once, in order."""
    return list(dict.fromkeys(MARKER.findall(text)))


def _sayings(lore: Lore) -> tuple[Advice, ...]:
    return (lore.right, *lore.wrong, *NULL)
