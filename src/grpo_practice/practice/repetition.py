"""Sentences that an attempt holds word for word: a teacher that repeats one has compared nothing.

An answer or a tool's result may ask for a sentence to be learnt, and a teacher may obey. So a
sentence stays out until a comparison whose attempts do not hold it comes to it as well. As for
pages (`web_provenance`), nothing here rests on the sources that a merge claims.
"""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

from grpo_practice.practice.web_provenance import (
    UNSPACED_WORD,
    Phrase,
    phrases_by_text,
    words_of,
)
from grpo_practice.types import Operation, Quarantine

LEAST = 6
"""Words of a sentence that is looked at. A shorter one may stand anywhere."""
RUN = 16
"""Words in a row of a longer sentence that are no coincidence: methods are named in fewer."""
UNSPACED = 2
"""Characters that count as one word in writing without spaces."""

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
    """Quarantine texts with a sentence of an attempt that no other comparison came to.

    `attempts` and `proposed` are texts by slot; those of our `own` may be repeated: questions,
    instructions, the library. With `hold`, an operation gets the reason but is not quarantined.
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
    """Return the runs of words by which the sentences of an experience can be known again."""
    found = list[Phrase]()
    # The name of an experience is the teacher's, and so may be any clause before a colon; but a
    # copied sentence may also hold colons between parts that are too short to look at.
    after_name = _NAME_END.split(text, maxsplit=1)[-1]
    for part in (*_SENTENCE.split(after_name), *_CLAUSE.split(text)):
        words = words_of(part)
        scale = UNSPACED if words and UNSPACED_WORD.match(words[0]) else 1
        if len(words) >= LEAST * scale:
            n = min(RUN * scale, len(words))
            found += [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return found
