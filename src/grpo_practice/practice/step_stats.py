"""Totals of a step's distillation, stored so that reports need not read its operations."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from grpo_practice.core.types import (
    QUARANTINE,
    Distilled,
    Operation,
    QuarantineRule,
    RefusedRule,
)
from grpo_practice.store.distillation import HARMLESS, Distillation, frequencies


def distillation(
    distilled: Iterable[Distilled],
    merged: Sequence[Operation],
    removed: Sequence[Operation],
    experiences: int,
) -> Distillation:
    """Return the counts of a closed step.

    `distilled` is in slot order; `removed` are removals added by a gate, and `experiences` is the
    size of the library that the step produced.
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
    """Count the proposals that had no effect because they were refused or quarantined.

    A NONE in the merge uses up no proposal. If all operations of a merge are lost, all proposals
    are lost too.
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
