"""The web sites behind an experience: those its groups read, and whether two of them agree.

Whoever writes a page that an agent reads could otherwise write into the agent's instructions. All
of it is computed from what groups read and proposed: the model that merges was shown texts that
such a page may have dictated, so what it claims as the source of an operation counts for nothing.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from grpo_practice.agents.tool_agent import calls_in
from grpo_practice.calls import Message
from grpo_practice.prompts.web import web_texts
from grpo_practice.text import CJK
from grpo_practice.types import Group, Operation, Quarantine, Rollout

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

PHRASE = 4
"""Words in a row that two texts do not share by chance."""
PRECISE = 2
"""The same, where one of them holds a digit."""
UNSPACED = 8
"""The same, of characters in writing without spaces."""
CARRIED = 0.25
"""Least share of a merged text, relative to the group with most of it, that a group carries."""

UNSPACED_WORD = re.compile(f"[{CJK}]")
_WORD = re.compile(rf"[{CJK}]|[^\W{CJK}]+")

Phrase = tuple[str, ...]
Pages = Mapping[str, Set[str]]
"""Site → the texts that were read there."""


@dataclass(frozen=True, slots=True)
class Source:
    """A group as a source of what the merge makes: what it proposed, and what it had read."""

    texts: Sequence[str]
    pages: Pages


def read_in(group: Group, tools: Collection[str]) -> Pages:
    """Return the sites that the group's rollouts read, in order of their names.

    `tools` are those whose results are pages; other tools may print what they like.
    """
    found = defaultdict[str, set[str]](set)
    for rollout in group.rollouts:
        for content in _results(rollout, tools):
            for host, text in web_texts(content):
                found[site_of(host)].add(text)
    return dict(sorted(found.items()))


def _results(rollout: Rollout, tools: Collection[str]) -> Iterator[str]:
    """Yield what calls of these tools brought."""
    called = list[str]()
    for message in rollout.played.transcript:
        if message.get("role") == "assistant":
            called = [_name(call) for call in calls_in(message)]
        content = message.get("content")
        if message.get("role") != "tool" or not isinstance(content, str):
            continue
        if "tool_call_id" not in message:  # the answer, by one of the calls of the last turn
            names, called = called, []
        else:
            # By place, not by id: models use an id twice, and results come in the calls' order.
            names, called = called[:1], called[1:]
        if any(name in tools for name in names):
            yield content


def _name(call: Message) -> str:
    function = call.get("function")
    return str(function.get("name")) if isinstance(function, dict) else ""


def site_of(host: str) -> str:
    """Return the part of a host's name that one owner has: `example.co.uk` of `a.example.co.uk`."""
    if ":" in host:  # who has one address of a network usually has all of it
        return ":".join(host.strip("[]").split(":")[:3])
    if host.replace(".", "").isdigit():
        return host
    return _public_suffixes().privatesuffix(host) or host


@cache
def _public_suffixes() -> "PublicSuffixList":
    from publicsuffixlist import PublicSuffixList  # reads its list, for 65 ms

    # The names below a hoster's (github.io) cost nothing: two of them would support each other.
    return PublicSuffixList(only_icann=True)


def supported(
    merged: Sequence[Operation],
    groups: Sequence[Source],
    own: Iterable[str],
    *,
    trusted: Iterable[str] = (),
    hold: bool = False,
) -> tuple[Operation, ...]:
    """Add the sites behind each merged operation; quarantine text of one site alone.

    Text of a `trusted` site is kept. With `hold`, an operation gets the reason but is not
    quarantined, since a person decides on it.

    Takes a second for each 20 MB of pages. Each group whose proposals the merge was shown may have
    brought any of it; texts of our `own` are no page's: questions, instructions, the library.
    """
    if not any(group.pages for group in groups):
        return tuple(merged)
    known = set[Phrase]().union(*map(phrases, own))
    wanted = [phrases(op.text or "") - known for op in merged]
    texts = {text for group in groups for page in group.pages.values() for text in page}
    found = phrases_by_text(texts, set[Phrase]().union(*wanted))
    step = _Step(groups, found, frozenset(map(site_of, trusted)), hold)
    return tuple(_checked(op, step, sorted(said)) for op, said in zip(merged, wanted, strict=True))


@dataclass(frozen=True, slots=True)
class _Step:
    """The groups of a step whose proposals were merged, and which phrases stand on their pages."""

    groups: Sequence[Source]
    found: Mapping[str, Set[Phrase]]
    """Text of a page → the phrases of merged operations in it."""
    trusted: Set[str]
    """Sites whose text is kept without the support of another."""
    hold: bool

    def carriers(self, text: str) -> Sequence[Source]:
        """Return the groups that a merged text is from, by its words; all where none has any.

        Each word counts one, divided among the groups that proposed it. A group with less than a
        share of what the first of them has only uses the same language.
        """
        words = [set(words_of(" ".join(group.texts))) for group in self.groups]
        counts = [0.0] * len(words)
        for word in set(words_of(text)):
            users = [i for i, used in enumerate(words) if word in used]
            for i in users:
                counts[i] += 1 / len(users)
        least = CARRIED * max(counts)
        return [group for group, n in zip(self.groups, counts, strict=True) if n >= least]

    def only_site(self, phrase: Phrase) -> str | None:
        """Return the site that alone says the phrase; None where several do, or a group by itself.

        A group that did not read the site and proposed the phrase has it from elsewhere.
        """
        sites = {
            site
            for group in self.groups
            for site, texts in group.pages.items()
            if any(phrase in self.found[text] for text in texts)
        }
        if len(sites) != 1 or sites <= self.trusted:
            return None
        (site,) = sites
        others = (text for g in self.groups if site not in g.pages for text in g.texts)
        return None if any(phrase in phrases(text) for text in others) else site


def phrases(text: str) -> set[Phrase]:
    """Return the runs of words in a text by which it can be known again."""
    words = words_of(text)
    runs = (_run(words, i, _long(word)) for i, word in enumerate(words))
    short = (_run(words, i, PRECISE) for i in range(len(words)))
    precise = {run for run in short if any(c.isdigit() for word in run for c in word)}
    return {run for run in runs if run} | precise


def _run(words: Sequence[str], i: int, n: int) -> Phrase:
    """Return `n` words from there on; none where there are not so many."""
    return tuple(words[i : i + n]) if i + n <= len(words) else ()


def _long(word: str) -> int:
    return UNSPACED if UNSPACED_WORD.match(word) else PHRASE


def words_of(text: str) -> list[str]:
    """Split into words without case, compatibility forms and characters that show nothing."""
    if not text.isascii():
        plain = unicodedata.normalize("NFKC", text)
        text = "".join(c for c in plain if unicodedata.category(c) not in ("Cf", "Mn"))
    return _WORD.findall(text.casefold())


def phrases_by_text(texts: Iterable[str], wanted: Set[Phrase]) -> dict[str, set[Phrase]]:
    """Return text → which of the phrases stand in it."""
    lengths = defaultdict[str, set[int]](set)
    for phrase in wanted:
        lengths[phrase[0]].add(len(phrase))
    found = {}
    for text in texts:
        words = words_of(text)
        starts = ((i, n) for i, word in enumerate(words) for n in lengths.get(word, ()))
        runs = (tuple(words[i : i + n]) for i, n in starts)
        found[text] = {run for run in runs if run in wanted}
    return found


def _checked(op: Operation, step: _Step, said: Sequence[Phrase]) -> Operation:
    if op.refused is not None or op.op not in ("ADD", "UPDATE"):
        return op
    sites = sorted({site for group in step.carriers(op.text or "") for site in group.pages})
    op = replace(op, domains=tuple(sites))
    why = _quarantine(sites, step, said)
    if why is None:
        return op
    return replace(op, why=why.sentence) if step.hold else op.set_aside(why)


def _quarantine(sites: Sequence[str], step: _Step, said: Sequence[Phrase]) -> Quarantine | None:
    if len(sites) == 1 and sites[0] not in step.trusted:
        return Quarantine("one_site", f"it is distilled from pages of one site alone: {sites[0]}")
    for phrase in said:
        if site := step.only_site(phrase):
            repeated = f"{' '.join(phrase)!r} ({site})"
            return Quarantine("one_site", f"it repeats what one site alone says: {repeated}")
    return None
