r"""Whether a text gives the answer of a question away.

An answer that many questions share is a label: naming it teaches, and gives nothing away. One that
hardly any other question shares is guarded: against the lessons of its own question, and against
texts that hold it as an answer ("the answer is 714", `\boxed{714}`).
"""

import asyncio
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grpo_practice.practice.answer_text import Key, Said, key_of, numeric, parts_of, significant
from grpo_practice.types import Answer, Quarantine
from grpo_practice.verify.answers import gold_texts

if TYPE_CHECKING:  # slow to import
    import numpy as np
    from numpy.typing import NDArray

FEW = 2
"""Questions that may share an answer, and it is still one of few …"""
FEW_WORDS = 0.01
"""… or this share of all questions, where that is more …"""
FEW_NUMBERS = 0.05
"""… and of answers with a digit: 5 is the answer of many questions without being a label."""
LABELS = 0.5
"""Answers without a digit are labels, the rare ones too, where less than this share of the
questions have one of their own …"""
RARE = 3
"""… and these are at most so many for each answer that is shared: 100 names among questions with
three labels are names …"""
RARE_AT_LEAST = 5
"""… but so few tell nothing."""
LETTERS = 8
"""Letters from which an answer is too telling to stand anywhere in a lesson of its question …"""
WORDS = 3
"""… and words, or characters in writing without spaces …"""
DIGITS = 3
"""… and significant digits: 714 and 3/16, but neither 180 nor 1/2 …"""
SYMBOLS = 6
"""… and symbols of a formula."""
RUN = 8
"""Words in a row that a text shares with a long answer only when it repeats it."""

_OWN = Quarantine("gives_answer_away", "it gives away the answer of its own question")
_OTHER = Quarantine("gives_answer_away", "it gives away an answer of this step")
_DICTATED = Quarantine("dictates_answer", "it dictates an answer")


class AnswerGuard:
    """Knows which answers of a run's dataset are labels, and which would be given away.

    Args:
        answers: The answers of the whole dataset, each with how many questions have it.
        told: What the agent is told anyway; a label that stands there is no secret.
    """

    def __init__(self, answers: Iterable[tuple[Answer, int]], told: str = "") -> None:
        words, numbers = _Shares(), _Shares()
        for answer, questions in answers:
            for part in {part for text in gold_texts(answer) for part in parts_of(text)}:
                (numbers if numeric(part) else words).add(part, questions)
        self._told = Said(told)
        by_word, by_number = words.counted(), numbers.counted()
        self._labels = by_word.shared(FEW_WORDS) | by_number.shared(FEW_NUMBERS)
        most = max(RARE_AT_LEAST, RARE * (by_word.different - by_word.rare))
        self._all_words = by_word.rare < LABELS * by_word.total and by_word.rare <= most
        n = by_number.total
        self._all_numbers = by_number.different <= min(n / 2, 2 * n**0.5)

    def of(self, answers: Sequence[Answer]) -> "StepGuard":
        """Return the guard of one step. Index of `answers` = slot."""
        texts = [(slot, text) for slot, gold in enumerate(answers) for text in gold_texts(gold)]
        parts = {text: parts_of(text) for _, text in texts}
        words = {p: p for found in parts.values() for p in found if len("".join(p)) > 2}
        # Answers in words that the agent is told anyway.
        told = {p for *_, p in self._told.runs(words) if not numeric(p)}
        golds, labels = dict[Key, _Gold](), dict[Key, Key]()
        for slot, text in texts:
            key = key_of(text)
            if key and all(part in told or self._is_label(part) for part in parts[text]):
                labels[key] = key
            elif key:
                golds.setdefault(key, _Gold(key, parts[text])).slots.add(slot)
        return StepGuard(golds, labels)

    def _is_label(self, part: Key) -> bool:
        """Return True when more than a few questions share the answer, or most share theirs."""
        return hash(part) in self._labels or (
            self._all_numbers if numeric(part) else self._all_words
        )


class LazyGuard:
    """A guard that is made when a step first asks for it.

    Args:
        make: Reads and counts the answers of the whole dataset: seconds, where it is large.
    """

    def __init__(self, make: Callable[[], AnswerGuard]) -> None:
        self._make = make
        self._made: AnswerGuard | None = None
        self._lock = asyncio.Lock()

    async def of(self, answers: Sequence[Answer]) -> "StepGuard":
        """Return the guard of one step. Index of `answers` = slot."""
        async with self._lock:
            if self._made is None:
                self._made = await asyncio.to_thread(self._make)
        return self._made.of(answers)


class _Shares:
    """Counts questions by answer, of which it keeps a hash: there may be a million answers."""

    def __init__(self) -> None:
        self._hashes, self._questions = array("q"), array("q")

    def add(self, part: Key, questions: int) -> None:
        """Count the questions that have the answer."""
        self._hashes.append(hash(part))
        self._questions.append(questions)

    def counted(self) -> "_Counted":
        """Return the counts of different answers."""
        import numpy as np

        order = np.argsort(hashes := np.frombuffer(self._hashes, np.int64))
        hashes, questions = hashes[order], np.frombuffer(self._questions, np.int64)[order]
        first = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]][: len(hashes)])
        return _Counted(hashes[first], np.add.reduceat(questions, first) if len(first) else first)


@dataclass(frozen=True, slots=True)
class _Counted:
    """Different answers, and how many questions have each."""

    hashes: "NDArray[np.int64]"
    questions: "NDArray[np.int64]"
    """Same index as `hashes`."""

    @property
    def total(self) -> int:
        """Sum over the answers."""
        return int(self.questions.sum())

    @property
    def different(self) -> int:
        """Number of different answers."""
        return len(self.hashes)

    @property
    def rare(self) -> int:
        """Number of answers of one question alone."""
        return int((self.questions == 1).sum())

    def shared(self, share: float) -> frozenset[int]:
        """Return the hashes of the answers of more than a few questions."""
        most = max(FEW, share * self.total)
        return frozenset(self.hashes[self.questions > most].tolist())


@dataclass(frozen=True, slots=True)
class _Gold:
    """One answer that is guarded."""

    key: Key
    parts: Sequence[Key]
    slots: set[int] = field(default_factory=set)
    """The questions of the step that have it."""

    @property
    def telling(self) -> bool:
        """True when its mere standing in a lesson of its question gives it away."""
        words = [t for t in self.key if t[0].isalpha() and (len(t) > 1 or not t.isascii())]
        return (
            sum(map(len, words)) >= LETTERS
            or len(words) >= WORDS
            or len(significant(self.key)) >= DIGITS
            or len(self.key) >= SYMBOLS
        )

    @property
    def formula(self) -> bool:
        """True for numbers, symbols and single letters: they may be part of a larger formula."""
        return any((len(t) == 1 and t.isascii()) or not t[0].isalpha() for t in self.key)


class StepGuard:
    """Says of a text whether it gives an answer of a step away."""

    def __init__(self, golds: Mapping[Key, _Gold], labels: Mapping[Key, Key]) -> None:
        self._golds, self._labels = golds, labels
        self._lists = [gold for gold in golds.values() if len(gold.parts) > 1 and gold.telling]
        self._runs = dict[Key, set[int]]()
        for key, gold in golds.items():
            for i in range(len(key) - RUN + 1 if len(key) > RUN else 0):
                self._runs.setdefault(key[i : i + RUN], set()).update(gold.slots)

    def why_not(self, text: str, own: Collection[int]) -> Quarantine | None:
        """Return what is wrong with the text of an experience; None when it gives nothing away.

        `own` are the slots of the questions that it was learnt from.
        """
        said, own = Said(text), set(own)
        for first, end, gold in said.runs(self._golds):
            if gold.formula and said.goes_on(first, end):
                continue
            if gold.slots & own and (gold.telling or said.states(first, end)):
                return _OWN
            if said.as_answer(first) and (gold.telling or not said.conditional(first)):
                return _OWN if gold.slots & own else _OTHER
        if self._repeated(said, own):
            return _OWN
        dictated = any(said.dictates(*run) for *run, _ in said.runs(self._labels))
        return _DICTATED if dictated else None

    def _repeated(self, said: Said, own: set[int]) -> bool:
        """Return True for all parts of a list in any order, and for a piece of a long answer."""
        if any(slots & own for _, _, slots in said.runs(self._runs)):
            return True
        mine = [gold for gold in self._lists if gold.slots & own]
        parts = {part: part for gold in mine for part in gold.parts}
        found = {part for _, _, part in said.runs(parts)}
        return any(found.issuperset(gold.parts) for gold in mine)
