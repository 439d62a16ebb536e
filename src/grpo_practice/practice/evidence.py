"""Evidence for and against an experience: lessons and rewards, over the whole run.

A teacher errs about single groups. So no single comparison changes what others have confirmed:
each question has a vote for or against an experience, from what its comparisons found; and once it
was played both without and with the experience, its reward speaks too, which no teacher can get
wrong. Simulated with a teacher that is wrong about three groups in ten: `bench/learning.py`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from grpo_practice.store.records import Past, Play
from grpo_practice.text import count
from grpo_practice.types import Library, Operation, one_vote

REWARD_WEIGHT = 4.0
"""Votes that a change of a question's mean reward by 1 weighs: a quarter of it is one lesson."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence for one experience, and against it."""

    votes: Mapping[int, int] = field(default_factory=dict)
    """Sample id → its votes for the experience less those against it."""
    changes: Mapping[int, float] = field(default_factory=dict)
    """Sample id → its mean reward with the experience, less that before."""

    @property
    def supporting(self) -> int:
        """Number of questions that led to it or confirmed it."""
        return sum(vote > 0 for vote in self.votes.values())

    @property
    def opposing(self) -> int:
        """Number of questions that spoke against it."""
        return sum(vote < 0 for vote in self.votes.values())

    @property
    def change(self) -> float | None:
        """Mean change of reward over the questions that were played without and with it."""
        return fmean(self.changes.values()) if self.changes else None

    @property
    def support(self) -> float:
        """Weight of all that speaks for it, less all that speaks against it, in votes."""
        return self.supporting - self.opposing + REWARD_WEIGHT * sum(self.changes.values())

    @property
    def stays(self) -> bool:
        """False when more speaks against it than for it."""
        return round(self.support, 9) >= 0  # a tie is not decided by how floats add up


def evidence_on(
    library: Library,
    past: Past,
    cast: Iterable[tuple[int, Operation]] = (),
    plays: Sequence[Play] = (),
    *,
    rewards: bool = True,
) -> dict[str, Evidence]:
    """Return what there is on each experience of a library, by its id.

    `past` is what closed steps hold on them; `cast` are the proposals of the step that is being
    closed, each with the sample it is of, and `plays` its groups. Rewards may not be looked at
    where the run is to learn without the truth.
    """
    votes = {e.id: Counter(past.votes.get(e.id, {})) for e in library.experiences}
    said = {e.id: Counter[int]() for e in library.experiences}
    for sample_id, op in cast:
        if op.target in said:
            said[op.target][sample_id] += op.vote
    for name, of in said.items():
        # A question has one vote a step, however often it says so; Counter.update() adds it to the
        # votes of the steps before.
        votes[name].update({sample_id: one_vote(total) for sample_id, total in of.items()})
    # A reward is the truth, too: a run without ground truth must not learn from it.
    played = [*past.plays, *plays] if rewards else []
    return {name: Evidence(dict(v), _changes(name, v, played, past)) for name, v in votes.items()}


def evidence_text(evidence: Evidence, numbers: Mapping[int, int] | None = None) -> str:
    """Return the evidence as a sentence for a person.

    `numbers`, sample id → number of its question in the dataset, names the questions that voted.
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
    """Return ` (14, 24)`: the questions whose votes come to 1, -1 or 0; '' without numbers."""
    ids = [sample for sample, vote in evidence.votes.items() if one_vote(vote) == side]
    if numbers is None or not ids:
        return ""
    known = sorted(numbers[sample] for sample in ids if sample in numbers)
    others = len(ids) - len(known)
    return f" ({', '.join([*map(str, known), *([f'{others} of other data'] if others else [])])})"


def _changes(
    name: str, votes: Mapping[int, int], played: Sequence[Play], past: Past
) -> dict[int, float]:
    """Return by how much the reward of each question that voted has changed with the experience.

    Shape of the result: one entry for each question played both without and with it.
    """
    before, since = dict[int, float](), dict[int, list[float]]()
    for play in played:
        if play.sample_id not in votes:
            continue
        if name in past.shown.get(play.library_id or 0, ()):
            since.setdefault(play.sample_id, []).append(play.reward)
        else:
            # A question votes because its attempts differed, which they did partly by luck: one
            # more attempt at the step's mean takes that luck out of the comparison.
            total = play.reward * play.scored + play.mean
            before[play.sample_id] = total / (play.scored + 1)
    return {q: fmean(since[q]) - before[q] for q in before.keys() & since.keys()}
