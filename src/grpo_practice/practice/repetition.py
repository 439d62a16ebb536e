"""Detects sentences copied word for word from an attempt, which shows that nothing was compared.

An answer or a tool's result may ask for a sentence to be learnt, and a teacher may obey. The
sentence is therefore kept out of the library until a comparison of attempts that do not contain it
proposes it as well. As in `web_provenance`, the sources that a merge claims are ignored.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from grpo_practice.core.types import Operation, Quarantine
from grpo_practice.practice.web_provenance import (
    UNSPACED_WORD,
    Phrase,
    phrases_by_text,
    words_of,
)

LEAST = 6
"""Minimum number of words in a sentence that is checked; a shorter sentence may appear anywhere."""
RUN = 16
"""Number of consecutive words that show that a longer sentence was copied; names of methods are
shorter.
"""
UNSPACED = 2
"""Number of characters that count as one word in scripts without spaces."""

_SENTENCE = re.compile(r"(?<=[.!?;])\s+|(?<=[\u3002\uff01\uff1f\uff1b])")
_NAME_END = re.compile(r":\s|\uff1a")
_CLAUSE = re.compile(r"(?<=[.!?;:])\s+|(?<=[\u3002\uff01\uff1f\uff1b\uff1a])")


def without_repeated(
    merged: Sequence[Operation],
    attempts: Mapping[int, Sequence[str]],
    proposed: Mapping[int, Sequence[str]],
    own: Iterable[str],
    *,
    hold: bool = False,
) -> tuple[Operation, ...]:
    """Quarantine texts with a sentence from an attempt that no independent comparison proposed.

    `attempts` and `proposed` are texts by slot. Texts in `own` (questions, instructions, the
    library) may be repeated. With `hold`, the reason is recorded but the operation is not
    quarantined.
    """
    runs = {op.text: _runs(op.text) for op in merged if op.text and op.refused is None}
    wanted = set[Phrase]().union(*runs.values())
    wanted -= _found(own, wanted)
    held = {slot: _found(texts, wanted) for slot, texts in attempts.items()}
    said = {slot: _found(texts, wanted) for slot, texts in proposed.items()}

    def checked(op: Operation) -> Operation:
        for run in runs.get(op.text or "", ()) if op.refused is None else ():
            repeats = {slot for slot, found in held.items() if run in found}
            if repeats and not any(run in said[slot] for slot in said.keys() - repeats):
                why = Quarantine("repeats_attempt", f"it repeats an attempt: {' '.join(run)!r}")
                return replace(op, why=why.sentence) if hold else op.set_aside(why)
        return op

    return tuple(map(checked, merged))


def _found(texts: Iterable[str], wanted: Set[Phrase]) -> set[Phrase]:
    return set[Phrase]().union(*phrases_by_text(texts, wanted).values())


def _runs(text: str) -> list[Phrase]:
    """Return the runs of words by which an experience's sentences are recognised in a text."""
    found = list[Phrase]()
    # The teacher may put its own name, or a clause and a colon, before a copied sentence, so
    # each clause is checked. But a copied sentence may itself contain colons between parts too
    # short to check, so whole sentences after the name are checked too.
    after_name = _NAME_END.split(text, maxsplit=1)[-1]
    for part in (*_SENTENCE.split(after_name), *_CLAUSE.split(text)):
        words = words_of(part)
        scale = UNSPACED if words and UNSPACED_WORD.match(words[0]) else 1
        if len(words) >= LEAST * scale:
            n = min(RUN * scale, len(words))
            found += [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return found
