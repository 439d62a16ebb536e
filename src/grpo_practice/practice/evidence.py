"""Evidence for and against each experience: lessons and rewards from the whole run.

A teacher misjudges individual groups, so no single comparison overrides earlier confirmations from
other groups. Each question has one vote for or against an experience, based on its comparisons.
Once a question has been played both without and with the experience, the change in its reward
counts too, and no teacher can get that wrong. `bench/learning.py` simulates a teacher that is wrong
about three groups in ten.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from grpo_practice.core.stats.scores import mean
from grpo_practice.core.text import count
from grpo_practice.core.types import Library, Operation, one_vote
from grpo_practice.store.records import Past, Play

REWARD_WEIGHT = 4.0
"""Number of votes that a change of 1 in a question's mean reward is worth: a change of 0.25 equals
one lesson.
"""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence for and against one experience."""

    votes: Mapping[int, int] = field(default_factory=dict)
    """Sample id → number of the sample's votes for the experience minus those against it."""
    changes: Mapping[int, float] = field(default_factory=dict)
    """Sample id → mean reward with the experience minus mean reward without it."""

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
        """Mean change in reward over the questions played both without and with the experience."""
        return mean([*self.changes.values()]) if self.changes else None

    @property
    def support(self) -> float:
        """Total weight of the evidence, in votes; negative if most is against the experience."""
        return self.supporting - self.opposing + REWARD_WEIGHT * sum(self.changes.values())

    @property
    def stays(self) -> bool:
        """False if the evidence against the experience outweighs the evidence for it."""
        return round(self.support, 9) >= 0  # float rounding must not decide a tie


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
    played = [*past.plays, *plays] if rewards else []
    return {name: Evidence(dict(v), _changes(name, v, played, past)) for name, v in votes.items()}


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


def _changes(
    name: str, votes: Mapping[int, int], played: Sequence[Play], past: Past
) -> dict[int, float]:
    """Return each voting question's change in reward with the experience compared to without it.

    Shape of the result: one entry for each question played both without and with it.
    """
    before, since = dict[int, float](), dict[int, list[float]]()
    for play in played:
        if play.sample_id not in votes:
            continue
        if name in past.shown.get(play.library_id or 0, ()):
            since.setdefault(play.sample_id, []).append(play.reward)
        else:
            # A question votes because its attempts differed, partly by luck. Adding one attempt
            # at the step's mean removes that luck from the comparison.
            total = play.reward * play.scored + play.mean
            before[play.sample_id] = total / (play.scored + 1)
    return {q: mean(since[q]) - before[q] for q in before.keys() & since.keys()}
