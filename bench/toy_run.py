"""The libraries of a simulated practice run without client, prompts or store (see `toy`)."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Literal

from grpo_practice.core.types import Distilled, Experience, Operation
from grpo_practice.core.types import Library as Stored
from grpo_practice.practice import merge
from grpo_practice.practice.evidence import Evidence, evidence_on
from grpo_practice.practice.trials import on_trial
from grpo_practice.sim.world import World, topic_of, unit
from grpo_practice.store.records import Past, Play

Library = Mapping[int, str]
"""Label → key of each experience, in the library's order."""
Counting = Literal["nothing", "votes", "votes and rewards"]
"""Evidence that decides whether an experience is changed; `nothing`: any proposal does."""

Proposed = tuple[int, Operation]
"""A question, and an operation that its comparison led to; the text is the key."""


@dataclass(slots=True)
class Run:
    """The libraries of a run, and what speaks for each of their experiences."""

    world: World
    counting: Counting
    libraries: list[Library] = field(default_factory=lambda: [{}])
    """Library at the start of each step, and the last one."""
    label: int = 0  # the last that was given
    votes: dict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter[int]))
    plays: list[Play] = field(default_factory=list)
    subjects: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set[int]))
    disproved: set[str] = field(default_factory=set)

    def on_trial(self) -> tuple[str, ...]:
        """Return the experiences on trial in the next step."""
        now = stored(self.libraries[-1])
        return on_trial(now, evidence_on(now, self._past()))

    def _past(self) -> Past:
        now = self.libraries[-1]
        shown = {
            1 + n: {f"E{label}" for label, key in library.items() if now.get(label) == key}
            for n, library in enumerate(self.libraries)
        }
        return Past(self.votes, self.plays, shown, [*self.subjects.values()])

    def close(self, proposed: Sequence[Proposed], plays: Sequence[Play]) -> None:
        """Make the next library of what a step's comparisons proposed and its groups played."""
        now, step = self.libraries[-1], len(self.libraries) - 1
        mean = fmean([p.part.reward for p in plays], [p.part.scored for p in plays])
        plays, past = [replace(play, mean=mean) for play in plays], self._past()
        evidence = evidence_on(
            stored(now), past, proposed, plays, rewards=self.counting == "votes and rewards"
        )
        if self.counting == "nothing":
            evidence = {name: Evidence({0: -1, 1: -1}) for name in evidence}
        groups = [Distilled(n, operations=(op,)) for n, (_, op) in enumerate(proposed)]
        cast = merge.votes(groups, [q for q, _ in proposed])
        changes = merge.changes(cast)
        asked = merged(self.world, now, changes, evidence, step, self.disproved)
        passed = merge.without_outvoted(asked, changes, evidence)
        gone = () if self.counting == "nothing" else merge.pruned(stored(now), passed, evidence)
        made = merge.apply(stored(now, self.label), [*passed, *gone])
        for p in cast:
            if p.operation.target:
                self.votes[p.operation.target][p.sample_id] += p.operation.vote
                self.subjects[p.operation.target].add(p.sample_id)
        self._credit(passed, changes)
        self.disproved |= {
            now[int(op.target[1:])]
            for op in (*passed, *gone)
            if op.disproved and op.refused is None and op.target
        }
        self.plays += plays
        self.libraries.append({e.label: e.text for e in made.experiences})

    def _credit(self, passed: Sequence[Operation], changes: Sequence[merge.Proposal]) -> None:
        """Count the questions behind merged operations as votes for what they say."""
        for op in passed:
            if op.refused is not None or op.op == "DELETE":
                continue
            self.label += op.op == "ADD"
            name, behind = (
                op.target or f"E{self.label}",
                {changes[i].sample_id for i in op.from_ops},
            )
            self.subjects[name] |= behind
            if op.op == "NONE":
                self.votes[name].update(behind)
            else:
                self.votes[name] = Counter(behind)


def stored(library: Library, label: int = 0) -> Stored:
    """Return the library as the program has it, its keys for texts."""
    return Stored(tuple(Experience(n, key) for n, key in library.items()), label + 1)


def merged(
    world: World,
    library: Library,
    proposed: Sequence[merge.Proposal],
    evidence: Mapping[str, Evidence],
    step: int,
    disproved: Set[str],
) -> list[Operation]:
    """Return what the simulated librarian makes of the proposals."""
    made, taken = list[Operation](), {*library.values(), *disproved}
    by_target = dict[str | None, list[int]]()
    for i, p in enumerate(proposed):
        by_target.setdefault(p.operation.target, []).append(i)
    for target in (f"E{label}" for label in library if f"E{label}" in by_target):
        places = by_target[target]
        confused = unit(world.seed, "outvoted", target, step) < world.teacher.noise
        if evidence[target].stays != confused:
            continue
        texts = [proposed[i].operation.text for i in places]
        news = [text for text in texts if text and text not in taken]
        best = max(news, key=news.count) if news else None
        taken |= {best} if best else set()
        made.append(Operation("UPDATE" if best else "DELETE", target, best, tuple(places)))
    held = {key: f"E{label}" for label, key in library.items()}
    asked, again = dict[str, list[int]](), dict[str, list[int]]()
    for i in by_target.get(None, []):
        if (key := proposed[i].operation.text or "") not in taken:
            asked.setdefault(key, []).append(i)
        elif key in held:
            again.setdefault(held[key], []).append(i)
    best_of = dict[str, str]()
    for key, places in asked.items():
        rival = best_of.get(topic_of(key))
        if rival is None or len(places) > len(asked[rival]):
            best_of[topic_of(key)] = key
    wanted = [key for key in asked if key in best_of.values()]
    made += [Operation("ADD", text=k, from_ops=tuple(asked[k])) for k in wanted]
    repeats = [Operation("NONE", label, from_ops=tuple(of)) for label, of in again.items()]
    return [*made, *repeats]
