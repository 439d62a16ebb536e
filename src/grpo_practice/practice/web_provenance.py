"""Traces experiences to the web sites that their groups read; checks that two sites agree.

Without this check, the author of a page that an agent reads could write into the agent's
instructions. All checks use only the pages that groups read and the texts they proposed. The claims
that the merging model makes about an operation's sources are ignored, because it saw texts that
such a page may have dictated.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from grpo_practice.core.calls import Message
from grpo_practice.core.fences import web_texts
from grpo_practice.core.text import CJK
from grpo_practice.core.types import Group, Operation, Quarantine, Rollout
from grpo_practice.rollout.agents.tool_agent import calls_in

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

PHRASE = 4
"""Number of consecutive words that two texts do not share by chance."""
PRECISE = 2
"""The same number for runs of words that contain a digit."""
UNSPACED = 8
"""The same number in characters, for scripts without spaces."""
CARRIED = 0.25
"""Minimum share of a merged text that a group must have, relative to the group with the largest
share, to count as its carrier.
"""

UNSPACED_WORD = re.compile(f"[{CJK}]")
_WORD = re.compile(rf"[{CJK}]|[^\W{CJK}]+")

Phrase = tuple[str, ...]
Pages = Mapping[str, Set[str]]
"""Site → texts that were read from it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A group as a source of the merge: the texts it proposed and the pages it read."""

    texts: Sequence[str]
    pages: Pages


def read_in(group: Group, tools: Collection[str]) -> Pages:
    """Return the pages that the group's rollouts read, by site, sorted by name.

    `tools` are the tools whose results are web pages; results from other tools are not checked.
    """
    found = defaultdict[str, set[str]](set)
    for rollout in group.rollouts:
        for content in _results(rollout, tools):
            for host, text in web_texts(content):
                found[site_of(host)].add(text)
    return dict(sorted(found.items()))


def _results(rollout: Rollout, tools: Collection[str]) -> Iterator[str]:
    """Yield the results of calls to these tools."""
    called = list[str]()
    for message in rollout.played.transcript:
        if message.get("role") == "assistant":
            called = [_name(call) for call in calls_in(message)]
        content = message.get("content")
        if message.get("role") != "tool" or not isinstance(content, str):
            continue
        # The answer may be the result of any call of the last turn.
        if "tool_call_id" not in message:
            names, called = called, []
        else:
            # Match by position, not by id, because models reuse ids, and results come in the order
            # of the calls.
            names, called = called[:1], called[1:]
        if any(name in tools for name in names):
            yield content


def _name(call: Message) -> str:
    function = call.get("function")
    return str(function.get("name")) if isinstance(function, dict) else ""


def site_of(host: str) -> str:
    """Return the part of a host name that has a single owner: `b.co.uk` for `a.b.co.uk`."""
    # The owner of one IPv6 address usually owns the whole network.
    if ":" in host:
        return ":".join(host.strip("[]").split(":")[:3])
    if host.replace(".", "").isdigit():
        return host
    return _public_suffixes().privatesuffix(host) or host


@cache
def _public_suffixes() -> "PublicSuffixList":
    from publicsuffixlist import PublicSuffixList  # loading the list takes 65 ms

    # Ignore private suffixes, because names below a hosting service (github.io) are free, so two of
    # them would support each other.
    return PublicSuffixList(only_icann=True)


def supported(
    merged: Sequence[Operation],
    groups: Sequence[Source],
    own: Iterable[str],
    *,
    trusted: Iterable[str] = (),
    hold: bool = False,
) -> tuple[Operation, ...]:
    """Add the sites behind each merged operation; quarantine text that only one site supports.

    Text from a `trusted` site is kept. With `hold`, the reason is recorded but the operation is not
    quarantined, since a person decides on it.

    This takes a second per 20 MB of pages. Any group whose proposals the merge saw may be the
    source of an operation. Texts in `own` (questions, instructions, the library) are not attributed
    to a page.
    """
    if not any(group.pages for group in groups):
        return tuple(merged)
    known = set[Phrase]().union(*map(phrases, own))
    wanted = [phrases(op.text or "") - known for op in merged]
    texts = {text for group in groups for page in group.pages.values() for text in page}
    found = phrases_by_text(texts, set[Phrase]().union(*wanted))
    step = _Step(groups, found, frozenset(map(site_of, trusted)), hold)
    # Sorted, because the reason names a phrase and must not depend on the order of a set.
    return tuple(_checked(op, step, sorted(said)) for op, said in zip(merged, wanted, strict=True))


@dataclass(frozen=True, slots=True)
class _Step:
    """The groups of a step whose proposals were merged, and the phrases found on their pages."""

    groups: Sequence[Source]
    found: Mapping[str, Set[Phrase]]
    """Text of a page → phrases of merged operations in it."""
    trusted: Set[str]
    """Sites whose text is kept without support from another site."""
    hold: bool

    def carriers(self, text: str) -> Sequence[Source]:
        """Return the groups that a merged text comes from, judging by its words.

        Each word counts as one, divided among the groups that proposed it. A group that has less
        than `CARRIED` of the leading group's count is not a carrier: it merely uses the same
        language. If no group has any of the words, all groups are returned.
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
        """Return the only site that contains the phrase; None if the phrase has other support.

        Several sites support each other. A group that proposed the phrase without reading the site
        is independent support as well.
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
    """Return the runs of words by which a text can be recognised."""
    words = words_of(text)
    runs = (
        _run(words, i, UNSPACED if UNSPACED_WORD.match(word) else PHRASE)
        for i, word in enumerate(words)
    )
    short = (_run(words, i, PRECISE) for i in range(len(words)))
    precise = {run for run in short if any(c.isdigit() for word in run for c in word)}
    return {run for run in runs if run} | precise


def _run(words: Sequence[str], i: int, n: int) -> Phrase:
    """Return the `n` words from index `i`; empty if fewer remain."""
    return tuple(words[i : i + n]) if i + n <= len(words) else ()


def words_of(text: str) -> list[str]:
    """Split a text into case-folded words, without compatibility forms and invisible characters."""
    if not text.isascii():
        plain = unicodedata.normalize("NFKC", text)
        text = "".join(c for c in plain if unicodedata.category(c) not in ("Cf", "Mn"))
    return _WORD.findall(text.casefold())


def phrases_by_text(texts: Iterable[str], wanted: Set[Phrase]) -> dict[str, set[Phrase]]:
    """Return text → phrases that occur in it."""
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
        return Quarantine("one_site", f"it is based on pages of a single site: {sites[0]}")
    for phrase in said:
        if site := step.only_site(phrase):
            repeated = f"{' '.join(phrase)!r} ({site})"
            return Quarantine("one_site", f"it repeats text from a single site: {repeated}")
    return None
