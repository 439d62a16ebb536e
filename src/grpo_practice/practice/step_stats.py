"""Rows and sums that a step leaves of its groups, so that no report has to read rollouts."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import cast

from grpo_practice.practice.informative import Status
from grpo_practice.stats import correct
from grpo_practice.store.distillation import HARMLESS, Distillation, frequencies
from grpo_practice.store.records import GroupRow
from grpo_practice.types import (
    QUARANTINE,
    Distilled,
    Group,
    Operation,
    QuarantineRule,
    RefusedRule,
    Rollout,
)


def distillation(
    distilled: Iterable[Distilled],
    merged: Sequence[Operation],
    removed: Sequence[Operation],
    experiences: int,
) -> Distillation:
    """Return the counts of a step that is closed.

    `distilled` is in slot order; `removed` are removals that no merge asked for, and `experiences`
    is the size of the library that the step made.
    """
    groups = list(distilled)
    asked = [op for done in groups for op in done.operations]
    proposed = [op for op in asked if op.op != "NONE"]
    rules = [op.rule for op in (*asked, *merged) if op.rule is not None]
    refused = frequencies(rule for rule in rules if rule not in QUARANTINE)
    return Distillation(
        informative=len(groups),
        compared=sum(done.compared for done in groups),
        failed=frequencies(done.failed_kind for done in groups if done.failed_kind),
        unsummarised=sum(len(done.unread) for done in groups),
        shortened=sum(done.shortened for done in groups),
        cut_chars=sum(done.cut_chars for done in groups),
        lessons=sum(len(done.lessons) for done in groups),
        proposals=len(proposed),
        confirmed=sum(op.op == "NONE" and op.target is not None for op in asked),
        outvoted=refused.pop("outvoted", 0),
        held=refused.pop("held", 0),
        refused=cast(Mapping[RefusedRule, int], refused),
        quarantined=cast(
            Mapping[QuarantineRule, int], frequencies(rule for rule in rules if rule in QUARANTINE)
        ),
        lost=_lost(proposed, merged),
        removed=len(removed),
        experiences=experiences,
    )


def _lost(proposed: Sequence[Operation], merged: Sequence[Operation]) -> int:
    """Count the proposals of which nothing is left because of a refusal or a quarantine.

    A NONE makes nothing of a proposal. All proposals are lost where all that a merge makes is.
    """
    made = [op for op in merged if op.op != "NONE"]
    if made and all(map(_is_lost, made)):
        return sum(_is_lost(op) or op.refused is None for op in proposed)
    became = defaultdict[int, list[bool]](list)
    for op in made:
        for i in op.from_ops:
            became[i].append(_is_lost(op))
    return sum(map(_is_lost, proposed)) + sum(map(all, became.values()))


def _is_lost(op: Operation) -> bool:
    return op.rule is not None and op.rule not in HARMLESS


def group_row(
    group: Group, status: Status, done: Distilled | None, *, planned: int, library_id: int
) -> GroupRow:
    """Return the row of a group whose attempts have all ended."""
    return GroupRow(
        slot=group.slot,
        sample_id=group.sample.id,
        planned=planned,
        played=sum(r.played.outcome != "error" for r in group.rollouts),
        scored=len(_rewards(group.rollouts)),
        teachable=len(group.teachable),
        mean_reward=mean_reward([group]),
        informative=status == "scored",
        status=("failed" if done.failed else "distilled") if done else status,
        reason=done.failed if done else None,
        unanswered=bool(done and done.failed and done.unanswered),
        library_id=library_id,
    )


def step_stats(groups: Sequence[Group], rows: Sequence[GroupRow]) -> dict[str, object]:
    """Return what lists and summaries say of all that was played in a step."""
    rollouts = [r for group in groups for r in group.rollouts]
    rewards = _rewards(rollouts)
    ends = [(r.played.outcome, r.played.reason) for r in rollouts]
    outcomes = Counter(f"{ended}.{reason}" if reason else ended for ended, reason in ends)
    return {
        "planned": sum(row.planned for row in rows),
        "scored": len(rewards),
        "correct": sum(correct(r) for r in rewards),
        "outcomes": dict(sorted(outcomes.items())),
        "groups": dict(sorted(Counter(row.status for row in rows).items())),
        "informative": sum(row.informative for row in rows),
        "alike": sum(map(_alike, groups)),
    }


def _alike(group: Group) -> bool:
    """Return True where several attempts were answered, and all with the same text."""
    answers = [r.played.response for r in group.rollouts if r.played.outcome == "ok"]
    return len(answers) > 1 and len(set(answers)) == 1


def mean_reward(
    groups: Sequence[Group], *, weight: Callable[[int], float] = lambda slot: 1.0
) -> float | None:
    """Return the mean over all attempts that were scored; None without any.

    If groups are left out, the `weight` of the others (1 / the chance to be played, by slot)
    keeps the mean where it would be with all of them.
    """
    scoring = [
        (weight(group.slot), rollout.reward)
        for group in groups
        for rollout in group.rollouts
        if rollout.reward is not None
    ]
    weights = sum(w for w, _ in scoring)
    return sum(w * reward for w, reward in scoring) / weights if scoring else None


def _rewards(rollouts: Sequence[Rollout]) -> list[float]:
    return [r.reward for r in rollouts if r.reward is not None]
