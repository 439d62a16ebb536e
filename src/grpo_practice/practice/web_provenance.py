"""The web sites behind an experience: those its groups read, and whether two of them agree.

Whoever writes a page that an agent reads could otherwise write into the agent's instructions.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from grpo_practice.prompts.web import web_texts
from grpo_practice.text import CJK
from grpo_practice.types import Group, Operation, Quarantine

if TYPE_CHECKING:
    from publicsuffixlist import PublicSuffixList

PHRASE = 4
"""Words in a row that two texts do not share by chance."""
PRECISE = 2
"""The same, where one of them holds a digit."""
UNSPACED = 8
"""The same, of characters in writing without spaces."""

_UNSPACED = re.compile(f"[{CJK}]")
_WORD = re.compile(rf"[{CJK}]|[^\W{CJK}]+")

Phrase = tuple[str, ...]
Pages = Mapping[str, Set[str]]
"""Site → the texts that were read there."""


def read_in(group: Group) -> Pages:
    """Return the sites that the group's rollouts read, in order of their names."""
    found = defaultdict[str, set[str]](set)
    for rollout in group.rollouts:
        for message in rollout.played.transcript:
            content = message.get("content")
            if message.get("role") == "tool" and isinstance(content, str):
                for host, text in web_texts(content):
                    found[site_of(host)].add(text)
    return dict(sorted(found.items()))


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
    merged: Sequence[Operation], proposed: Sequence[Pages], own: Iterable[str]
) -> tuple[Operation, ...]:
    """Give the merged operations the sites behind them; quarantine what one site alone says.

    Takes a second for each 20 MB of pages.

    Args:
        merged: What the merge made of the proposals.
        proposed: For each of those, as the merge was shown them, what its group had read.
        own: Texts that are no page's: questions, instructions, the library.
    """
    if not any(proposed):
        return tuple(merged)
    known = set[Phrase]().union(*map(phrases, own))
    wanted = [phrases(op.text or "") - known for op in merged]
    texts = {text for pages in proposed for said in pages.values() for text in said}
    found = _phrases_by_text(texts, set[Phrase]().union(*wanted))
    return tuple(
        _checked(op, _pages_behind(op, proposed), sorted(said), found)
        for op, said in zip(merged, wanted, strict=True)
    )


def phrases(text: str) -> set[Phrase]:
    """Return the runs of words in a text by which it can be known again."""
    words = _words(text)
    runs = (_run(words, i, _long(word)) for i, word in enumerate(words))
    short = (_run(words, i, PRECISE) for i in range(len(words)))
    precise = {run for run in short if any(c.isdigit() for word in run for c in word)}
    return {run for run in runs if run} | precise


def _run(words: Sequence[str], i: int, n: int) -> Phrase:
    """Return `n` words from there on; none where there are not so many."""
    return tuple(words[i : i + n]) if i + n <= len(words) else ()


def _long(word: str) -> int:
    return UNSPACED if _UNSPACED.match(word) else PHRASE


def _words(text: str) -> list[str]:
    """Split into words without case, compatibility forms and characters that show nothing."""
    if not text.isascii():
        plain = unicodedata.normalize("NFKC", text)
        text = "".join(c for c in plain if unicodedata.category(c) not in ("Cf", "Mn"))
    return _WORD.findall(text.casefold())


def _phrases_by_text(texts: Iterable[str], wanted: Set[Phrase]) -> dict[str, set[Phrase]]:
    """Return text → which of the phrases stand in it."""
    first = {phrase[0] for phrase in wanted}
    found = {}
    for text in texts:
        words = _words(text)
        starts = [i for i, word in enumerate(words) if word in first]
        runs = (_run(words, i, n) for i in starts for n in (_long(words[i]), PRECISE))
        found[text] = {run for run in runs if run in wanted}
    return found


def _pages_behind(op: Operation, proposed: Sequence[Pages]) -> Pages:
    """Return what the groups behind a merged operation read; all of them where it does not say."""
    places = [i for i in op.from_ops if i < len(proposed)] or range(len(proposed))
    found = defaultdict[str, set[str]](set)
    for i in places:
        for site, texts in proposed[i].items():
            found[site] |= texts
    return dict(sorted(found.items()))


def _checked(
    op: Operation, pages: Pages, said: Sequence[Phrase], found: Mapping[str, Set[Phrase]]
) -> Operation:
    if op.refused is not None or op.op not in ("ADD", "UPDATE") or not pages:
        return op
    op = replace(op, domains=tuple(pages))
    why = _quarantine(pages, said, found)
    return op.set_aside(why) if why else op


def _quarantine(
    pages: Pages, said: Sequence[Phrase], found: Mapping[str, Set[Phrase]]
) -> Quarantine | None:
    if len(pages) == 1:
        site = next(iter(pages))
        return Quarantine("one_site", f"it is distilled from pages of one site alone: {site}")
    for phrase in said:
        sites = [site for site, texts in pages.items() if any(phrase in found[t] for t in texts)]
        if len(sites) == 1:
            repeated = f"{' '.join(phrase)!r} ({sites[0]})"
            return Quarantine("one_site", f"it repeats what one site alone says: {repeated}")
    return None
