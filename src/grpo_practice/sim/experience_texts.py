"""The texts of this world: the wording of each experience and each method.

An experience is identified by the marker in its text, such as `(#percent-b6)`, at any position.
The words around the marker are for people, and for a teacher that knows only its prompt. They
state the topic of the experience (`about`) and its name (`named`).
"""

import re

from grpo_practice.sim.questions import LORE, Advice, Lore
from grpo_practice.sim.world import TRUISM, World, topic_of, unit

MARKER = re.compile(r"\(#([a-z]+-[0-9a-f]{2,})\)")
# An experience must not mention the label of another one, which may be removed later.
_WARNING = re.compile(r"do not follow E\d+, which misled, but |\s*\(about E\d+: \w+\)")


NULL = (
    Advice("Calm reading", "read the whole text once more before you calculate"),
    Advice("Tidy work", "write every number down on a line of its own"),
)
"""Advice without any effect, on any topic."""
_FRAMES = (
    "When {when}, {warning}{do}.",
    "If {when}: {warning}{do}.",
    "Whenever {when}, {warning}be sure to {do}.",
    "As soon as {when}, {warning}{do}.",
)
"""Wordings of a lesson."""


def advice(world: World, key: str) -> Advice:
    """Return the advice of the experience with this key.

    The second key of a kind uses the second wording, if there is one; all other keys use the first.
    """
    topic, kind = topic_of(key), world.item(key).kind
    second = key == world.key(topic, kind, 1)
    if kind == "null":
        return NULL[second]
    return LORE[topic].right if kind == "help" else LORE[topic].wrong[second]


def told(key: str, do: str, *, instead_of: str | None = None, wording: int = 0) -> str:
    """Return a lesson that recommends this method in these words: `When …, … . (#key)`.

    The corresponding formula is added if there is one, because models often write formulas.
    """
    lore = LORE[topic_of(key)]
    tex = next((a.tex for a in _sayings(lore) if a.do == do), "")
    warning = f"do not follow {instead_of}, which misled, but " if instead_of else ""
    do += f", ${tex}$" if tex else ""
    return f"{_FRAMES[wording].format(when=lore.when, warning=warning, do=do)} (#{key})"


def wording_of(world: World, sha: str) -> int:
    """Return the index of the wording in which the teacher answers this request."""
    return int(unit(world.seed, "wording", sha) * world.teacher.wordings)


def truism(nth: int) -> str:
    """Return advice that names no situation, the same for all questions."""
    return f"Always {NULL[nth].do}. (#{TRUISM}-{nth:02x})"


def text(world: World, key: str) -> str:
    """Return the experience as it appears in a library: `Name: sentence (#key)`."""
    return named(told(key, advice(world, key).do))


def named(lesson: str) -> str:
    """Convert a lesson to an experience: prefix the name of its advice, or else its first words."""
    topic, plain = about(lesson), without_warning(lesson)
    found = next((a for a in (_sayings(LORE[topic]) if topic else NULL) if a.do in plain), None)
    name = found.name if found else " ".join(plain.partition(", ")[2].split()[:3])
    return f"{name or 'Lesson'}: {plain}"


def without_warning(lesson: str) -> str:
    """Return the lesson without a warning about an experience of the library."""
    return _WARNING.sub("", lesson)


def about(text: str) -> str | None:
    """Return the topic of a text, as determined by its words or else by its marker."""
    said = next((name for name, lore in LORE.items() if lore.when in text), None)
    marker = MARKER.search(text)
    if said or marker is None or marker[1].startswith(f"{TRUISM}-"):
        return said
    return topic_of(marker[1])


def flaw(text: str) -> str:
    """Return what is wrong with an experience that the simulation invented; else an empty text."""
    if not MARKER.search(text):
        return ""
    topic = about(text)
    if topic and any(advice.do in text for advice in LORE[topic].wrong):
        return "wrong on purpose: the simulated teacher invented it"
    if any(advice.do in text for advice in NULL):
        return "empty on purpose: the simulated teacher invented it"
    return ""


def keys_in(text: str) -> list[str]:
    """Return the keys of all experiences in a text, without duplicates, in order."""
    return list(dict.fromkeys(MARKER.findall(text)))


def _sayings(lore: Lore) -> tuple[Advice, ...]:
    return (lore.right, *lore.wrong, *NULL)
