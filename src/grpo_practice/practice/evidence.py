"""Evidence for and against each experience: lessons and rewards from the whole run.

A teacher misjudges individual groups, so no single comparison overrides earlier confirmations from
other groups. Each question has one vote for or against an experience, based on its comparisons. A
teacher may also misjudge a whole subject, and then all its votes agree. Rewards are evidence that
no teacher can get wrong: the same questions are played with and without the experience (`trials`).

Both are estimates of the same quantity, the change in reward that the experience causes at the
questions it is about. They are combined by their precision, so votes decide as long as few
attempts have been played, and rewards decide later. `bench/teaching.py` simulates teachers that
are wrong at random, always wrong about some subjects, or never name an experience.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import NamedTuple

from grpo_practice.core.text import count
from grpo_practice.core.types import Library, Operation, one_vote
from grpo_practice.store.records import Past, Play

VOTED = 0.3
"""Change in mean reward that a question's vote for an experience predicts."""
VOTE_VARIANCE = 0.1
"""Variance of that prediction for a single vote."""
SHARED_VARIANCE = 0.01
"""Variance that all votes on an experience share, because they come from the same teacher."""
REWARD_VARIANCE = 0.2
"""Variance of the reward of an attempt at a question whose attempts differ."""
PROVEN = 1.0
"""Support from which on an experience counts as proven if rewards rose with it."""


class Change(NamedTuple):
    """Change in a question's mean reward with an experience, compared to without it."""

    size: float
    precision: float
    """1 / variance of `size`."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence for and against one experience."""

    votes: Mapping[int, int] = field(default_factory=dict)
    """Sample id → number of the sample's votes for the experience minus those against it."""
    changes: Mapping[int, Change] = field(default_factory=dict)
    """Sample id → change in its reward; only of samples that the experience is about."""
    families: Mapping[int, str] = field(default_factory=dict)
    """Sample id → family of related samples, which has one vote; see `Sample.cluster`."""

    @property
    def supporting(self) -> int:
        """Number of questions whose votes are for the experience."""
        return sum(vote > 0 for vote in self.votes.values())

    @property
    def opposing(self) -> int:
        """Number of questions whose votes are against the experience."""
        return sum(vote < 0 for vote in self.votes.values())

    @property
    def change(self) -> float | None:
        """Estimated change in reward over the questions played both without and with it."""
        return self._moved / self._known if self.changes else None

    @property
    def support(self) -> float:
        """Expected effect of the experience in standard deviations; negative if it does harm."""
        ballots = Counter[int | str]()
        for sample, vote in self.votes.items():
            ballots[self._family(sample)] += one_vote(vote)
        n = len(ballots)
        voted = n / (VOTE_VARIANCE + n * SHARED_VARIANCE)
        agreed = sum(map(one_vote, ballots.values())) / n if n else 0.0
        known = voted + self._known
        return (voted * VOTED * agreed + self._moved) / sqrt(known) if known else 0.0

    @property
    def stays(self) -> bool:
        """False if the evidence against the experience outweighs the evidence for it."""
        against = {self._family(s) for s, vote in self.votes.items() if vote < 0}
        against |= {self._family(s) for s, change in self.changes.items() if change.size < 0}
        # A vote needs a second question beside it: a text in one attempt could speak for the
        # teacher. And float rounding must not decide a tie.
        return round(self.support, 9) >= 0 or (self.opposing > 0 and len(against) < 2)

    @property
    def proven(self) -> bool:
        """True if rewards rose with the experience and its support is high."""
        return self._moved > 0 and self.support >= PROVEN

    @property
    def disproved(self) -> bool:
        """True if rewards fell with the experience, by more than one standard deviation."""
        return self._moved < -sqrt(self._known)

    def opposed_by(self, samples: Iterable[int]) -> "Evidence":
        """Return the evidence with one more vote against the experience by each of the samples."""
        return replace(self, votes={**self.votes, **{s: self.votes.get(s, 0) - 1 for s in samples}})

    def _family(self, sample: int) -> int | str:
        return self.families.get(sample, sample)

    @property
    def _known(self) -> float:
        return sum(change.precision for change in self.changes.values())

    @property
    def _moved(self) -> float:
        return sum(change.size * change.precision for change in self.changes.values())


NO_EVIDENCE = Evidence()


def evidence_on(
    library: Library,
    past: Past,
    cast: Iterable[tuple[int, Operation]] = (),
    plays: Sequence[Play] = (),
    *,
    rewards: bool = True,
) -> dict[str, Evidence]:
    """Return the evidence on each experience in a library, by its id.

    `past` is the evidence stored in closed steps. `cast` contains the proposals of the step that is
    being closed, each with its sample id, and `plays` contains that step's groups. Set `rewards` to
    False if the run must learn without ground truth.
    """
    votes = {e.id: Counter(past.votes.get(e.id, {})) for e in library.experiences}
    said = {e.id: Counter[int]() for e in library.experiences}
    for sample_id, op in cast:
        if op.target in said:
            said[op.target][sample_id] += op.vote
    for name, of in said.items():
        # Each question has one vote per step, however many of its lessons agree.
        # Counter.update() adds it to the votes of earlier steps.
        votes[name].update({sample_id: one_vote(total) for sample_id, total in of.items()})
    # Rewards are ground truth as well, so a run without ground truth must not learn from them.
    played = defaultdict[int, list[Play]](list)
    for play in (*past.plays, *plays) if rewards else ():
        played[play.sample_id].append(play)
    subjects = [*past.subjects, *(of.keys() for of in votes.values())]
    found = dict[str, Evidence]()
    for name, of in votes.items():
        # Proposals about the same experience have the same subject, whichever side they take.
        about = set(of).union(*(subject for subject in subjects if subject & of.keys()))
        changes = {s: _change(name, played[s], past) for s in about if s in played}
        moved = {s: c for s, c in changes.items() if c is not None}
        found[name] = Evidence(dict(of), moved, past.families)
    return found


def evidence_text(evidence: Evidence, numbers: Mapping[int, int] | None = None) -> str:
    """Describe the evidence in a sentence for a person.

    With `numbers` (sample id → number of the question in the dataset), the sentence lists the
    questions that voted.
    """
    for_, against = evidence.supporting, evidence.opposing
    even = len(evidence.votes) - for_ - against
    said = f"{count(for_, 'question')} for it{_named(evidence, 1, numbers)}"
    said += f", {against} against it{_named(evidence, -1, numbers)}"
    said += f", {even} undecided{_named(evidence, 0, numbers)}" if even else ""
    if evidence.change is None:
        return said
    size = f"{abs(evidence.change):.2f}"
    moved = "rose" if evidence.change > 0 else "fell"
    went = "stayed as it was" if size == "0.00" else f"{moved} by {size}"
    asked = count(len(evidence.changes), "question")
    return f"{said}; with it, the mean reward of {asked} {went}"


def _named(evidence: Evidence, side: int, numbers: Mapping[int, int] | None) -> str:
    """Return the questions that voted `side` (1, -1 or 0) as ` (14, 24)`; '' without `numbers`."""
    ids = [sample for sample, vote in evidence.votes.items() if one_vote(vote) == side]
    if numbers is None or not ids:
        return ""
    known = sorted(numbers[sample] for sample in ids if sample in numbers)
    others = len(ids) - len(known)
    return f" ({', '.join([*map(str, known), *([f'{others} of other data'] if others else [])])})"


def _change(name: str, plays: Iterable[Play], past: Past) -> Change | None:
    """Return a question's change in reward with the experience compared to without it.

    Return None unless the question was played both with and without it.
    """
    before, since = _Mean(), _Mean()
    for play in plays:
        shown = past.shown.get(play.library_id or 0, ())
        (since if name in shown and name not in play.part.left_out else before).add(play)
    return since.less(before) if since.n and before.n else None


@dataclass(slots=True)
class _Mean:
    """Mean reward of a question's attempts, all with or all without an experience."""

    total: float = 0.0
    n: int = 0
    usual: float = 0.0
    """Mean reward of the last step in which these attempts were played."""

    def add(self, play: Play) -> None:
        self.total += play.part.reward * play.part.scored
        self.n += play.part.scored
        self.usual = play.mean

    def less(self, before: "_Mean") -> Change:
        """Return the change since `before`."""
        # A question votes because its attempts differed, partly by luck. Adding one attempt
        # at the step's mean removes that luck from the comparison.
        was = (before.total + before.usual) / (before.n + 1)
        variance = REWARD_VARIANCE * (1 / self.n + 1 / (before.n + 1))
        return Change(self.total / self.n - was, 1 / variance)
