r"""Checks whether a text reveals the answer to a question.

An answer shared by many questions is a label: mentioning it teaches something and reveals nothing.
An answer shared by hardly any other question is guarded in two ways: lessons learnt from its own
question must not reveal it, and no text may state it as an answer ("the answer is 714",
`\boxed{714}`).
"""

import asyncio
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from grpo_practice.core.types import Answer, Quarantine
from grpo_practice.practice.answer_text import (
    Key,
    SearchedText,
    key_of,
    numeric,
    parts_of,
    significant,
)
from grpo_practice.verify.answers import gold_texts

if TYPE_CHECKING:  # importing numpy is slow
    import numpy as np
    from numpy.typing import NDArray

FEW = 2
"""Number of questions above which a shared answer can be a label. If one of the shares below
amounts to more questions, that share applies instead.
"""
FEW_WORDS = 0.01
"""Share of all questions above which an answer in words is a label."""
FEW_NUMBERS = 0.05
"""Share of all questions above which an answer with a digit is a label: 5 is the answer to many
questions without being a label.
"""
LABELS = 0.5
"""Share of questions with a unique answer below which rare answers can be labels too: every answer
without a digit is then a label. `RARE` and `RARE_AT_LEAST` restrict this.
"""
RARE = 3
"""Maximum number of unique answers per shared answer if unique answers are to count as labels: 100
different names among questions with three labels are names, not labels.
"""
RARE_AT_LEAST = 5
"""Number of unique answers that may always count as labels, whatever `RARE` says, since so few
prove nothing.
"""
LETTERS = 8
"""Minimum number of letters of an answer that reveals too much to appear anywhere in a lesson from
its own question. An answer with `WORDS`, `DIGITS` or `SYMBOLS` reveals too much as well.
"""
WORDS = 3
"""Minimum number of words, or of characters in scripts without spaces, of an answer that reveals
too much.
"""
DIGITS = 3
"""Minimum number of significant digits of an answer that reveals too much: 714 and 3/16 do, 180
and 1/2 do not.
"""
SYMBOLS = 6
"""Minimum number of symbols of a formula that reveals too much."""
RUN = 8
"""Number of consecutive words shared with a long answer that show that a text copies it."""

_OWN = Quarantine("gives_answer_away", "it gives away the answer of its own question")
_OTHER = Quarantine("gives_answer_away", "it gives away an answer of this step")
_DICTATED = Quarantine("dictates_answer", "it dictates an answer")


class AnswerGuard:
    """Decides which answers in a run's dataset are labels and which must not be revealed.

    Args:
        answers: Answers in the whole dataset, each with the number of questions that have it.
        told: Text that the agent receives anyway; a label in this text is not a secret.
    """

    def __init__(self, answers: Iterable[tuple[Answer, int]], told: str = "") -> None:
        words, numbers = _Shares(), _Shares()
        for answer, questions in answers:
            for part in {part for text in gold_texts(answer) for part in parts_of(text)}:
                (numbers if numeric(part) else words).add(part, questions)
        self._told = SearchedText(told)
        by_word, by_number = words.counted(), numbers.counted()
        self._labels = by_word.shared(FEW_WORDS) | by_number.shared(FEW_NUMBERS)
        most = max(RARE_AT_LEAST, RARE * (by_word.different - by_word.rare))
        self._all_words = by_word.rare < LABELS * by_word.total and by_word.rare <= most
        n = by_number.total
        self._all_numbers = by_number.different <= min(n / 2, 2 * n**0.5)

    def of(self, answers: Sequence[Answer]) -> "StepGuard":
        """Return the guard for one step. Index of `answers` = slot."""
        texts = [(slot, text) for slot, gold in enumerate(answers) for text in gold_texts(gold)]
        parts = {text: parts_of(text) for _, text in texts}
        # Answers of one or two letters ("a", "no") occur in any instructions, so their presence
        # proves nothing.
        words = {p: p for found in parts.values() for p in found if len("".join(p)) > 2}
        # Answers in words that the agent's instructions contain anyway.
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
        """Return True if more than a few questions share the answer, or most answers are shared."""
        return hash(part) in self._labels or (
            self._all_numbers if numeric(part) else self._all_words
        )


class LazyGuard:
    """Builds the guard when a step first requests it.

    Args:
        make: Reads and counts the answers of the whole dataset, which takes seconds if it is large.
    """

    def __init__(self, make: Callable[[], AnswerGuard]) -> None:
        self._make = make
        self._made: AnswerGuard | None = None
        self._lock = asyncio.Lock()

    async def of(self, answers: Sequence[Answer]) -> "StepGuard":
        """Return the guard for one step. Index of `answers` = slot."""
        async with self._lock:
            if self._made is None:
                self._made = await asyncio.to_thread(self._make)
        return self._made.of(answers)


class _Shares:
    """Counts questions per answer; keeps only hashes, since there may be a million answers."""

    def __init__(self) -> None:
        self._hashes, self._questions = array("q"), array("q")

    def add(self, part: Key, questions: int) -> None:
        """Add the number of questions that have the answer."""
        # Python salts hash() per process, so these must not be stored or sent.
        self._hashes.append(hash(part))
        self._questions.append(questions)

    def counted(self) -> "_Counted":
        """Return the counts per distinct answer."""
        import numpy as np

        order = np.argsort(hashes := np.frombuffer(self._hashes, np.int64))
        hashes, questions = hashes[order], np.frombuffer(self._questions, np.int64)[order]
        first = np.flatnonzero(np.r_[True, hashes[1:] != hashes[:-1]][: len(hashes)])
        return _Counted(hashes[first], np.add.reduceat(questions, first) if len(first) else first)


@dataclass(frozen=True, slots=True)
class _Counted:
    """Distinct answers and the number of questions that have each."""

    hashes: "NDArray[np.int64]"
    questions: "NDArray[np.int64]"
    """Number of questions per answer, with the index of `hashes`."""

    @property
    def total(self) -> int:
        """Sum of `questions` over all answers."""
        return int(self.questions.sum())

    @property
    def different(self) -> int:
        """Number of distinct answers."""
        return len(self.hashes)

    @property
    def rare(self) -> int:
        """Number of answers that only one question has."""
        return int((self.questions == 1).sum())

    def shared(self, share: float) -> frozenset[int]:
        """Return the hashes of the answers that more than a few questions share."""
        most = max(FEW, share * self.total)
        return frozenset(self.hashes[self.questions > most].tolist())


@dataclass(frozen=True, slots=True)
class _Gold:
    """A guarded answer."""

    key: Key
    parts: Sequence[Key]
    slots: set[int] = field(default_factory=set)
    """Slots of the step's questions that have this answer."""

    @property
    def telling(self) -> bool:
        """True if a lesson from its own question reveals the answer by merely mentioning it."""
        words = [t for t in self.key if t[0].isalpha() and (len(t) > 1 or not t.isascii())]
        return (
            sum(map(len, words)) >= LETTERS
            or len(words) >= WORDS
            or len(significant(self.key)) >= DIGITS
            or len(self.key) >= SYMBOLS
        )

    @property
    def formula(self) -> bool:
        """True if the answer contains numbers, symbols or single letters, as larger formulas do."""
        return any((len(t) == 1 and t.isascii()) or not t[0].isalpha() for t in self.key)


class StepGuard:
    """Checks whether a text reveals an answer to a question in the step."""

    def __init__(self, golds: Mapping[Key, _Gold], labels: Mapping[Key, Key]) -> None:
        self._golds, self._labels = golds, labels
        self._lists = [gold for gold in golds.values() if len(gold.parts) > 1 and gold.telling]
        self._runs = dict[Key, set[int]]()
        for key, gold in golds.items():
            for i in range(len(key) - RUN + 1 if len(key) > RUN else 0):
                self._runs.setdefault(key[i : i + RUN], set()).update(gold.slots)

    def why_not(self, text: str, own: Collection[int]) -> Quarantine | None:
        """Return the reason to quarantine a text; None if it reveals no answer.

        `own` contains the slots of the questions that the experience was learnt from.
        """
        said, own = SearchedText(text), set(own)
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

    def _repeated(self, said: SearchedText, own: set[int]) -> bool:
        """Return True if the text contains all parts of a list or a piece of a long answer.

        The parts of a list may be in any order.
        """
        if any(slots & own for _, _, slots in said.runs(self._runs)):
            return True
        mine = [gold for gold in self._lists if gold.slots & own]
        parts = {part: part for gold in mine for part in gold.parts}
        found = {part for _, _, part in said.runs(parts)}
        return any(found.issuperset(gold.parts) for gold in mine)
